package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
)

const doorHeader = "X-Edge-Workers-Refusal"

func answering(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func coded(code string) string { return `{"detail":{"code":"` + code + `","message":"m"}}` }

// What reaches the host: the door's path, the token and the input, and what
// the token vouches for.
func TestForwarded(t *testing.T) {
	h := one(t)
	answer, err := h.direct(t.Context(), `{"a":1}`)
	if err != nil || answer.Status != 200 || answer.Body != `{"ok":true}` {
		t.Fatalf("%+v, %v", answer, err)
	}
	script := models.ScriptName(h.Tenant.CompanyID, h.Tenant.DepartmentID)
	want := seen{"POST", "/base/" + script + "/__invoke/echo.say", `{"a":1}`, "Bearer token", "application/json", "req-1"}
	if got := h.requests(); len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	a := h.signer.last
	if a.ScriptName != script || a.Generation != h.version.ReleaseGeneration || a.Operation != "echo.say" || string(a.Body) != `{"a":1}` || a.Caller.Subject != "user:x" {
		t.Errorf("%+v", a)
	}
	h.signer.err = errors.New("no key")
	if _, err := h.direct(t.Context(), "{}"); err == nil || fault.KindOf(err) != fault.Internal || len(h.requests()) != 1 {
		t.Errorf("unsigned: %v", err)
	}
}

// The Worker's and the host's answers pass as they are, author's codes that
// read like the door's included; what is no answer does not.
func TestAnswers(t *testing.T) {
	h := one(t)
	for _, c := range []struct {
		status int
		body   string
	}{
		{200, `{"a":1}`}, {200, `null`}, {201, `[]`}, {204, ""}, {400, coded("x")}, {404, coded("order_not_found")}, {404, `{"detail":"Not Found"}`},
		{422, `{"detail":[{"type":"t","loc":["body"],"msg":"m"}]}`}, {499, coded("y")}, {500, coded("operation_failed")}, {503, coded("worker_busy")},
		{409, coded("release_generation_mismatch")}, {401, coded("assertion_invalid")}, {403, coded("assertion_audience")}, {409, coded("assertion_replayed")},
	} {
		h.say(answering(c.status, c.body))
		answer, err := h.direct(t.Context(), "{}")
		if err != nil || answer.Status != c.status || answer.Body != c.body {
			t.Errorf("%d %s: %+v, %v", c.status, c.body, answer, err)
		}
	}
	for _, media := range []string{"text/html", "", "application/jsonx"} { // not a Worker's
		h.say(answering(200, "<html>", "Content-Type", media))
		_, err := h.direct(t.Context(), "{}")
		refused(t, media, err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	}
	for _, c := range []struct {
		status int
		body   string
	}{{302, ""}, {304, ""}, {404, "not JSON"}, {500, ""}, {502, "<html>"}, {301, `{"detail":"x"}`}} {
		h.say(answering(c.status, c.body, "Location", "http://127.0.0.1:1/"))
		_, err := h.direct(t.Context(), "{}")
		refused(t, fmt.Sprint(c.status, c.body), err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	}
}

// What the door marks as its own speaks of our channel and never passes for the
// Worker's answer, whatever its status and code.
func TestDoorRefusals(t *testing.T) {
	h := one(t)
	for _, c := range []struct {
		status     int
		body, code string
	}{
		{409, coded("release_generation_mismatch"), "worker_changing"}, {401, coded("assertion_invalid"), "worker_unreachable"},
		{403, coded("assertion_audience"), "worker_unreachable"}, {409, coded("assertion_replayed"), "worker_unreachable"},
		{418, coded("something_new"), "worker_unreachable"}, {200, `{}`, "worker_unreachable"}, {401, `{"detail":"text"}`, "worker_unreachable"}, {401, "", "worker_unreachable"},
	} {
		h.say(answering(c.status, c.body, doorHeader, "door"))
		answer, err := h.direct(t.Context(), "{}")
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != c.code || answer.Status != 0 || strings.Contains(f.Message, "assertion") {
			t.Errorf("%d %s: %+v, %v", c.status, c.body, answer, err)
		}
	}
	h.say(answering(404, coded("worker_not_found"), doorHeader, "host")) // between two versions
	_, err := h.direct(t.Context(), "{}")
	refused(t, "no script at the host", err, fault.Unavailable, "worker_changing", "The Worker is being changed; try again")
	for _, c := range []struct {
		header []string
		code   string
	}{{nil, "worker_not_found"}, {[]string{doorHeader, "host"}, "worker_crashed"}} { // an author's own, and what a caller is told
		h.say(answering(404, coded(c.code), c.header...))
		answer, err := h.direct(t.Context(), "{}")
		if err != nil || answer.Status != 404 {
			t.Errorf("%s: %+v, %v", c.code, answer, err)
		}
	}
}

// Bounds of input and output, at and over.
func TestSizes(t *testing.T) {
	h := one(t)
	sized := func(n int) string { return `"` + strings.Repeat("a", n-2) + `"` }
	_, err := h.direct(t.Context(), sized(gateway.MaxInput))
	must(t, err)
	before := len(h.requests())
	_, err = h.direct(t.Context(), sized(gateway.MaxInput+1))
	refused(t, "input", err, fault.TooLarge, "", "Request body is too large")
	if len(h.requests()) != before {
		t.Error("an input that is too large was sent")
	}
	h.say(answering(200, sized(8<<20)))
	answer, err := h.direct(t.Context(), "{}")
	if err != nil || len(answer.Body) != 8<<20 {
		t.Errorf("8 MiB: %v", err)
	}
	h.say(answering(200, sized(8<<20+1)))
	_, err = h.direct(t.Context(), "{}")
	refused(t, "output", err, fault.Upstream, "worker_output_too_large", "The Worker's answer is larger than 8 MiB")
}

// An invocation may have written: a connection that breaks, before or inside
// the answer, is not tried again.
func TestOneAttempt(t *testing.T) {
	h := one(t)
	_, err := h.direct(t.Context(), "{}") // the connection is kept and used again
	must(t, err)
	for name, answer := range map[string]http.HandlerFunc{
		"reset before the answer": func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"reset inside the answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"a":`))
			panic(http.ErrAbortHandler)
		},
	} {
		h.say(answer)
		before := len(h.requests())
		_, err := h.direct(t.Context(), "{}")
		refused(t, name, err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
		if n := len(h.requests()) - before; n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// A Worker that does not answer in time is a 504 of its own; a caller that goes
// away is not.
func TestTimeLimits(t *testing.T) {
	h := one(t)
	if gateway.InvokeTimeout != time.Minute {
		t.Errorf("%v", gateway.InvokeTimeout)
	}
	arrived, release := make(chan struct{}, 4), make(chan struct{})
	t.Cleanup(func() { close(release) })
	stall := func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	h.say(stall)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	in, err := h.gate.Direct(t.Context(), h.Tenant, "echo.say", nil, h.caller)
	must(t, err)
	_, err = h.send(ctx, in)
	refused(t, "silence", err, fault.Timeout, "worker_timeout", "The Worker did not answer in time")
	<-arrived
	h.say(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		stall(w, r)
	})
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = h.send(ctx, in)
	refused(t, "silence inside the answer", err, fault.Timeout, "worker_timeout", "The Worker did not answer in time")
	<-arrived
	gone, leave := context.WithCancel(t.Context())
	h.say(func(w http.ResponseWriter, r *http.Request) { leave(); stall(w, r) })
	_, err = h.send(gone, in)
	refused(t, "the caller left", err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	if n := len(h.requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
}

// No host at all, addresses that are none, and missing parts.
func TestParams(t *testing.T) {
	h := one(t)
	if _, err := gateway.New(gateway.Params{DispatchURL: "http://host"}); err == nil {
		t.Error("a gateway without its parts")
	}
	params := gateway.Params{DB: h.DB, Signer: h.signer, Failures: gateway.NewFailures(h.Redis, h.Log)}
	for _, bad := range []string{"", "host:1", "ftp://host", "http://", "http://host?x=1", "http://ho st", "/path"} {
		params.DispatchURL = bad
		if _, err := gateway.New(params); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	params.DispatchURL = "http://127.0.0.1:1"
	gate, err := gateway.New(params)
	must(t, err)
	in, err := gate.Direct(t.Context(), h.Tenant, "echo.say", nil, h.caller)
	must(t, err)
	_, err = gate.Send(t.Context(), in)
	refused(t, "nobody listens", err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	if !json.Valid(in.Input) || string(in.Input) != "{}" {
		t.Errorf("input %s", in.Input)
	}
}
