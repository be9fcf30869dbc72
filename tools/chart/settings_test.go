package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// setting is one variable of docs/configuration.md, which is generated from the
// settings themselves.
type setting struct{ secret bool }

var settingHeading = regexp.MustCompile(`(?m)^### ([A-Z0-9_]+)$`)

func settings(t *testing.T) map[string]setting {
	t.Helper()
	text := read(t, root+"/docs/configuration.md")
	found := map[string]setting{}
	places := settingHeading.FindAllStringSubmatchIndex(text, -1)
	for i, at := range places {
		end := len(text)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		section, _, _ := strings.Cut(text[at[1]:end], "\n## ")
		found[text[at[2]:at[3]]] = setting{secret: strings.Contains(section, "\nSecret.\n")}
	}
	if len(found) < 40 || !found["EDGE_WORKERS_DATABASE_URL"].secret || found["EDGE_WORKERS_PROVIDER"].secret {
		t.Fatalf("docs/configuration.md was not understood: %v", found)
	}
	return found
}

// foreign are variables of Go's HTTP client and of AWS's SDK, which no table of
// ours lists.
var foreign = []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}

// Every variable that a pod gets is a setting, and each secret one comes from a
// Secret: no value of a secret is in any manifest.
func TestVariables(t *testing.T) {
	t.Parallel()
	known := settings(t)
	for name, values := range valueSets(t) {
		secrets := 0
		for pod, spec := range pods(decode(t, values)) {
			for _, variable := range spec.Containers[0].Env {
				s, isSetting := known[variable.Name]
				if !isSetting && !slices.Contains(foreign, variable.Name) {
					t.Errorf("%s: %s has %s, which is no setting", name, pod, variable.Name)
				}
				from := variable.ValueFrom
				if s.secret != (from != nil) || (s.secret && (variable.Value != "" || from.SecretKeyRef == nil || from.SecretKeyRef.Name == "" || from.SecretKeyRef.Key == "")) {
					t.Errorf("%s: %s has %s from %+v", name, pod, variable.Name, variable)
				}
				if s.secret {
					secrets++
				} else if variable.Value == "" {
					t.Errorf("%s: %s has an empty %s", name, pod, variable.Name)
				}
			}
		}
		if secrets < 5 {
			t.Errorf("%s: only %d secrets are referred to", name, secrets)
		}
	}
}

// No Secret is made by the chart, and no ConfigMap either.
func TestNoSecretIsMade(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		all := decode(t, values)
		if made := len(of[*corev1.Secret](all)) + len(of[*corev1.ConfigMap](all)); made > 0 {
			t.Errorf("%s: %d", name, made)
		}
	}
}

func env(container corev1.Container) map[string]string {
	found := map[string]string{}
	for _, variable := range container.Env {
		found[variable.Name] = variable.Value
	}
	return found
}

// S1-021, S1-022: with the add-on's profile EDGE_WORKERS_PROVIDER is onprem in
// every process of the control plane; without it it stays cloudflare.
func TestProviderOfEachProfile(t *testing.T) {
	t.Parallel()
	checked := map[string]int{}
	for name, values := range valueSets(t) {
		want := "cloudflare"
		if strings.HasSuffix(name, "-onprem") {
			want = "onprem"
		}
		for _, w := range workloads(decode(t, values)) {
			got, has := env(w.container(t))["EDGE_WORKERS_PROVIDER"]
			if w.role == "edgehost" {
				if has {
					t.Errorf("%s: the edge host is told of a provider", name)
				}
				continue
			}
			checked[want]++
			if got != want {
				t.Errorf("%s: %s has %q", name, w.name, got)
			}
		}
	}
	if checked["cloudflare"] < 8 || checked["onprem"] < 5 {
		t.Errorf("checked: %v", checked)
	}
}

// Only what a role needs: a gateway has no key of the artifact store, deployers
// and reconcilers no listener and no callers, and one process in the cluster
// serves each route.
func TestEachRoleHasItsOwnVariables(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		all := decode(t, values)
		present := roles(all)
		for _, w := range workloads(all) {
			got := env(w.container(t))
			for prefix, owners := range map[string][]string{
				"EDGE_WORKERS_AUTH_":               {"api", "gateway"},
				"EDGE_WORKERS_NPM_":                {"api"},
				"EDGE_WORKERS_LISTEN_ADDR":         {"api", "gateway"},
				"EDGE_WORKERS_R2_":                 {"api", "deployer", "reconciler"},
				"EDGE_WORKERS_ARTIFACTS_":          {"api", "deployer", "reconciler"},
				"EDGE_WORKERS_PUBSUB_SUBSCRIPTION": {"deployer"},
				"PUBSUB_":                          {"deployer"},
				"EDGE_WORKERS_HOST_":               {"edgehost"},
				"EDGE_WORKERS_DATABASE_URL":        {"api", "gateway", "deployer", "reconciler"},
			} {
				for variable := range got {
					if strings.HasPrefix(variable, prefix) && !slices.Contains(owners, w.role) {
						t.Errorf("%s: %s has %s", name, w.name, variable)
					}
				}
			}
			wantRoles := map[string]string{"api": "management,gateway", "gateway": "gateway"}[w.role]
			if w.role == "api" && slices.Contains(present, "gateway") {
				wantRoles = "management"
			}
			if got["EDGE_WORKERS_ROLES"] != wantRoles {
				t.Errorf("%s: %s serves %q, want %q", name, w.name, got["EDGE_WORKERS_ROLES"], wantRoles)
			}
			if got["DEFAULT_BACKGROUND_WORKER_TYPE"] != transportOf(values) && w.role != "edgehost" {
				t.Errorf("%s: %s has the transport %q", name, w.name, got["DEFAULT_BACKGROUND_WORKER_TYPE"])
			}
		}
	}
}

func transportOf(values map[string]any) string {
	transport, ok := values["transport"].(map[string]any)
	if !ok {
		return "legacy" // S1-250
	}
	return transport["type"].(string)
}

// samples are values that a Secret could hold.
var samples = map[string]string{
	"EDGE_WORKERS_DATABASE_URL":                "user:password@tcp(database:3306)/edge_workers",
	"EDGE_WORKERS_REDIS_URL":                   "rediss://:password@redis:6379/0",
	"EDGE_WORKERS_CLOUDFLARE_API_TOKEN":        "0123456789012345678901234567890123456789",
	"EDGE_WORKERS_R2_ACCESS_KEY_ID":            "0123456789",
	"EDGE_WORKERS_R2_SECRET_ACCESS_KEY":        "0123456789",
	"EDGE_WORKERS_EDGE_HOST_API_TOKEN":         "0123456789abcdef",
	"EDGE_WORKERS_HOST_API_TOKEN":              "0123456789abcdef",
	"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID":     "0123456789",
	"EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY": "0123456789",
}

// check runs a program's own --check-config in exactly this environment, and
// with what follows its flags.
func check(t *testing.T, program string, variables map[string]string, arguments ...string) (string, error) {
	t.Helper()
	folder, err := filepath.Abs(root + "/bin")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(folder, program), append([]string{"--check-config"}, arguments...)...)
	command.Env = []string{}
	for name, value := range variables {
		command.Env = append(command.Env, name+"="+value)
	}
	out, err := command.CombinedOutput()
	return string(out), err
}

func programOf(role string) string {
	if role == "gateway" {
		return "api"
	}
	return role
}

// The programs themselves accept what the chart gives them, as `helm test` asks
// them in the cluster. bin/ is of `make build`.
func TestProgramsAcceptTheirSettings(t *testing.T) {
	t.Parallel()
	accepted := 0
	for name, values := range valueSets(t) {
		for _, w := range workloads(decode(t, values)) {
			if _, err := os.Stat(filepath.Join(root, "bin", programOf(w.role))); err != nil {
				t.Fatalf("%v: run `make build` first", err)
			}
			variables := env(w.container(t))
			for _, variable := range w.container(t).Env {
				if variable.ValueFrom != nil {
					variables[variable.Name] = samples[variable.Name]
				}
			}
			out, err := check(t, programOf(w.role), variables)
			if err != nil {
				t.Errorf("%s: %s: %v\n%s", name, w.name, err, out)
			}
			accepted++
		}
	}
	if accepted < 17 {
		t.Errorf("only %d environments were checked", accepted)
	}
	// The positive control: the program does look.
	out, err := check(t, "api", map[string]string{"EDGE_WORKERS_DATABSE_URL": "x"})
	if err == nil || !strings.Contains(out, "EDGE_WORKERS_DATABASE_URL") {
		t.Errorf("a misspelt variable is taken: %s", out)
	}
}
