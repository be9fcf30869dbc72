package config

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// with gives the least environment of an api, changed by the pairs; an empty
// value removes the variable.
func with(pairs ...string) map[string]string {
	environment := map[string]string{
		"EDGE_WORKERS_DATABASE_URL":             "app:" + hidden + "@tcp(db:3306)/edge_workers",
		"EDGE_WORKERS_REDIS_URL":                "redis://:" + hidden + "@redis:6379/0",
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": "/keys/signing.pem",
		"EDGE_WORKERS_AUTH_JWKS_URL":            "https://id.example/keys",
		"EDGE_WORKERS_AUTH_ISSUER":              "https://id.example/",
		"EDGE_WORKERS_AUTH_AUDIENCE":            "edge-workers",
		"PATH":                                  "/bin",
		"HOME":                                  " not ours ",
	}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] == "" {
			delete(environment, pair[0])
		} else {
			environment[pair[0]] = pair[1]
		}
	}
	return environment
}

// S0-02, S1-021, S2-001: cloudflare by default. S1-250: legacy. S1-255, S1-256:
// the limits of lease and drain.
func TestDefaults(t *testing.T) {
	t.Parallel()
	settings, err := Load(with(), API)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Database:  settings.Database,
		Redis:     settings.Redis,
		Provider:  Provider{Name: "cloudflare"},
		Control:   Control{SigningKeyFile: "/keys/signing.pem"},
		Auth:      Auth{JWKSURL: "https://id.example/keys", Issuer: "https://id.example/", Audience: "edge-workers"},
		HTTP:      HTTP{ListenAddr: ":8080", MetricsAddr: ":9090", Roles: []string{"management", "gateway"}},
		Transport: Transport{Type: "legacy", MaxLease: "3300", Drain: "3300"},
		NPM:       NPM{Registry: "https://registry.npmjs.org"},
		Log:       Log{Level: "info"},
	}
	if !reflect.DeepEqual(settings, want) {
		t.Errorf("settings = %+v\nwant %+v", settings, want)
	}
	if settings.Database.URL.Reveal() != "app:"+hidden+"@tcp(db:3306)/edge_workers" || settings.Redis.URL.Reveal() == "" {
		t.Error("the secrets were not read")
	}
	if !settings.HTTP.Serves(Management) || !settings.HTTP.Serves(Gateway) {
		t.Error("a role is off")
	}
	// An empty variable is an unset one.
	empty := with()
	empty["EDGE_WORKERS_LOG_LEVEL"], empty["EDGE_WORKERS_EDGE_HOST_URL"] = "", ""
	again, err := Load(empty, API)
	if err != nil || again.Log.Level != "info" {
		t.Errorf("with empty variables: %q, %v", again.Log.Level, err)
	}
}

// Every variable reaches its field.
func TestEveryVariableIsRead(t *testing.T) {
	t.Parallel()
	environment := map[string]string{}
	for _, name := range Variables() {
		environment[name] = "value of " + name
	}
	var settings Settings
	var host HostSettings
	err := errors.Join(parse(environment, &settings), parse(environment, &host))
	if err != nil {
		t.Fatal(err)
	}
	groups := []reflect.Value{reflect.ValueOf(host.Host)}
	for i := range reflect.TypeFor[Settings]().NumField() {
		groups = append(groups, reflect.ValueOf(settings).Field(i))
	}
	for _, group := range groups {
		for j := range group.NumField() {
			name := group.Type().Field(j).Tag.Get("env")
			var got string
			switch field := group.Field(j).Interface().(type) {
			case string:
				got = field
			case Secret:
				got = field.Reveal()
			case []string:
				got = strings.Join(field, ",")
			default: // the library's parse errors name the field, not the variable
				t.Fatalf("%s has the type %T, whose parse errors need a name", name, field)
			}
			if got != "value of "+name {
				t.Errorf("%s = %q", name, got)
			}
		}
	}
}

// The environment of the process itself is never read.
func TestProcessEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("EDGE_WORKERS_DATABASE_URL", "sqlite:/elsewhere")
	t.Setenv("EDGE_WORKERS_LOG_LEVEL", "error")
	for _, environment := range []map[string]string{nil, {}} {
		var settings Settings
		err := parse(environment, &settings)
		if err != nil || settings.Database.URL.IsSet() || settings.Log.Level != "info" {
			t.Errorf("level %q, database set %t, %v", settings.Log.Level, settings.Database.URL.IsSet(), err)
		}
	}
	// The positive control: given as a map, the same values arrive.
	var settings Settings
	err := parse(Environment([]string{"EDGE_WORKERS_LOG_LEVEL=error", "EDGE_WORKERS_DATABASE_URL=sqlite:/x=y"}), &settings)
	if err != nil || settings.Log.Level != "error" || settings.Database.URL.Reveal() != "sqlite:/x=y" {
		t.Errorf("level %q, %v", settings.Log.Level, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		pairs []string
		says  []string
	}{
		{"misspelt", []string{"EDGE_WORKERS_DATABSE_URL", "x"}, []string{"EDGE_WORKERS_DATABSE_URL is not a setting; did you mean EDGE_WORKERS_DATABASE_URL?"}},
		{"two misspelt", []string{"EDGE_WORKERS_ROLE", "x", "EDGE_WORKERS_LOGLEVEL", "y"}, []string{"EDGE_WORKERS_ROLE is", "EDGE_WORKERS_ROLES?", "EDGE_WORKERS_LOGLEVEL is", "EDGE_WORKERS_LOG_LEVEL?"}},
		{"unheard of", []string{"EDGE_WORKERS_COFFEE_MACHINE", "on"}, []string{"EDGE_WORKERS_COFFEE_MACHINE is not a setting"}},
		{"line end", []string{"EDGE_WORKERS_EDGE_HOST_API_TOKEN", hidden + "\n"}, []string{"EDGE_WORKERS_EDGE_HOST_API_TOKEN begins or ends with white space"}},

		{"no database", []string{"EDGE_WORKERS_DATABASE_URL", ""}, []string{"settings of the api", "EDGE_WORKERS_DATABASE_URL is not set"}},
		{"no file", []string{"EDGE_WORKERS_DATABASE_URL", "sqlite:"}, []string{"EDGE_WORKERS_DATABASE_URL names no file"}},
		{"no DSN", []string{"EDGE_WORKERS_DATABASE_URL", "mysql://app:" + hidden + "@db"}, []string{"EDGE_WORKERS_DATABASE_URL is neither"}},
		{"no database name", []string{"EDGE_WORKERS_DATABASE_URL", "app:" + hidden + "@tcp(db:3306)/"}, []string{"EDGE_WORKERS_DATABASE_URL names no database"}},
		{"no Redis", []string{"EDGE_WORKERS_REDIS_URL", ""}, []string{"EDGE_WORKERS_REDIS_URL is not set"}},
		{"wrong Redis", []string{"EDGE_WORKERS_REDIS_URL", "http://" + hidden + "@redis"}, []string{"EDGE_WORKERS_REDIS_URL must begin with redis://"}},
		{"broken Redis", []string{"EDGE_WORKERS_REDIS_URL", "redis://:" + hidden + "%zz@redis"}, []string{"EDGE_WORKERS_REDIS_URL"}},

		{"no signing key", []string{"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE", ""}, []string{"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE is not set"}},
		{"next key", []string{"EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY", "AAAA"}, []string{"EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY"}},

		{"no keys", []string{"EDGE_WORKERS_AUTH_JWKS_URL", ""}, []string{"EDGE_WORKERS_AUTH_JWKS_URL", "EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"}},
		{"two key sources", []string{"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE", "/k"}, []string{"EDGE_WORKERS_AUTH_JWKS_URL and EDGE_WORKERS_AUTH_LOCAL_KEY_FILE are both set"}},
		{"plain key set", []string{"EDGE_WORKERS_AUTH_JWKS_URL", "http://id.example/keys"}, []string{"EDGE_WORKERS_AUTH_JWKS_URL must begin with https://"}},
		{"key set of a look-alike", []string{"EDGE_WORKERS_AUTH_JWKS_URL", "http://localhost.example/keys"}, []string{"https://"}},
		{"key set with a password", []string{"EDGE_WORKERS_AUTH_JWKS_URL", "https://u:" + hidden + "@id.example/"}, []string{"EDGE_WORKERS_AUTH_JWKS_URL is not"}},
		{"no issuer, no audience", []string{"EDGE_WORKERS_AUTH_ISSUER", "", "EDGE_WORKERS_AUTH_AUDIENCE", ""}, []string{"EDGE_WORKERS_AUTH_ISSUER is not set", "EDGE_WORKERS_AUTH_AUDIENCE is not set"}},

		{"listen address", []string{"EDGE_WORKERS_LISTEN_ADDR", "8080"}, []string{"EDGE_WORKERS_LISTEN_ADDR is not host:port"}},
		{"metrics address", []string{"EDGE_WORKERS_METRICS_ADDR", ":99999"}, []string{"EDGE_WORKERS_METRICS_ADDR is not host:port"}},
		{"one address for both", []string{"EDGE_WORKERS_METRICS_ADDR", ":8080"}, []string{"EDGE_WORKERS_LISTEN_ADDR and EDGE_WORKERS_METRICS_ADDR are both :8080"}},
		{"unknown role", []string{"EDGE_WORKERS_ROLES", "management,admin"}, []string{`EDGE_WORKERS_ROLES must be one of management, gateway, not "admin"`}},
		{"role twice", []string{"EDGE_WORKERS_ROLES", "gateway,gateway"}, []string{"EDGE_WORKERS_ROLES has gateway twice"}},

		{"no transport", []string{"DEFAULT_BACKGROUND_WORKER_TYPE", "kafka"}, []string{`DEFAULT_BACKGROUND_WORKER_TYPE must be one of legacy, pubsub, sqs, batch, not "kafka"`}},

		{"log level", []string{"EDGE_WORKERS_LOG_LEVEL", "INFO"}, []string{"EDGE_WORKERS_LOG_LEVEL"}},
		{"everything at once", []string{"EDGE_WORKERS_LOG_LEVEL", "x", "EDGE_WORKERS_ROLES", "y", "EDGE_WORKERS_REDIS_URL", ""}, []string{"EDGE_WORKERS_LOG_LEVEL", "EDGE_WORKERS_ROLES", "EDGE_WORKERS_REDIS_URL"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			settings, err := Load(with(c.pairs...), API)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if strings.Contains(err.Error(), hidden) {
				t.Errorf("the message holds a secret: %v", err)
			}
			if !reflect.DeepEqual(settings, Settings{}) {
				t.Error("settings came with the error")
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	next := base64.StdEncoding.EncodeToString(make([]byte, ed25519.PublicKeySize))
	none := []string{"EDGE_WORKERS_AUTH_JWKS_URL", "", "EDGE_WORKERS_AUTH_ISSUER", "", "EDGE_WORKERS_AUTH_AUDIENCE", ""}
	cases := []struct {
		name  string
		pairs []string
	}{
		{"a file", []string{"EDGE_WORKERS_DATABASE_URL", "sqlite:/data/state.db"}},
		{"Redis over TLS", []string{"EDGE_WORKERS_REDIS_URL", "rediss://redis:6380/1"}},
		{"Redis on a socket", []string{"EDGE_WORKERS_REDIS_URL", "unix:///run/redis.sock"}},
		{"a local key", append(slices.Clone(none), "EDGE_WORKERS_AUTH_LOCAL_KEY_FILE", "/k")},
		{"a key set on this machine", []string{"EDGE_WORKERS_AUTH_JWKS_URL", "http://127.0.0.1:9000/keys"}},
		{"a key set on this machine, IPv6", []string{"EDGE_WORKERS_AUTH_JWKS_URL", "http://[::1]:9000/keys"}},
		{"one role", []string{"EDGE_WORKERS_ROLES", "gateway"}},
		{"two random ports", []string{"EDGE_WORKERS_LISTEN_ADDR", "127.0.0.1:0", "EDGE_WORKERS_METRICS_ADDR", "127.0.0.1:0"}},
		{"a next key", []string{"EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY", next}},
		{"variables of Kubernetes", []string{
			"EDGE_WORKERS_API_SERVICE_HOST", "10.0.0.1", "EDGE_WORKERS_API_SERVICE_PORT", "80", "EDGE_WORKERS_API_SERVICE_PORT_HTTP", "80",
			"EDGE_WORKERS_API_PORT", "tcp://10.0.0.1:80", "EDGE_WORKERS_API_PORT_80_TCP", "tcp://10.0.0.1:80",
			"EDGE_WORKERS_API_PORT_80_TCP_ADDR", "10.0.0.1", "EDGE_WORKERS_API_PORT_80_TCP_PORT", "80", "EDGE_WORKERS_API_PORT_80_TCP_PROTO", "tcp",
		}},
		{"variables of edgectl and of the edge host", []string{"EDGE_WORKERS_API_URL", "http://x", "EDGE_WORKERS_TOKEN", "t", "EDGE_WORKERS_HOST_ISOLATION", "x"}},
		{"the one transport by its name", []string{"DEFAULT_BACKGROUND_WORKER_TYPE", "legacy"}},
		// S0-22: this must not stop the start.
		{"an invalid provider", []string{"EDGE_WORKERS_PROVIDER", "nobody"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(with(c.pairs...), API)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// S1-011..015, S1-336, S2-242: cadence, batch size, lease TTL and back-off are no
// settings, nor is anything of the host loop.
func TestConstantsAreNoSettings(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`INTERVAL|CADENCE|PERIOD|BATCH_SIZE|MAX_BATCH|LEASE_(TTL|SECONDS)|BACK_?OFF|RETRY|GRACE|BUDGET|RECONCILE|RETIRE`)
	for _, name := range []string{"EDGE_WORKERS_SWEEP_INTERVAL", "ARTIFACT_CLEANUP_MAX_BATCH", "CONTROL_AUDIT_LEASE_SECONDS", "EDGE_WORKERS_BACKOFF", "EDGE_WORKERS_RETIREMENT_LIMIT", "EDGE_WORKERS_HOST_RECONCILE_SECONDS"} {
		if !forbidden.MatchString(name) {
			t.Errorf("the pattern misses %s", name)
		}
	}
	for _, name := range Variables() {
		if forbidden.MatchString(name) && name != "PUBSUB_MAX_LEASE_SECONDS" { // a message's lease, not a row's (S1-255)
			t.Errorf("%s can be set", name)
		}
	}
	// And a variable with such a name changes nothing but the start.
	_, err := Load(with("EDGE_WORKERS_SWEEP_INTERVAL", "1s"), API)
	if err == nil || !strings.Contains(err.Error(), "EDGE_WORKERS_SWEEP_INTERVAL") {
		t.Errorf("error = %v", err)
	}
}

func TestVariablesAreUnique(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	eachField(func(field reflect.StructField) {
		name := field.Tag.Get("env")
		if name == "" || names[name] {
			t.Errorf("%s: variable %q", field.Name, name)
		}
		names[name] = true
	})
	if len(names) != len(Variables()) || len(names) == 0 {
		t.Errorf("%d names, %d variables", len(names), len(Variables()))
	}
}

// What no part of this release reads is no setting: a value there would be
// believed to do something.
func TestNothingIsPromised(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"EDGE_WORKERS_EVIDENCE_BUCKET", "EDGE_WORKERS_PUBSUB_MAX_MESSAGES"} {
		_, err := Load(with(name, "x"), API)
		if err == nil || !strings.Contains(err.Error(), name+" is not a setting") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Load(with("EDGE_WORKERS_EDGE_HOST_IDENTITY", "x"), API) // the positive control
	if err != nil {
		t.Error(err)
	}
}

func TestNextKey(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := Control{NextPublicKey: base64.StdEncoding.EncodeToString(public)}.NextKey()
	if err != nil || !key.Equal(public) {
		t.Errorf("key %x, %v", key, err)
	}
	key, err = Control{}.NextKey()
	if err != nil || key != nil {
		t.Errorf("no key: %x, %v", key, err)
	}
	for _, text := range []string{"?", "AAAA", base64.StdEncoding.EncodeToString(append(slices.Clone(public), 0))} {
		_, err = Control{NextPublicKey: text}.NextKey()
		if err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestLogLevels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		level, err := Log{Level: text}.SlogLevel()
		if err != nil || level != want {
			t.Errorf("%s = %v, %v", text, level, err)
		}
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"abc", "abc"}: 0, {"abc", "abd"}: 1, {"abc", "ab"}: 1, {"ab", "abc"}: 1, {"kitten", "sitting"}: 3, {"", "xyz"}: 3} {
		if got := edits(pair[0], pair[1]); got != want {
			t.Errorf("edits(%q, %q) = %d, want %d", pair[0], pair[1], got, want)
		}
	}
	if got := nearest("EDGE_WORKERS_SOMETHING_ELSE", Variables()); got != "" {
		t.Errorf("nearest = %q", got)
	}
}

// Load changes neither its argument nor what it returned before.
func TestLoadKeepsItsArgument(t *testing.T) {
	t.Parallel()
	environment := with()
	before := maps.Clone(environment)
	_, err := Load(environment, API)
	if err != nil || !maps.Equal(environment, before) {
		t.Errorf("the environment became %q, %v", environment, err)
	}
}
