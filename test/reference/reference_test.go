// Package reference keeps docs/errors.md, the published table of every message
// and code, equal to what the code can answer: both are read and compared, so
// that neither has an entry which the other lacks.
package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// answer is one row of the first table.
type answer struct{ status, code, message string }

// statuses are the HTTP statuses of fault kinds, as pkg/httpapi gives them.
var statuses = map[string]string{
	"Malformed": "400", "Unauthenticated": "401", "Forbidden": "403", "NotFound": "404", "Conflict": "409", "TooLarge": "413",
	"UnsupportedType": "415", "Invalid": "422", "RateLimited": "429", "Internal": "500", "Upstream": "502", "Unavailable": "503", "Timeout": "504",
}

// files parses every Go file of the product.
func files(t *testing.T) []*ast.File {
	t.Helper()
	var out []*ast.File
	for _, dir := range []string{"pkg", "models", "transports"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				out = append(out, file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// text gives a string literal, also the pattern of a Sprintf.
func text(e ast.Expr) (string, bool) {
	switch x := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		return s, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		left, ok := text(x.X)
		right, also := text(x.Y)
		return left + right, ok && also
	case *ast.CallExpr:
		if f, ok := x.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Sprintf" {
			return text(x.Args[0])
		}
	}
	return "", false
}

// answers finds every fault.New and fault.Coded with a literal message.
func answers(t *testing.T) []answer {
	t.Helper()
	var out []answer
	for _, file := range files(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "fault" || (f.Sel.Name != "New" && f.Sel.Name != "Coded") {
				return true
			}
			kind, ok := call.Args[0].(*ast.SelectorExpr)
			message, literal := text(call.Args[len(call.Args)-1])
			if !ok || !literal { // the router's own texts
				return true
			}
			found := answer{status: statuses[kind.Sel.Name], message: message}
			if f.Sel.Name == "Coded" {
				found.code, _ = text(call.Args[1])
			}
			if found.status == "" {
				t.Errorf("kind %s has no status", kind.Sel.Name)
			}
			if !slices.Contains(out, found) {
				out = append(out, found)
			}
			return true
		})
	}
	return out
}

// row is a table row of docs/errors.md: cells in back quotes are literal.
var row = regexp.MustCompile(`^\| (.*) \|$`)

// table reads the cells of the table under a heading.
func table(t *testing.T, heading string) [][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "docs", "errors.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(raw), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/errors.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var out [][]string
	for line := range strings.Lines(section) {
		m := row.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || strings.HasPrefix(m[1], "---") {
			continue
		}
		cells := strings.Split(m[1], " | ")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		out = append(out, cells)
	}
	if len(out) < 3 {
		t.Fatalf("the table under %q has %d rows", heading, len(out))
	}
	return out[1:] // without the head
}

// Every refusal that the code can answer stands in the table with its status,
// code and message, word for word, and the table has no other.
func TestAnswersTable(t *testing.T) {
	t.Parallel()
	code := answers(t)
	if len(code) < 40 {
		t.Fatalf("only %d refusals were found in the code", len(code))
	}
	var documented []answer
	for _, cells := range table(t, "Answers of the API") {
		documented = append(documented, answer{cells[0], strings.TrimPrefix(cells[1], "–"), cells[2]})
	}
	for _, a := range code {
		if !slices.Contains(documented, a) {
			t.Errorf("not documented: | %s | `%s` | `%s` |", a.status, a.code, a.message)
		}
	}
	for _, a := range documented {
		if !slices.Contains(code, a) {
			t.Errorf("documented, but nothing answers it: %+v", a)
		}
	}
}

// codeName is how constants of ticket codes are called.
var codeName = regexp.MustCompile(`^[cC]ode[A-Z]`)

// codeValue tells a ticket's code from other constants of such a name.
var codeValue = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// noTicket are the codes of cleanup and control rows, which are no tickets.
var noTicket = regexp.MustCompile(`^Code(NotCommitted|Cleanup.*|Receipt.*|Control.*|WorkerRetired)$`)

// Every error code that a ticket can show stands in the table, and the table
// has no other (S2-273 and the codes of S2's ladder).
func TestTicketCodesTable(t *testing.T) {
	t.Parallel()
	inCode := map[string]bool{}
	for _, file := range files(t) {
		if !slices.Contains([]string{"deploy", "onprem", "cloudflare", "outbox"}, file.Name.Name) {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i < len(spec.Values) && codeName.MatchString(name.Name) {
					value, _ := text(spec.Values[i])
					if codeValue.MatchString(value) && !noTicket.MatchString(name.Name) {
						inCode[value] = true
					}
				}
			}
			return true
		})
	}
	if len(inCode) < 12 {
		t.Fatalf("only %d codes were found in the code", len(inCode))
	}
	documented := map[string]bool{}
	for _, cells := range table(t, "Error codes of a ticket") {
		documented[cells[0]] = true
	}
	for code := range inCode {
		if !documented[code] {
			t.Errorf("not documented: %s", code)
		}
	}
	for code := range documented {
		if !inCode[code] {
			t.Errorf("documented, but no ticket shows it: %s", code)
		}
	}
}
