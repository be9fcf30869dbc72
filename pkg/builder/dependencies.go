package builder

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// authorModule is what author code imports from the platform. Its types may
// stand in package.json like those of a package.
const authorModule = "@teamsync/edge-worker"

// checkDependencies refuses packages: a bundle holds the project's own files
// and the runtime. Development dependencies are the author's own business.
func checkDependencies(p *project.Project) []fault.Problem {
	const file = "package.json"
	text, ok := p.Files[file]
	if !ok {
		return nil
	}
	doc, err := project.ParseJSON(text)
	if err != nil {
		return []fault.Problem{jsonProblem("package_json_invalid", file, err)}
	}
	object, ok := doc.Value().(map[string]any)
	if !ok {
		return []fault.Problem{{Type: "package_json_invalid", Loc: []any{file}, Msg: "package.json must hold an object"}}
	}
	var problems []fault.Problem
	for _, section := range []string{"dependencies", "optionalDependencies", "peerDependencies"} {
		packages, _ := object[section].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(packages)) {
			if name == authorModule {
				continue
			}
			line, column := doc.Place(section, name)
			problems = append(problems, fault.Problem{
				Type: "dependency_unsupported",
				Loc:  []any{file, section, name},
				Msg:  fmt.Sprintf("npm packages are not supported: %s (line %d, column %d)", name, line, column),
			})
		}
	}
	return problems
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

// dependencyDigest is the digest of the resolved packages, sorted: none.
func dependencyDigest() (string, error) {
	return canonical.JSONDigest(dependencyDomain, []string{})
}

// lockDigest is the digest of the exact lock file, or of nothing.
func lockDigest(p *project.Project) string {
	return canonical.Digest(lockDomain, p.Files["package-lock.json"])
}
