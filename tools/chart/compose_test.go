package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose reads compose.yaml as Docker would with these profiles.
func compose(t *testing.T, profile string) *types.Project {
	t.Helper()
	folder, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	profiles := []string{}
	environment := types.Mapping{"EDGE_WORKERS_USER": "1001:1001"}
	if profile != "" {
		profiles = append(profiles, profile)
		environment["COMPOSE_PROFILES"] = profile
	}
	project, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  folder,
		ConfigFiles: []types.ConfigFile{{Filename: filepath.Join(folder, "compose.yaml")}},
		Environment: environment,
	}, func(o *loader.Options) { o.Profiles = profiles })
	if err != nil {
		t.Fatal(err)
	}
	return project
}

var ours = []string{"api", "deployer", "reconciler", "edgehost"}

// The transport and what runs follow the profile; the programs accept their
// environment; nothing listens outside of this machine.
func TestCompose(t *testing.T) {
	t.Parallel()
	known := settings(t)
	for profile, want := range map[string][]string{
		"":       {"api", "edgehost"},
		"pubsub": {"api", "deployer", "edgehost", "pubsub", "pubsub-setup", "reconciler"},
		"sqs":    {"api", "deployer", "edgehost", "reconciler", "sqs"},
	} {
		project := compose(t, profile)
		want = append(want, "bucket", "edge-workers-artifacts", "mariadb", "ready", "redis")
		slices.Sort(want)
		if got := project.ServiceNames(); !slices.Equal(got, want) {
			t.Errorf("profile %q: %v, want %v", profile, got, want)
		}
		for name, service := range project.Services {
			for _, port := range service.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s listens on %+v", name, port)
				}
			}
			if service.Privileged || service.NetworkMode == "host" || service.Image == "" || strings.HasSuffix(service.Image, ":latest") || !strings.Contains(service.Image, ":") {
				t.Errorf("%s: image %q, privileged or on the machine's network", name, service.Image)
			}
			if !slices.Contains(ours, name) {
				continue
			}
			variables := map[string]string{}
			for variable, value := range service.Environment {
				if _, is := known[variable]; !is && !slices.Contains(foreign, variable) {
					t.Errorf("%s has %s, which is no setting", name, variable)
				}
				variables[variable] = *value
			}
			if name != "edgehost" && variables["DEFAULT_BACKGROUND_WORKER_TYPE"] != cmpOr(profile, "legacy") {
				t.Errorf("profile %q: %s has the transport %s", profile, name, variables["DEFAULT_BACKGROUND_WORKER_TYPE"])
			}
			out, err := check(t, name, variables)
			if err != nil {
				t.Errorf("profile %q: %s: %v\n%s", profile, name, err, out)
			}
			checkComposed(t, name, service)
		}
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// checkComposed: what the chart's pods have, as far as Docker knows it (S1-257).
func checkComposed(t *testing.T, name string, service types.ServiceConfig) {
	t.Helper()
	if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) || service.Build == nil || service.Build.Target != name {
		t.Errorf("%s: read-only %v, capabilities dropped %v, build %+v", name, service.ReadOnly, service.CapDrop, service.Build)
	}
	want := map[string]time.Duration{"api": 100 * time.Second, "deployer": 3600 * time.Second, "reconciler": 100 * time.Second, "edgehost": 70 * time.Second}[name]
	if service.StopGracePeriod == nil || time.Duration(*service.StopGracePeriod) != want {
		t.Errorf("%s ends within %v, want %v", name, service.StopGracePeriod, want)
	}
	if name != "edgehost" && service.User != "1001:1001" {
		t.Errorf("%s runs as %q", name, service.User)
	}
}

// The programs know the artifact store by one name, which is fixed when they
// are built: it is that of the service (S0-16).
func TestComposeArtifactStore(t *testing.T) {
	t.Parallel()
	const origin = "http://edge-workers-artifacts:9000"
	if !strings.Contains(read(t, root+"/pkg/config/artifacts.go"), `artifactsOrigin = "`+origin+`"`) {
		t.Fatalf("%s is not the programs' own", origin)
	}
	project := compose(t, "")
	api := project.Services["api"]
	if got := *api.Environment["EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"]; got != origin {
		t.Errorf("the api looks for it at %s", got)
	}
	store, is := project.Services["edge-workers-artifacts"]
	if !is || store.HealthCheck == nil {
		t.Errorf("no such service, or nobody asks for its health")
	}
}

// Every service that others wait for can be asked, and `ready` asks all programs.
func TestComposeHealth(t *testing.T) {
	t.Parallel()
	project := compose(t, "sqs")
	for name, service := range project.Services {
		for on, dependency := range service.DependsOn {
			if dependency.Condition == types.ServiceConditionHealthy && project.Services[on].HealthCheck == nil {
				t.Errorf("%s waits for the health of %s, which nobody asks for", name, on)
			}
		}
	}
	ready := project.Services["ready"]
	asked := strings.Join(ready.HealthCheck.Test, " ") + *ready.Environment["ASKED"]
	for _, name := range ours {
		if !strings.Contains(asked, name) {
			t.Errorf("nobody asks %s", name)
		}
	}
}

// The emulators' queues have the limits of the definitions for production.
func TestComposeBrokers(t *testing.T) {
	t.Parallel()
	conf := read(t, root+"/compose/elasticmq.conf")
	for _, text := range []string{"defaultVisibilityTimeout = 120 seconds", "maxReceiveCount = 5"} {
		if !strings.Contains(conf, text) {
			t.Errorf("compose/elasticmq.conf has no %q", text)
		}
	}
	setup := strings.Join(compose(t, "pubsub").Services["pubsub-setup"].Command, " ")
	for _, text := range []string{`"ackDeadlineSeconds": 60`, `"minimumBackoff": "10s", "maximumBackoff": "600s"`, `"maxDeliveryAttempts": 5`} {
		if !strings.Contains(setup, text) {
			t.Errorf("pubsub-setup has no %s", text)
		}
	}
	if _, err := os.Stat(root + "/compose/keys/.gitignore"); err != nil { // keys are made by whoever starts it
		t.Error(err)
	}
}
