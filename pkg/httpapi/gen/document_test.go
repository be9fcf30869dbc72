package gen_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A failure here means: run `make generate` after changing openapi.yaml.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	header := string(read(t, "api.gen.go"))
	for name, content := range map[string][]byte{"openapi.yaml": read(t, "../openapi.yaml"), "openapi.json": gen.Document()} {
		found := regexp.MustCompile(`(?m)^// ` + regexp.QuoteMeta(name) + ` sha256: ([0-9a-f]{64})$`).FindStringSubmatch(header)
		if found == nil {
			t.Errorf("the generated types do not name the digest of %s", name)
			continue
		}
		if found[1] != canonical.SHA256(content) {
			t.Errorf("the derived files are older than %s", name)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	routes, err := gen.Routes()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	ids := map[string]bool{}
	for _, route := range routes {
		got = append(got, route.Method+" "+route.Path)
		if route.OperationID == "" || ids[route.OperationID] {
			t.Errorf("%s %s has the operation id %q, empty or taken", route.Method, route.Path, route.OperationID)
		}
		ids[route.OperationID] = true
	}
	want := []string{
		"GET /company/audit",
		"GET /company/departments",
		"GET /company/departments/:department_id",
		"POST /company/departments/:department_id/repairs",
		"GET /docs",
		"GET /openapi.json",
		"DELETE /platform/companies/:company_id",
		"PUT /platform/companies/:company_id",
		"DELETE /platform/departments/:department_id",
		"PUT /platform/departments/:department_id",
		"GET /platform/maintenance",
		"GET /platform/maintenance/differences",
		"DELETE /platform/maintenance/fence",
		"PUT /platform/maintenance/fence",
		"DELETE /platform/maintenance/restore",
		"PUT /platform/maintenance/restore",
		"DELETE /platform/maintenance/resync",
		"PUT /platform/maintenance/resync",
		"GET /schemas/worker.json",
		"DELETE /w/:script_name/*",
		"GET /w/:script_name/*",
		"PATCH /w/:script_name/*",
		"POST /w/:script_name/*",
		"PUT /w/:script_name/*",
		"GET /worker",
		"GET /worker/access-policy",
		"PUT /worker/access-policy",
		"POST /worker/access-policy/api-key/revoke",
		"POST /worker/access-policy/api-key/rotate",
		"GET /worker/audit",
		"POST /worker/deployments",
		"GET /worker/deployments/:ticket_id",
		"POST /worker/invoke/:operation_id",
		"GET /worker/operation-settings",
		"PUT /worker/operation-settings",
		"POST /worker/operation-settings/:operation_id/api-key/revoke",
		"POST /worker/operation-settings/:operation_id/api-key/rotate",
		"DELETE /worker/runtime-config",
		"GET /worker/runtime-config",
		"PUT /worker/runtime-config",
		"GET /worker/secrets",
		"DELETE /worker/secrets/:name",
		"PUT /worker/secrets/:name",
		"GET /worker/service-accounts",
		"DELETE /worker/service-accounts/:service_account_id/credentials",
		"PUT /worker/service-accounts/:service_account_id/credentials",
		"GET /worker/versions",
		"POST /worker/versions",
		"GET /worker/versions/:version_id",
		"GET /worker/versions/:version_id/source",
	}
	if !slices.Equal(got, want) {
		t.Errorf("routes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	differences, err := gen.Differences(want)
	if err != nil || len(differences) != 0 {
		t.Errorf("equal routes differ: %q, %v", differences, err)
	}
	differences, err = gen.Differences(append(slices.Clone(want[1:]), "GET /other"))
	wantDifferences := []string{"documented but not served: GET /company/audit", "served but not documented: GET /other"}
	if err != nil || !slices.Equal(differences, wantDifferences) {
		t.Errorf("differences are %q, %v", differences, err)
	}
}

// documented is a schema of the document.
type documented struct{ properties, required, enum []string }

func schema(t testing.TB, name string) documented {
	t.Helper()
	var parsed struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
				Required   []string
				Enum       []string
			}
		}
	}
	if err := json.Unmarshal(gen.Document(), &parsed); err != nil {
		t.Fatal(err)
	}
	found := parsed.Components.Schemas[name]
	var properties []string
	for property := range found.Properties {
		properties = append(properties, property)
	}
	slices.Sort(properties)
	slices.Sort(found.Required)
	return documented{properties, found.Required, found.Enum}
}

func TestTicketSchema(t *testing.T) { // S2-259, S2-260
	t.Parallel()
	keys := []string{"company_id", "department_id", "error_code", "operation", "status", "ticket_id", "version_id", "worker_id"}
	ticket := schema(t, "Ticket")
	if !slices.Equal(ticket.properties, keys) || !slices.Equal(ticket.required, keys) {
		t.Errorf("ticket is documented as %+v", ticket)
	}
	statuses := schema(t, "TicketStatus").enum
	want := []string{"submitting", "pending", "leased", "deploying", "completed", "failed", "cancelled", "uncertain"}
	if !slices.Equal(statuses, want) {
		t.Errorf("statuses are %v, want %v", statuses, want)
	}
	if gen.DeployOperation != "deploy" {
		t.Errorf("operation is %q", gen.DeployOperation)
	}
}

// Every property of an answer is always there, null where it has no value.
func TestAnswersHaveAllTheirKeys(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"Worker": gen.Worker{}, "Version": gen.Version{}, "VersionPage": gen.VersionPage{}, "Ticket": gen.Ticket{},
		"Company": gen.Company{}, "Department": gen.Department{}, "Operation": gen.Operation{},
		"AccessPolicy": gen.AccessPolicy{}, "AccessPolicyKey": gen.AccessPolicyKey{}, "AccessPolicyRevocation": gen.AccessPolicyRevocation{},
		"RuntimeConfig":     gen.RuntimeConfig{Value: json.RawMessage("{}")},
		"OperationSettings": gen.OperationSettings{}, "OperationSetting": gen.OperationSetting{}, "OperationSettingsKey": gen.OperationSettingsKey{},
		"OperationSettingsRevocation": gen.OperationSettingsRevocation{},
		"Secret":                      gen.Secret{}, "SecretList": gen.SecretList{}, "SecretDeletion": gen.SecretDeletion{},
		"ServiceAccount": gen.ServiceAccount{}, "ServiceAccountList": gen.ServiceAccountList{}, "ServiceAccountDeletion": gen.ServiceAccountDeletion{},
		"CodedDetail": gen.CodedDetail{}, "Problem": gen.Problem{}, "Error": gen.Error{},
	} {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		if err := json.Unmarshal(encoded, &keys); err != nil {
			t.Fatal(err)
		}
		var got []string
		for key := range keys {
			got = append(got, key)
		}
		slices.Sort(got)
		want := schema(t, name)
		if !slices.Equal(got, want.properties) || !slices.Equal(want.required, want.properties) {
			t.Errorf("%s encodes %v; documented %+v", name, got, want)
		}
	}
}
