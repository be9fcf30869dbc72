package builder

import (
	"context"
	"errors"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// authorModule is what author code imports from the platform. Its types may
// stand in package.json like those of a package; it is never installed.
const authorModule = "@teamsync/edge-worker"

const packageJSON = "package.json"

// dependencies are the packages of a project.
type dependencies struct {
	tree     *npm.Tree       // nil when there are problems
	problems []fault.Problem // of package.json and the lock file
}

// install reads which packages a project needs and brings them into memory.
// What is wrong with package.json or the lock file is among the problems, so
// that it is told together with those of the sources; what is wrong with a
// package is an error.
func (b *Builder) install(ctx context.Context, in Input) (*dependencies, error) {
	root, problems := readRoot(in.Project)
	if len(problems) > 0 {
		return &dependencies{problems: problems}, nil
	}
	text, ok := in.Project.Files[npm.LockName]
	if !ok {
		problems = unlocked(root)
		if len(problems) > 0 {
			return &dependencies{problems: problems}, nil
		}
		return &dependencies{tree: npm.NoPackages()}, nil
	}
	lock, problems := b.packages.Read(text, root, authorModule)
	if len(problems) > 0 {
		return &dependencies{problems: problems}, nil
	}
	tree, err := b.packages.Install(ctx, lock, in.Progress)
	return &dependencies{tree: tree}, err
}

// readRoot reads what package.json asks for. Development dependencies are the
// author's own business.
func readRoot(p *project.Project) (npm.Root, []fault.Problem) {
	text, ok := p.Files[packageJSON]
	if !ok {
		return npm.Root{}, nil
	}
	doc, err := project.ParseJSON(text)
	if err != nil {
		return npm.Root{}, []fault.Problem{jsonProblem("package_json_invalid", packageJSON, err)}
	}
	object, ok := doc.Value().(map[string]any)
	if !ok {
		return npm.Root{}, []fault.Problem{{Type: "package_json_invalid", Loc: []any{packageJSON}, Msg: "package.json must hold an object"}}
	}
	return npm.Root{
		Dependencies: ranges(object["dependencies"]),
		Optional:     ranges(object["optionalDependencies"]),
		Peer:         ranges(object["peerDependencies"]),
	}, nil
}

// ranges reads a section of package.json: names and what versions are wanted.
func ranges(section any) map[string]string {
	all := map[string]string{}
	packages, _ := section.(map[string]any)
	for name, wanted := range packages {
		all[name], _ = wanted.(string)
	}
	return all
}

// unlocked refuses packages without a lock file: what they are would be decided
// anew by each build.
func unlocked(root npm.Root) []fault.Problem {
	var problems []fault.Problem
	for _, section := range []struct {
		name     string
		packages map[string]string
	}{{"dependencies", root.Dependencies}, {"optionalDependencies", root.Optional}, {"peerDependencies", root.Peer}} {
		for _, name := range sortedKeys(section.packages) {
			if name == authorModule {
				continue
			}
			problems = append(problems, fault.Problem{
				Type: "lock_missing", Loc: []any{packageJSON, section.name, name},
				Msg: "there is no package-lock.json, which says what " + name + " is: run npm install",
			})
		}
	}
	return problems[:min(len(problems), project.MaxProblems)]
}

// jsonProblem reports a file that is not the JSON it should be.
func jsonProblem(kind, file string, err error) fault.Problem {
	loc := []any{file}
	var invalid *project.JSONError
	if errors.As(err, &invalid) {
		loc = append(loc, invalid.Line, invalid.Column)
	}
	return fault.Problem{Type: kind, Loc: loc, Msg: err.Error()}
}

// resolvedPackage is an installed package as the dependency digest covers it.
type resolvedPackage struct {
	Path      string `json:"path"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity"`
}

// dependencyDigest is the digest of the resolved packages, sorted by path.
func dependencyDigest(tree *npm.Tree) (string, error) {
	all := []resolvedPackage{} // none is an empty list, not null
	for _, entry := range tree.Lock.Packages {
		all = append(all, resolvedPackage{entry.Path, entry.Name, entry.Version, entry.Integrity.String()})
	}
	return canonical.JSONDigest(dependencyDomain, all)
}

// lockDigest is the digest of the exact lock file, or of nothing.
func lockDigest(p *project.Project) string {
	return canonical.Digest(lockDomain, p.Files[npm.LockName])
}
