package builder

import (
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// computed is what is said of an import whose specifier is not written out.
const computed = "what is imported is computed: only imports of a text in quotes are supported"

// computedImport finds an import() or a CommonJS require() of something that is
// not a text in quotes, and gives its offset; -1 when there is none.
//
// The bundler takes such a specifier for a pattern and looks through the disk of
// this machine for files that match it, past every plugin; so it must not see
// one. A search of the text finds whatever could be one, comments and names of
// methods among it. If it finds something, the bundler's parser is asked whether
// the code is one: does it come out differently when import() is not available,
// or when require is another name?
func computedImport(text string, loader api.Loader) int {
	imports, requires := suspects(text, loader)
	if imports < 0 && requires < 0 {
		return -1
	}
	// Imports of texts in quotes are fine: they are taken out of the question.
	text = literalCalls.ReplaceAllString(text, "${1}_literal_${2}")
	plain := parsed(text, api.TransformOptions{Loader: loader})
	if imports >= 0 && plain != parsed(text, api.TransformOptions{Loader: loader, Supported: map[string]bool{"dynamic-import": false}}) {
		return imports
	}
	if requires >= 0 && plain != parsed(text, api.TransformOptions{Loader: loader, Define: map[string]string{"require": "_another_name_"}}) {
		return requires
	}
	return -1
}

// computedIn is computedImport for a file that may hold no code.
func computedIn(text string, loader api.Loader) int {
	if loader != api.LoaderJS && loader != api.LoaderTS {
		return -1
	}
	return computedImport(text, loader)
}

// parsed prints the code as the parser understood it. Code with a syntax error
// is empty: the bundler will refuse it and not resolve anything.
func parsed(text string, options api.TransformOptions) string {
	options.LogLevel = api.LogLevelSilent
	options.TsconfigRaw = "{}"
	options.Target = api.ES2022
	return string(api.Transform(text, options).Code)
}

// literal is a text in quotes, without escapes.
const literal = `(?:"[^"\\\n]*"|'[^'\\\n]*'|` + "`[^`\\\\$]*`)"

var (
	// words are import and require; literalCalls those that are called with one
	// text in quotes and nothing behind it.
	words        = regexp.MustCompile(`import|require`)
	literalCalls = regexp.MustCompile(`(^|[^\w$])(?:import|require)(\s*\(\s*` + literal + `\s*[,)])`)
	literalCall  = regexp.MustCompile(`\A\s*\(\s*` + literal + `\s*[,)]`)
	// statements is what stands behind an import that is no import().
	statements = regexp.MustCompile(`\A(?:\s*[\w$"'{*]|\s*\.\s*meta)`)
	// calls is what stands behind a require that may be called: a parenthesis,
	// also after those that close around it, or what may hide one.
	calls = regexp.MustCompile(`\A[\s)]*(?:\(|\?\.|![^=]|[</\\-]|[^\x00-\x7f])`)
	// casts may stand between a TypeScript name and its call.
	casts = regexp.MustCompile(`\A\s*(?:as|satisfies)\b`)
	// escapes are the letters of require by their numbers.
	escapes = regexp.MustCompile(`\\u(?:00|\{0*)(?:72|65|71|75|69)`)
)

// suspects gives the offsets of the first import and of the first require that
// may be calls with something computed, or -1.
func suspects(text string, loader api.Loader) (int, int) {
	imports, requires := -1, -1
	for _, at := range words.FindAllStringIndex(text, -1) {
		start, rest := at[0], text[at[1]:]
		if inWord(text, start-1) || inWord(text, at[1]) || literalCall.MatchString(rest) {
			continue
		}
		if text[start] == 'i' {
			if imports < 0 && rest != "" && !statements.MatchString(rest) {
				imports = start
			}
		} else if requires < 0 && (calls.MatchString(rest) || loader == api.LoaderTS && casts.MatchString(rest)) {
			requires = start
		}
	}
	if at := escapes.FindStringIndex(text); requires < 0 && at != nil {
		requires = at[0]
	}
	return imports, requires
}

// inWord reports whether the byte at an offset continues an ASCII name.
func inWord(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// refuseComputed refuses to load a file with a computed import.
func refuseComputed(file, text string, at int) api.OnLoadResult {
	before := text[:at]
	line := strings.LastIndexByte(before, '\n') + 1
	return api.OnLoadResult{Errors: []api.Message{{
		Text: computed, Detail: dynamicCode,
		Location: &api.Location{File: file, Line: strings.Count(before, "\n") + 1, Column: at - line},
	}}}
}
