package transports_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

// S1-051, S1-253, S1-262: function and four arguments in the seed's order, the
// job's id being the message's.
func TestDeploy(t *testing.T) {
	t.Parallel()
	m := transports.Deploy("o", "c", "d", "m")
	raw, err := json.Marshal(m)
	if err != nil || string(raw) != `{"job_id":"m","function":"run_edge_worker_deployment","args":["o","c","d","m"]}` || m.Validate() != nil {
		t.Errorf("%s, %v, %v", raw, err, m.Validate())
	}
}

// S1-052, S1-053: any other form is malformed.
func TestValidate(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*transports.Message){
		"another function": func(m *transports.Message) { m.Function = "os.system" },
		"no function":      func(m *transports.Message) { m.Function = "" },
		"no arguments":     func(m *transports.Message) { m.Args = nil },
		"three":            func(m *transports.Message) { m.Args = m.Args[1:] },
		"five":             func(m *transports.Message) { m.Args = append(m.Args, "x") },
		"first empty":      func(m *transports.Message) { m.Args[0] = "" },
		"second empty":     func(m *transports.Message) { m.Args[1] = "" },
		"third empty":      func(m *transports.Message) { m.Args[2] = "" },
		"fourth empty":     func(m *transports.Message) { m.Args[3], m.JobID = "", "" },
		"another job":      func(m *transports.Message) { m.JobID = "x" },
		"no job":           func(m *transports.Message) { m.JobID = "" },
	} {
		m := transports.Deploy("o", "c", "d", "m")
		m.Args = slices.Clone(m.Args)
		change(&m)
		if err := m.Validate(); !errors.Is(err, transports.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, raw := range []string{`{"job_id":"m","function":"run_edge_worker_deployment","args":["o",null,"d","m"]}`, `{}`} {
		var m transports.Message
		if err := json.Unmarshal([]byte(raw), &m); err != nil || !errors.Is(m.Validate(), transports.ErrMalformed) {
			t.Errorf("%s: %v, %v", raw, err, m.Validate())
		}
	}
	for _, raw := range []string{`{"args":["o",["c"],"d","m"]}`, `{"args":["o",{},"d","m"]}`, `{"args":"o"}`} {
		var m transports.Message
		if err := json.Unmarshal([]byte(raw), &m); err == nil {
			t.Errorf("%s was read", raw)
		}
	}
}

// A message survives its encoding, a newer sender's members are passed over,
// and what cannot be run is malformed, with nothing of it in the error.
func TestDecode(t *testing.T) {
	t.Parallel()
	raw, err := transports.Deploy("o", "c", "d", "m").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(raw), " " + string(raw) + "\n", `{"trace":{"id":1},` + string(raw[1:])} {
		m, err := transports.Decode([]byte(text))
		if err != nil || m.JobID != "m" || m.Args[0] != "o" {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	for i, poison := range transporttest.Poison() {
		_, err := transports.Decode(poison)
		if !errors.Is(err, transports.ErrMalformed) || strings.Contains(err.Error(), transporttest.Canary) {
			t.Errorf("poison %d: %v", i, err)
		}
	}
	if _, err = (transports.Message{}).Encode(); !errors.Is(err, transports.ErrMalformed) {
		t.Errorf("nothing was encoded: %v", err)
	}
}

// S1-255 to S1-257: the seed's constants; a drain ends before the kill.
func TestConsumerLimits(t *testing.T) {
	t.Parallel()
	if transports.DefaultMaxLease != 3300*time.Second || transports.DefaultDrain != 3300*time.Second || transports.ShutdownGrace != 3600*time.Second {
		t.Error("another limit")
	}
}
