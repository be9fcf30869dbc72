package project

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// commonRegexp compiles a schema's pattern. Patterns are checked here by RE2
// and run in a Worker by JavaScript (with its "u" flag): what only one of the
// two accepts is refused, so that a manifest that passes here cannot fail
// there. RE2's limits also keep out patterns of exponential cost.
func commonRegexp(pattern string) (jsonschema.Regexp, error) {
	err := javascriptPattern(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	return compiled, nil
}

// javascriptPattern refuses the parts of RE2's syntax that JavaScript reads
// differently or not at all.
func javascriptPattern(pattern string) error {
	class := false
	for i := 0; i < len(pattern); i++ {
		rest := pattern[i:]
		switch c := pattern[i]; {
		case c == '\\':
			size, err := escape(rest, class)
			if err != nil {
				return err
			}
			i += size - 1
		case class && strings.HasPrefix(rest, "[:"):
			return errors.New("named classes such as [:alpha:] are not supported")
		case class:
			class = c != ']'
		case c == '[':
			class = true
			i += emptyClass(rest)
		case c == ']' || c == '}':
			return fmt.Errorf("a lone %c must be escaped", c)
		case c == '{':
			size := repeat.FindString(rest)
			if size == "" {
				return errors.New("a lone { must be escaped")
			}
			i += len(size) - 1
		case strings.HasPrefix(rest, "(?") && !group.MatchString(rest):
			return errors.New("of the groups (?…) only (?:…) and (?<name>…) are supported")
		}
	}
	return nil
}

var (
	repeat  = regexp.MustCompile(`\A\{[0-9]+(,[0-9]*)?\}`)
	group   = regexp.MustCompile(`\A\(\?(:|<[A-Za-z_][A-Za-z0-9_]*>)`)
	escapes = regexp.MustCompile(`\A\\([dDwWsStnrfv^$\\.*+?()\[\]{}|/]|x[0-9A-Fa-f]{2}|[pP]\{[A-Za-z_]+\})`)
	inClass = regexp.MustCompile(`\A\\-`)
	outside = regexp.MustCompile(`\A\\[bB]`)
)

// escape returns the length of the escape that text begins with.
func escape(text string, class bool) (int, error) {
	found := escapes.FindString(text)
	if found == "" && class {
		found = inClass.FindString(text)
	}
	if found == "" && !class {
		found = outside.FindString(text)
	}
	if found == "" {
		return 0, fmt.Errorf("the escape %q is not supported", text[:min(2, len(text))])
	}
	return len(found), nil
}

// emptyClass skips a '^': RE2 takes a ']' right behind it as a character and
// JavaScript as the end. Both are refused by one of them later.
func emptyClass(text string) int {
	if strings.HasPrefix(text, "[^") {
		return 1
	}
	return 0
}
