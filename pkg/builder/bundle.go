package builder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// The machine-readable types of build problems.
const (
	sourceInvalid    = "source_invalid"
	importUnresolved = "import_unresolved"
	dynamicCode      = "dynamic_code_unsupported"
	entryNoDefault   = "entry_default_export_missing"
	sourceNotModule  = "source_not_module"
	bundleTooLarge   = "bundle_too_large"
)

// dynamicImport is the bundler's remark on an import() of something computed.
const dynamicImport = "unsupported-dynamic-import"

// dynamic are the bundler's remarks on code that is made or loaded at run
// time; they are errors here. In packages only import() is one: the others
// throw when they are run, and many packages have them in a try block.
var dynamic = []string{"direct-eval", dynamicImport, "unsupported-require-call", "indirect-require"}

// bundle runs the bundler over a project. The context cancels it.
func bundle(ctx context.Context, files *sources) ([]byte, []fault.Problem, error) {
	p := files.project
	levels := map[string]api.LogLevel{}
	for _, id := range dynamic {
		levels[id] = api.LogLevelWarning
	}
	build, failed := api.Context(api.BuildOptions{
		AbsWorkingDir: "/project", // never read: every path is resolved by the plugin
		EntryPoints:   []string{"index.mjs"},
		Outfile:       "index.mjs",
		Bundle:        true,
		Metafile:      true,
		Format:        api.FormatESModule,
		Platform:      api.PlatformNeutral,
		Conditions:    []string{"worker"},
		Target:        api.ES2022,
		Charset:       api.CharsetUTF8,
		LegalComments: api.LegalCommentsEndOfFile,
		Define:        map[string]string{"process.env.NODE_ENV": `"production"`}, // what packages ask most
		// Unused imports stay, so that each import is checked.
		TsconfigRaw: `{"compilerOptions":{"verbatimModuleSyntax":true}}`,
		LogLevel:    api.LogLevelSilent,
		LogOverride: levels,
		Plugins:     []api.Plugin{files.plugin()},
	})
	if failed != nil {
		return nil, nil, fmt.Errorf("set up the bundler: %w", errors.New(failed.Error()))
	}
	defer build.Dispose()
	stop := context.AfterFunc(ctx, build.Cancel)
	defer stop()
	result := build.Rebuild()
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	problems, warnings := classify(result, p.Manifest.Entry)
	if len(problems) == 0 && len(result.OutputFiles) == 1 {
		problems = checkModules(result.Metafile, p.Manifest.Entry)
	}
	if len(problems) > 0 {
		return nil, nil, fault.Refuse(problems[:min(len(problems), project.MaxProblems)]...)
	}
	if len(result.OutputFiles) != 1 {
		return nil, nil, errors.New("the bundler wrote no bundle")
	}
	return result.OutputFiles[0].Contents, warnings, nil
}

// classify splits the bundler's messages into what refuses the project and
// what is only told.
func classify(result api.BuildResult, entry string) ([]fault.Problem, []fault.Problem) {
	var problems, warnings []fault.Problem
	for _, message := range result.Errors {
		problems = append(problems, problemOf(message, sourceInvalid, entry))
	}
	for _, message := range result.Warnings {
		if slices.Contains(dynamic, message.ID) && (message.ID == dynamicImport || !ofPackage(message)) {
			problems = append(problems, problemOf(message, dynamicCode, entry))
		} else if !ofPackage(message) && len(warnings) < project.MaxProblems {
			warnings = append(warnings, problemOf(message, "source_warning", entry))
		}
	}
	return problems, warnings
}

// problemOf gives a message file, line and column, all from 1.
func problemOf(message api.Message, kind, entry string) fault.Problem {
	loc := []any{}
	text := message.Text
	if given, ok := message.Detail.(string); ok {
		kind = given // and a text of ours
	} else {
		text = plainNames.Replace(text)
	}
	if at := message.Location; at != nil {
		file, ours := strings.CutPrefix(at.File, projectSpace+":")
		if ofPackage(message) {
			file, ours = plainNames.Replace(at.File), true
			kind, text = packageProblem(kind, text, file)
		}
		if at.Namespace != projectSpace && !ours && at.File == entrySpace+":index.mjs" {
			// The only thing that can be wrong with our own module is what it
			// asks of the author's.
			return fault.Problem{Type: entryNoDefault, Loc: []any{entry}, Msg: "the entry has no default export: export default defineWorker({…})"}
		}
		loc = append(loc, file, at.Line, at.Column+1)
	}
	return fault.Problem{Type: kind, Loc: loc, Msg: text}
}

// plainNames takes the bundler's own marks from the names of files.
var plainNames = strings.NewReplacer(projectSpace+":", "", npmSpace+":", "", moduleMark, "")

// ofPackage reports whether a message is about code of an npm package.
func ofPackage(message api.Message) bool {
	return message.Location != nil && strings.HasPrefix(message.Location.File, npmSpace+":")
}

// packageProblem words the bundler's own refusal of an import that the resolver
// left to it.
func packageProblem(kind, text, file string) (string, string) {
	specifier, ok := strings.CutPrefix(text, "Could not resolve ")
	if !ok {
		return kind, text
	}
	return importUnresolved, fmt.Sprintf("%s imports %s, which is not installed and no module of the platform", file, specifier)
}

// checkModules refuses CommonJS: such files would be evaluated in an order of
// their own, and an entry without any export has no handlers.
func checkModules(metafile, entry string) []fault.Problem {
	var meta struct {
		Inputs map[string]struct{ Format string }
	}
	err := json.Unmarshal([]byte(metafile), &meta)
	if err != nil {
		return []fault.Problem{{Type: sourceInvalid, Loc: []any{}, Msg: "the bundler's report cannot be read"}}
	}
	var problems []fault.Problem
	for _, path := range sortedKeys(meta.Inputs) {
		file, ok := strings.CutPrefix(path, projectSpace+":")
		format := meta.Inputs[path].Format
		if ok && format == "cjs" && !strings.HasSuffix(file, ".json") {
			problems = append(problems, fault.Problem{Type: sourceNotModule, Loc: []any{file}, Msg: "the file uses CommonJS: write import and export"})
		} else if ok && file == entry && format != "esm" {
			problems = append(problems, fault.Problem{Type: entryNoDefault, Loc: []any{entry}, Msg: "the entry has no default export: export default defineWorker({…})"})
		}
	}
	return problems
}
