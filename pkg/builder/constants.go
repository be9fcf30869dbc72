package builder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// staticPrefix is the folder whose files are compiled in as data.
const staticPrefix = "static/"

// constants is what a bundle knows about itself; runtime/src/constants.ts
// reads it.
type constants struct {
	ScriptName        string                     `json:"scriptName"`
	ReleaseGeneration string                     `json:"releaseGeneration"`
	BuilderPolicy     Policy                     `json:"builderPolicy"`
	Entry             string                     `json:"entry"`
	PublicKeys        []publicKey                `json:"publicKeys"`
	Operations        []project.Operation        `json:"operations"`
	StaticData        map[string]json.RawMessage `json:"staticData"`
}

// literal writes the constants as a JavaScript string literal of JSON. An
// object literal would give a key named __proto__ a meaning.
func (c constants) literal() (string, error) {
	text, err := plainJSON(c)
	if err != nil {
		return "", fmt.Errorf("write the constants: %w", err)
	}
	quoted, err := plainJSON(string(text))
	if err != nil {
		return "", fmt.Errorf("quote the constants: %w", err)
	}
	return string(quoted), nil
}

// plainJSON encodes without the escapes for HTML.
func plainJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// staticData is the content of static/.
type staticData struct {
	values map[string]json.RawMessage // by path below static/
	digest string
	files  int
	bytes  int
}

// readStatic compiles the files below static/: *.json as data, others as text.
func readStatic(p *project.Project) (*staticData, []fault.Problem, error) {
	data := &staticData{values: map[string]json.RawMessage{}}
	sums := map[string]string{}
	var problems []fault.Problem
	for _, path := range slices.Sorted(maps.Keys(p.Files)) {
		name, ok := strings.CutPrefix(path, staticPrefix)
		if !ok {
			continue
		}
		content := p.Files[path]
		data.files++
		data.bytes += len(content)
		sums[name] = canonical.SHA256(content)
		value, problem, err := staticValue(path, content)
		if err != nil {
			return nil, nil, err
		}
		if problem != nil {
			problems = append(problems, *problem)
			continue
		}
		data.values[name] = value
	}
	digest, err := canonical.JSONDigest(staticDataDomain, sums)
	data.digest = digest
	return data, problems, err
}

func staticValue(path string, content []byte) (json.RawMessage, *fault.Problem, error) {
	if !strings.HasSuffix(path, ".json") {
		if !utf8.Valid(content) {
			return nil, &fault.Problem{Type: "static_data_invalid", Loc: []any{path}, Msg: "static files must be text in UTF-8"}, nil
		}
		value, err := plainJSON(string(content))
		return value, nil, err
	}
	_, err := project.ParseJSON(content)
	if err != nil {
		problem := jsonProblem("static_data_invalid", path, err)
		return nil, &problem, nil
	}
	var out bytes.Buffer
	err = json.Compact(&out, content)
	return out.Bytes(), nil, err
}
