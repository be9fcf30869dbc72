package project

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Language is the language that a project is written in.
type Language string

// The languages.
const (
	JavaScript Language = "javascript"
	TypeScript Language = "typescript"
)

// The range of compatibility dates. The last one is the newest that the pinned
// workerd accepts; a later one would build here and not start there.
const (
	MinCompatibilityDate = "2024-01-01"
	MaxCompatibilityDate = "2026-11-24"
)

// Manifest is worker.json.
type Manifest struct {
	SchemaVersion     int         `json:"schema_version"`
	Name              string      `json:"name"`
	Language          Language    `json:"language"`
	Entry             string      `json:"entry"`
	CompatibilityDate string      `json:"compatibility_date"`
	Operations        []Operation `json:"operations"`
}

// Operation is one thing that a Worker does: an id that callers name, and the
// method and path under which the gateway offers it.
type Operation struct {
	ID           string          `json:"id"`
	Method       string          `json:"method"`
	Path         string          `json:"path"`
	Summary      string          `json:"summary,omitempty"`
	InputSchema  json.RawMessage `json:"input_schema,omitempty"`
	OutputSchema json.RawMessage `json:"output_schema,omitempty"`
}

//go:embed worker.schema.json
var manifestSchemaText []byte

// ManifestSchema returns the JSON Schema (2020-12) of worker.json, as it is
// published.
func ManifestSchema() []byte { return slices.Clone(manifestSchemaText) }

// MaxManifest bounds the text of worker.json in bytes.
const MaxManifest = 1 << 20

// readManifest finds, parses and validates worker.json. It returns the
// manifest and its canonical text, or leaves problems in found.
func readManifest(files map[string][]byte, found *problems) (*Manifest, []byte) {
	text, ok := files[ManifestName]
	if !ok {
		found.archive(manifestMissing, ManifestName, "%s", missingHint(files))
		return nil, nil
	}
	if len(text) > MaxManifest {
		found.add(manifestInvalid, []any{ManifestName}, "the manifest is longer than 1 MiB")
		return nil, nil
	}
	doc, duplicates, offset, err := parseJSON(text)
	if err != nil {
		at := positionAt(text, offset)
		found.add(manifestInvalid, []any{ManifestName, at.line, at.column}, "invalid JSON: %v", err)
		return nil, nil
	}
	for _, twice := range duplicates {
		found.add(manifestDuplicate, inManifest(twice.loc), "the key is given twice%s", doc.where(twice.offset))
	}
	validate(doc, found)
	if len(found.list) > 0 {
		return nil, nil
	}
	return decodeManifest(doc, files, found)
}

// missingHint names the most common mistake: the folder was packed instead of
// what is in it.
func missingHint(files map[string][]byte) string {
	const text = "the archive has no worker.json at its top"
	var nested []string
	for path := range files {
		if strings.HasSuffix(path, "/"+ManifestName) {
			nested = append(nested, path)
		}
	}
	if len(nested) == 0 {
		return text
	}
	return text + "; it has " + slices.Min(nested) + ": pack what is in the folder, not the folder"
}

// inManifest makes a problem's location inside worker.json.
func inManifest(loc []any) []any { return append([]any{ManifestName}, loc...) }

// where gives the place of an offset for a message.
func (d *Document) where(offset int) string {
	at := positionAt(d.text, offset)
	return fmt.Sprintf(" (line %d, column %d)", at.line, at.column)
}

// whereIs gives the place of a value, or of the nearest value around it.
func (d *Document) whereIs(loc []any) string { return d.where(d.nearest(loc)) }

// nearest is the offset of the value at loc, or of the nearest one around it.
func (d *Document) nearest(loc []any) int {
	for n := len(loc); n > 0; n-- {
		if offset, ok := d.at[pointer(loc[:n])]; ok {
			return offset
		}
	}
	return d.at[pointer(nil)]
}

// decodeManifest fills the struct from a document that the schema accepts and
// checks what a schema cannot say.
func decodeManifest(doc *Document, files map[string][]byte, found *problems) (*Manifest, []byte) {
	text, err := canonical.Transform(doc.text)
	if err != nil {
		found.add(manifestInvalid, []any{ManifestName}, "the manifest has no canonical form: %v", err)
		return nil, nil
	}
	var m Manifest
	err = json.Unmarshal(text, &m)
	if err != nil {
		found.add(manifestInvalid, []any{ManifestName}, "the manifest cannot be read: %v", err)
		return nil, nil
	}
	c := &checker{manifest: &m, doc: doc, found: found}
	c.entry(files)
	c.date()
	c.operations()
	c.schemas()
	return &m, text
}

// checker checks what the manifest's schema cannot say.
type checker struct {
	manifest *Manifest
	doc      *Document
	found    *problems
}

func (c *checker) add(kind string, loc []any, format string, args ...any) {
	c.found.add(kind, inManifest(loc), "%s%s", fmt.Sprintf(format, args...), c.doc.whereIs(loc))
}

func (c *checker) entry(files map[string][]byte) {
	entry := c.manifest.Entry
	if _, ok := files[entry]; !ok {
		c.add(manifestEntry, []any{"entry"}, "the archive has no file %s", entry)
		return
	}
	script := strings.HasSuffix(entry, ".ts") || strings.HasSuffix(entry, ".mts")
	if script != (c.manifest.Language == TypeScript) {
		c.add(manifestEntry, []any{"entry"}, "the language is %s, and %s is not", c.manifest.Language, entry)
	}
}

func (c *checker) date() {
	date := c.manifest.CompatibilityDate
	loc := []any{"compatibility_date"}
	_, err := time.Parse(time.DateOnly, date)
	switch {
	case err != nil:
		c.add(manifestDate, loc, "%s is not a day of the calendar", date)
	case date < MinCompatibilityDate:
		c.add(manifestDate, loc, "%s is before %s, the oldest date that is supported", date, MinCompatibilityDate)
	case date > MaxCompatibilityDate:
		c.add(manifestDate, loc, "%s is after %s, the newest date that the runtime knows", date, MaxCompatibilityDate)
	}
}

// operations checks ids and routes. Two patterns that one request could match
// are refused: which of them ran would depend on an order nobody wrote down.
func (c *checker) operations() {
	ids := map[string]int{}
	for i, op := range c.manifest.Operations {
		if first, ok := ids[op.ID]; ok {
			c.add(manifestConflict, []any{"operations", i, "id"}, "operation %d has the id %s already", first, op.ID)
		} else {
			ids[op.ID] = i
		}
		loc := []any{"operations", i, "path"}
		if fault := badPattern(op.Path); fault != "" {
			c.add(manifestInvalid, loc, "%s", fault)
			continue
		}
		for j, before := range c.manifest.Operations[:i] {
			if op.Method == before.Method && Overlap(op.Path, before.Path) {
				c.add(manifestConflict, loc, "%s %s matches requests that operation %d (%s %s) matches too",
					op.Method, op.Path, j, before.Method, before.Path)
				break
			}
		}
	}
}

func (c *checker) schemas() {
	for i, op := range c.manifest.Operations {
		c.schema(op.InputSchema, []any{"operations", i, "input_schema"})
		c.schema(op.OutputSchema, []any{"operations", i, "output_schema"})
	}
}
