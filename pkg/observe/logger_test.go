package observe

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// lines decodes what was logged.
func lines(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(out.String()) {
		var object map[string]any
		err := json.Unmarshal([]byte(line), &object)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, object)
	}
	return all
}

func TestSensitiveAttributesAreRedacted(t *testing.T) {
	t.Parallel()
	const value = "hunter2"
	cases := []struct {
		key     string
		visible bool
	}{
		{"token", false}, {"Token", false}, {"api_token", false}, {"APIToken", false}, {"manager-token", false},
		{"secret", false}, {"client_secret", false}, {"Authorization", false}, {"password", false},
		{"db_password", false}, {"credentials", false}, {"cookie", false},
		{"worker_id", true}, {"company", true}, {"pass", true}, {"author", true},
	}
	for _, c := range cases {
		var out bytes.Buffer
		log := NewLogger(&out, slog.LevelInfo)
		log.Info("one", slog.String(c.key, value))
		log.With(slog.String(c.key, value)).Info("two")
		log.Info("three", slog.Group("request", slog.Any(c.key, map[string]string{"x": value})))
		log.WithGroup(c.key).Info("four", slog.String("x", value))
		want := 0
		if c.visible {
			want = 4
		}
		if got := strings.Count(out.String(), value); got != want {
			t.Errorf("%s: the value shows %d times, want %d:\n%s", c.key, got, want, out.String())
		}
		if got := strings.Count(out.String(), redacted); got != 4-want {
			t.Errorf("%s: redacted %d times, want %d:\n%s", c.key, got, 4-want, out.String())
		}
	}
}

func TestLinesAreJSONInUTC(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	record := slog.NewRecord(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 8*3600)), slog.LevelWarn, "a \"message\"\n", 0)
	record.AddAttrs(slog.Int("n", 7))
	err := log.Handler().Handle(t.Context(), record)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, &out)[0]
	for key, want := range map[string]any{"time": "2026-01-01T19:04:05Z", "level": "WARN", "msg": "a \"message\"\n", "n": 7.0} {
		if got[key] != want {
			t.Errorf("%s = %v, want %v", key, got[key], want)
		}
	}
}

func TestLevel(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	level := new(slog.LevelVar)
	log := NewLogger(&out, level)
	log.Debug("no")
	log.Info("yes")
	level.Set(slog.LevelDebug)
	log.Debug("now")
	got := lines(t, &out)
	if len(got) != 2 || got[0]["msg"] != "yes" || got[1]["msg"] != "now" {
		t.Errorf("lines = %v", got)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, slog.LevelInfo)
	ctx := WithRequestID(t.Context(), "r-1")
	log.InfoContext(t.Context(), "outside")
	log.InfoContext(ctx, "inside")
	log.With(slog.String("a", "b")).InfoContext(ctx, "with")
	log.WithGroup("g").InfoContext(ctx, "group")
	got := lines(t, &out)
	if _, has := got[0]["request_id"]; has {
		t.Errorf("an id outside a request: %v", got[0])
	}
	if got[1]["request_id"] != "r-1" || got[2]["request_id"] != "r-1" || got[2]["a"] != "b" {
		t.Errorf("lines = %v", got)
	}
	group, _ := got[3]["g"].(map[string]any)
	if group["request_id"] != "r-1" {
		t.Errorf("line = %v", got[3])
	}
	if RequestID(ctx) != "r-1" || RequestID(t.Context()) != "" {
		t.Error("RequestID")
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	if Discard().Enabled(t.Context(), slog.LevelError) {
		t.Error("the discarding logger wants lines")
	}
}
