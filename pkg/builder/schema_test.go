package builder

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemaFolder is where the CycloneDX library has the published schemas.
func schemaFolder(t *testing.T) string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "schema")
}

// validSchema validates an SBOM against the schema of CycloneDX 1.6 as published.
func validSchema(t *testing.T, sbom []byte) {
	t.Helper()
	folder := schemaFolder(t)
	compiler := jsonschema.NewCompiler()
	for name, file := range map[string]string{
		"bom-1.6.schema.json": "bom-1.6.schema.json", "spdx.schema.json": "spdx.schema.json", "jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		err = compiler.AddResource("http://cyclonedx.org/schema/"+name, value)
		if err != nil {
			t.Fatal(err)
		}
	}
	schema, err := compiler.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(sbom))
	if err != nil {
		t.Fatal(err)
	}
	err = schema.Validate(value)
	if err != nil {
		t.Errorf("the SBOM is not valid: %v", err)
	}
	broken := bytes.Replace(sbom, []byte(`"type":"library"`), []byte(`"type":"books"`), 1)
	value, err = jsonschema.UnmarshalJSON(bytes.NewReader(broken))
	if err != nil || bytes.Equal(broken, sbom) || schema.Validate(value) == nil {
		t.Errorf("the control: a broken SBOM is valid (%v)", err)
	}
}

// Every licence that is given by its id is one of SPDX's list.
func TestLicenceIdentifiers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(schemaFolder(t), "spdx.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Enum []string }
	err = json.Unmarshal(text, &list)
	if err != nil || len(list.Enum) < 400 {
		t.Fatalf("%d identifiers: %v", len(list.Enum), err)
	}
	for id := range spdx {
		if !slices.Contains(list.Enum, id) {
			t.Errorf("%s is no SPDX identifier", id)
		}
	}
}
