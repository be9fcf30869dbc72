package chart

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var codeSpan = regexp.MustCompile("`([^`]+)`")

// firstCells gives the code spans in the first cells of a text's tables.
func firstCells(text string) []string {
	var found []string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || strings.TrimSpace(cells[0]) != "" {
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(cells[1], -1) {
			found = append(found, span[1])
		}
	}
	return found
}

// has tells whether values have a path such as transport.pubsub.
func has(values map[string]any, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	value, is := values[name]
	if !is || !deeper {
		return is
	}
	below, isMap := value.(map[string]any)
	return isMap && has(below, rest)
}

// The chart's README names values that exist, and none is missing: each value of
// the first level, each secret, and each value of a role.
func TestReadme(t *testing.T) {
	t.Parallel()
	text := read(t, chartDir+"/README.md")
	values := readYAML(t, chartDir+"/values.yaml")
	_, text, _ = strings.Cut(text, "\n## Values\n")
	global, text, _ := strings.Cut(text, "\n### Secrets\n")
	secrets, text, _ := strings.Cut(text, "\n### Roles\n")
	roles, _, _ := strings.Cut(text, "\n## ")

	named := firstCells(global)
	for _, path := range named {
		if !has(values, path) {
			t.Errorf("there is no value %s", path)
		}
	}
	for name := range values {
		if !slices.ContainsFunc(named, func(path string) bool { return path == name || strings.HasPrefix(path, name+".") }) {
			t.Errorf("%s is not in the README", name)
		}
	}
	all := values["secrets"].(map[string]any)
	if got := firstCells(secrets); len(got) != len(all)-1 || slices.ContainsFunc(got, func(name string) bool { return !has(all, name) }) {
		t.Errorf("secrets: %v", got)
	}
	described := firstCells(roles)
	for _, role := range []string{"api", "gateway", "deployer", "reconciler", "edgehost"} {
		for name := range values[role].(map[string]any) {
			if !slices.Contains(described, name) {
				t.Errorf("%s.%s is not in the README", role, name)
			}
		}
	}
}

// The schema knows every value of values.yaml and no other: the chart's own
// values pass it, and what it requires is there.
func TestSchemaCoversValues(t *testing.T) {
	t.Parallel()
	schema := readYAML(t, chartDir+"/values.schema.json")
	definitions := schema["$defs"].(map[string]any)
	compared := 0
	var compare func(path string, schema map[string]any, value any)
	compare = func(path string, schema map[string]any, value any) {
		if ref, is := schema["$ref"].(string); is {
			schema = definitions[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
		}
		properties, isObject := schema["properties"].(map[string]any)
		below, isMap := value.(map[string]any)
		if !isObject || !isMap {
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s takes anything", path)
		}
		for name, property := range properties {
			if _, is := below[name]; !is && !slices.Contains([]string{"global", "claims"}, name) {
				t.Errorf("%s.%s has no default", path, name)
			}
			compared++
			compare(path+"."+name, property.(map[string]any), below[name])
		}
	}
	compare("values", schema, readYAML(t, chartDir+"/values.yaml"))
	if compared < 150 {
		t.Errorf("only %d values were compared", compared)
	}
}
