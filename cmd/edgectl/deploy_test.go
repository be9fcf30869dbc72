package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/project"
)

func packedSize(t testing.TB, folder string) int {
	t.Helper()
	archive, err := project.Pack(folder)
	if err != nil {
		t.Fatal(err)
	}
	return len(archive)
}

func TestDeployAndWait(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "submitting", "pending", "pending", "leased", "deploying", "deploying", "completed")
	folder := projectFolder(t)
	against(b).run(t, "deploy", folder, "--wait").want(t, exitOK,
		"completed: version v3, revision 3, is live (6.0s)\n",
		fmt.Sprintf("pack        %d bytes (0.0s)\n", packedSize(t, folder))+`submit      version v3, revision 3, bundle 2048 bytes (0.0s)
deploy      ticket t1 (0.0s)
submitting  (1.0s)
pending     (2.0s)
leased      (1.0s)
deploying   (2.0s)
`)
	if got := b.body("POST /worker/deployments"); got != `{"base_revision":3,"version_id":"v3"}` {
		t.Errorf("deployment request %s", got)
	}
	archive, err := project.Pack(folder)
	if err != nil || string(b.archive) != string(archive) {
		t.Errorf("the submitted bytes are not the packed ones: %v", err)
	}
}

func TestDeployWithoutWaiting(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	r := against(b).run(t, "deploy", projectFolder(t))
	if r.code != exitOK || r.out != "ticket t1 is submitting; follow it with `edgectl status --ticket t1 --wait`\n" {
		t.Errorf("exit %d\n%s", r.code, r.out)
	}
	if slices.Contains(b.seen(), "GET /worker/deployments/t1") {
		t.Error("the ticket was polled")
	}
	r = against(b).run(t, "deploy", projectFolder(t), "--json")
	var got deployment
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Ticket.TicketID != "t1" || got.Version.ID != "v3" {
		t.Errorf("%s, %v", r.out, err)
	}
}

func TestDeployExitCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		statuses []string
		code     string
		args     []string
		exit     int
		text     string
	}{
		{[]string{"completed"}, "", nil, exitOK, ""},
		{[]string{"leased", "failed"}, "artifact_integrity_failed", nil, exitFailed, "Error: the deployment failed (artifact_integrity_failed): line 1"},
		{[]string{"cancelled"}, "", nil, exitFailed, "Error: the deployment was cancelled"},
		{[]string{"deploying", "uncertain", "completed"}, "worker_readiness_timeout", nil, exitUncertain, "Error: the deployment is paused and waits for the company's repair"},
		{[]string{"deploying", "uncertain", "leased", "completed"}, "", []string{"--wait-uncertain"}, exitOK, ""},
		{[]string{"uncertain", "failed"}, "worker_deleted", []string{"--wait-uncertain"}, exitFailed, "Error: the deployment failed (worker_deleted)"},
	} {
		b := newBackend(t, c.statuses...)
		b.errorCode = c.code
		r := against(b).run(t, append([]string{"deploy", projectFolder(t), "--wait"}, c.args...)...)
		if r.code != c.exit || !strings.Contains(r.err, c.text) || (c.exit == exitOK) != strings.HasPrefix(r.out, "completed: ") {
			t.Errorf("%v: exit %d, want %d\n%s%s", c.statuses, r.code, c.exit, r.out, r.err)
		}
	}
}

// An uncertain ticket is told as a pause, never as an end.
func TestUncertainIsNotAnEnd(t *testing.T) { // S2-265
	t.Parallel()
	b := newBackend(t, "uncertain")
	r := against(b).run(t, "deploy", projectFolder(t), "--wait", "--json")
	var got deployment
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || got.Ticket.Status != "uncertain" {
		t.Errorf("%s, %v", r.out, err)
	}
	for _, word := range []string{"failed", "completed"} {
		if strings.Contains(r.out+r.err, word) {
			t.Errorf("the output says %q:\n%s%s", word, r.out, r.err)
		}
	}
	if !strings.Contains(r.err, "status --ticket t1 --wait --wait-uncertain") {
		t.Errorf("no next step:\n%s", r.err)
	}
}

func TestStatusFollowsATicket(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "deploying", "deploying", "uncertain", "completed")
	r := against(b).run(t, "status", "--ticket", "t1", "--wait", "--wait-uncertain")
	r.want(t, exitOK, "completed: version v3, revision 3, is live (2.0s)\n", "deploying   (1.0s)\nuncertain   (1.0s)\n")
}

func TestDeployAnExistingVersion(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	if r := against(b).run(t, "deploy", "--version", "v3", "--wait"); r.code != exitOK {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
	if got := b.body("POST /worker/deployments"); got != `{"base_revision":3,"version_id":"v3"}` {
		t.Errorf("deployment request %s", got)
	}
	if r := against(b).run(t, "deploy", "--version", "v3", "--base-revision", "9"); r.code != exitOK {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
	if got := b.body("POST /worker/deployments"); got != `{"base_revision":9,"version_id":"v3"}` {
		t.Errorf("deployment request %s", got)
	}
	if slices.Contains(b.seen(), "POST /worker/versions") {
		t.Error("a project was submitted")
	}
}

func TestLostSubmissionIsToldNotRepeated(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"lost":    func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"proxy":   fail(504, "<html>"),
		"the API": fail(503, `{"detail":{"code":"submission_outcome_unknown","message":"m"}}`),
	} {
		b := newBackend(t, "completed")
		b.override["POST /worker/versions"] = answer
		r := against(b).run(t, "deploy", projectFolder(t), "--wait")
		if r.code != exitUnreachable || !strings.Contains(r.err, "not known whether the version was stored") || !strings.Contains(r.err, "project_digest is ") {
			t.Errorf("%s: exit %d\n%s", name, r.code, r.err)
		}
		if !slices.Equal(b.seen(), []string{"POST /worker/versions"}) {
			t.Errorf("%s: requests %v", name, b.seen())
		}
	}
}

func TestLostDeploymentAnswerIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	lost := 2
	b.override["POST /worker/deployments"] = func(w http.ResponseWriter, r *http.Request) {
		if lost--; lost < 0 {
			fail(202, b.ticket("pending", ""))(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}
	if r := against(b).run(t, "deploy", projectFolder(t), "--wait"); r.code != exitOK {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
	lost = 1000
	r := against(b).run(t, "deploy", projectFolder(t), "--wait")
	if r.code != exitUnreachable || !strings.Contains(r.err, "deploy --version v3 --base-revision 3 --wait`: it gets the same ticket") {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
}

func TestDeployRefusals(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.override["POST /worker/versions"] = fail(422, `{"detail":[{"type":"json_invalid","loc":["worker.json",3,7],"msg":"unexpected end"},{"type":"missing","loc":["index.js"],"msg":"no such file"}]}`)
	r := against(b).run(t, "deploy", projectFolder(t), "--wait")
	if r.code != exitRefused || !strings.Contains(r.err, "  - worker.json:3:7: unexpected end (json_invalid)\n  - index.js: no such file (missing)\n") {
		t.Errorf("exit %d\n%s", r.code, r.err)
	}
	if slices.Contains(b.seen(), "POST /worker/deployments") {
		t.Error("a refused project was deployed")
	}
	r = against(b).run(t, "deploy", filepath.Join(t.TempDir(), "missing"))
	if r.code != exitFailed || !strings.Contains(r.err, "where:") {
		t.Errorf("missing folder: exit %d\n%s", r.code, r.err)
	}
}

func TestAnotherStoredProjectIsNotDeployed(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "completed")
	b.override["POST /worker/versions"] = fail(201, b.version("v3", 3, "ready")) // the digest of no archive at all
	r := against(b).run(t, "deploy", projectFolder(t), "--wait")
	if r.code != exitFailed || slices.Contains(b.seen(), "POST /worker/deployments") {
		t.Errorf("exit %d, requests %v\n%s", r.code, b.seen(), r.err)
	}
}

func TestInterruptedWait(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "pending")
	ctx, cancel := context.WithCancel(t.Context())
	r := against(b)
	r.ctx, r.onOut = ctx, cancel
	got := r.run(t, "deploy", projectFolder(t), "--wait")
	if got.code != exitFailed || !strings.Contains(got.err, "interrupted; the deployment goes on") || !strings.Contains(got.err, "status --ticket t1 --wait") {
		t.Errorf("exit %d\n%s", got.code, got.err)
	}
}

func TestTerminalIsRedrawn(t *testing.T) {
	t.Parallel()
	b := newBackend(t, "pending", "completed")
	r := against(b)
	r.live = true
	got := r.run(t, "deploy", projectFolder(t), "--wait")
	if got.code != exitOK || !strings.Contains(got.err, "\r\x1b[Kpending     … (0.0s)\r\x1b[Kpending     (1.0s)\n") {
		t.Errorf("exit %d\n%q", got.code, got.err)
	}
}

// The stage shows how many packages are there while it runs, and no longer.
func TestPackagesAreShown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := newProgress(console{err: &out, live: true, now: time.Now})
	p.start("submit")
	p.detail("npm packages 3/27")
	p.draw()
	p.done("version v1")
	p.start("deploy")
	p.done("")
	if !strings.Contains(out.String(), "\r\x1b[Ksubmit      … npm packages 3/27 (") || strings.Count(out.String(), "\n") != 2 ||
		!strings.Contains(out.String(), "submit      version v1 (") || !strings.Contains(out.String(), "deploy      … (") {
		t.Errorf("%q", out.String())
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	data := writeReady(t, "http://127.0.0.1:1")
	runner{}.run(t, "token", "--dev-data", data).want(t, exitOK, "manager\n", "")
	runner{}.run(t, "token", "--dev-data", data, "--role", "platform_admin").want(t, exitOK, "platform\n", "")
	runner{}.run(t, "token", "--dev-data", data, "--json").want(t, exitOK, "{\n  \"token\": \"manager\"\n}\n", "")
	if r := (runner{}).run(t, "token", "--dev-data", t.TempDir()); r.code != exitUsage || r.out != "" {
		t.Errorf("no ready file: %d\n%s", r.code, r.err)
	}

	keyFile := filepath.Join(t.TempDir(), "token.key")
	key, err := auth.GenerateKeyFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	r := runner{}.run(t, "token", "--key-file", keyFile, "--company", "c1", "--department", "d1", "--role", "department_manager", "--role", "company_admin", "--subject", "user:7", "--ttl", "5m")
	now := time.Date(2026, 3, 1, 12, 4, 59, 0, time.UTC)
	verifier, err := auth.NewLocalVerifier(key.Public().(ed25519.PublicKey), auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	principal, err := verifier.Verify(t.Context(), strings.TrimSpace(r.out))
	if err != nil || principal.Subject != "user:7" || principal.CompanyID != "c1" || principal.DepartmentID != "d1" || len(principal.Roles) != 2 {
		t.Errorf("%+v, %v\n%s", principal, err, r.err)
	}
	now = now.Add(time.Minute)
	if _, err := verifier.Verify(t.Context(), strings.TrimSpace(r.out)); err == nil {
		t.Error("the token outlives its --ttl")
	}
	if r := (runner{}).run(t, "token", "--key-file", keyFile); r.code != exitUsage || !strings.Contains(r.err, "company_id") {
		t.Errorf("a manager without a company: %d\n%s", r.code, r.err)
	}
}

func TestInit(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "orders")
	runner{}.run(t, "init", folder).want(t, exitOK, "created "+folder+"; deploy it with `edgectl deploy "+folder+" --wait`\n", "")
	manifest, err := os.ReadFile(filepath.Join(folder, "worker.json"))
	if err != nil || !strings.Contains(string(manifest), `"orders"`) {
		t.Errorf("manifest %s, %v", manifest, err)
	}
	if packedSize(t, folder) == 0 {
		t.Error("nothing to pack")
	}
	r := runner{}.run(t, "init", folder)
	if r.code != exitFailed || !strings.Contains(r.err, "Choose an empty or new folder") {
		t.Errorf("a folder that is taken: %d\n%s", r.code, r.err)
	}
}
