package cloudflow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/provider/providertest"
	"github.com/teamsync/edge-workers/test/plane"
)

// S1-099..S1-102, S1-110, S2-156, S2-162, S2-175..S2-177, S2-190..S2-194: the example goes from its folder to
// answers, and a second revision takes its place with the data kept.
func TestDeploymentsComplete(t *testing.T) {
	s := newSystem(t)
	first := s.deploy(s.orders())
	created := s.invoke(first.version, "orders.create", `{"customer":"Ada","lines":[{"sku":"CH-001","quantity":2}]}`)
	if created["customer"] != "Ada" {
		t.Fatalf("created %v", created)
	}
	second := s.deploy(s.small("two"))
	if got := s.Version(first.version.ID).State; got != models.VersionSuperseded {
		t.Errorf("the first version is %s", got)
	}
	// S2-176: what answers is this very generation; the old one is refused.
	var refused *control.RefusedError
	err := s.Probe(context.Background(), s.Worker().ScriptName, first.version.ReleaseGeneration)
	if !errors.As(err, &refused) || refused.Code != "release_generation_mismatch" {
		t.Errorf("the old generation: %v", err)
	}
	if said := s.invoke(second.version, "echo.say", `"hi"`); said["by"] != "two" {
		t.Errorf("answer %v", said)
	}
	third := s.deploy(s.orders())
	if got := s.invoke(third.version, "orders.get", `{"id":"1"}`); got["customer"] != "Ada" {
		t.Errorf("after two more deployments: %v", got)
	}
}

// invoke calls an operation through the signed door.
func (s *system) invoke(v models.Version, operation, input string) map[string]any {
	s.T.Helper()
	script := s.Worker().ScriptName
	assertion, err := s.signer.SignInvoke(control.Assertion{
		Script: script, Subject: "user:1", Operation: operation, Generation: v.ReleaseGeneration, Body: []byte(input),
	}, control.Caller{Kind: "member", Subject: "user:1", CompanyID: s.Tenant.CompanyID, DepartmentID: s.Tenant.DepartmentID, RequestID: "r"})
	s.must(err)
	req, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, s.dispatch+"/"+script+"/__invoke/"+operation, bytes.NewReader([]byte(input)))
	s.must(err)
	req.Header.Set("Authorization", "Bearer "+assertion)
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	s.must(err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	s.must(err)
	var out map[string]any
	if resp.StatusCode != http.StatusOK || json.Unmarshal(raw, &out) != nil {
		s.T.Fatalf("%s: %d %s", operation, resp.StatusCode, raw)
	}
	return out
}

// S2-217, S2-221, S2-222: a module that throws when it is loaded is refused by
// the provider; the Worker is again what it was before, and goes on serving.
func TestRefusedRelease(t *testing.T) {
	s := newSystem(t)
	broken := plane.Project("broken")
	broken["src/index.js"] = "throw new Error('at the top');\n" + broken["src/index.js"]
	refused := func(status models.WorkerStatus) {
		t.Helper()
		s.front.Counts()
		d := s.admit(s.submit(projecttest.Archive(t, broken)))
		s.deliver(d, false)
		s.want(d, models.OutboxFailed, "cloudflare_upload_rejected", models.VersionFailed, status)
		s.wantRequests(1, 0)
		if text := s.Version(d.version.ID).ErrorMessage; text == nil || *text != "deployment failed" { // S2-229
			t.Errorf("stored text %v", text)
		}
	}
	refused(models.WorkerDraft)
	live := s.deploy(s.small("good"))
	refused(models.WorkerActive)
	if s.Worker().CurrentVersionID != live.version.ID {
		t.Error("the current version changed")
	}
	s.wantAnswer(live.version)
	s.deploy(s.small("better")) // admission is free again
}

// S2-206..S2-210: the upload was applied and its answer was lost or
// replaced; reading tells, and nothing is sent twice.
func TestLostAnswers(t *testing.T) {
	for name, fault := range map[string]providertest.Fault{
		"lost reply":       providertest.LoseReply(),
		"504":              providertest.AnswerApplied(504, "upstream request timeout"),
		"502 with a page":  providertest.AnswerApplied(502, "<html>Bad Gateway</html>"),
		"conflict":         providertest.AnswerApplied(409, `{"success":false,"errors":[{"code":10035,"message":"x"}],"result":null}`),
		"page of a portal": providertest.AnswerApplied(200, "<html>"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			s.front.Inject(providertest.OnUpload(fault), nil)
			d := s.admit(s.small("one"))
			s.deliver(d, false)
			s.wantRequests(1, 2)
			s.wantCompleted(d)
		})
	}
}

// S2-164, S2-211, S2-213, S2-214, S2-252: what is not there as it was sent is
// uncertain and paused, however good the acknowledgement was. The repair reads
// and never writes.
func TestDriftIsUncertainUntilRepaired(t *testing.T) {
	for _, end := range []string{"settings", "details"} {
		t.Run(end, func(t *testing.T) {
			s := newSystem(t)
			s.front.Inject(nil, func(at string, object map[string]any) {
				if at == end {
					object["compatibility_date"] = "2020-01-01"
				}
			})
			d := s.admit(s.small("one"))
			s.deliver(d, false)
			s.want(d, models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused)
			s.wantRequests(1, 2)
			s.front.Inject(nil, nil)
			s.repair(&d)
			s.deliver(d, false)
			s.wantRequests(0, 2)
			s.wantCompleted(d)
		})
	}
}

func (s *system) repair(d *deployment) {
	s.T.Helper()
	_, err := s.Desk.Repair(context.Background(), admission.RepairRequest{
		Tenant: s.Tenant, Actor: s.Actor, TicketID: d.id, ObservedRevision: s.Worker().LatestRevision,
	})
	s.must(err)
	d.message = s.last()
}

// S2-207, S2-211: the upload never reached the provider. Whether the script is
// absent or still the previous release, that is provably not what was sent; the
// task does not send it again, and a repair does not either.
func TestSwallowedUpload(t *testing.T) {
	swallowed := func(s *system, text string) deployment {
		s.T.Helper()
		s.front.Counts()
		s.front.Inject(providertest.OnUpload(providertest.Swallow()), nil)
		d := s.admit(s.small(text))
		s.deliver(d, false)
		s.want(d, models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused)
		s.wantRequests(1, 2)
		s.front.Inject(nil, nil)
		s.repair(&d)
		s.deliver(d, false)
		s.want(d, models.OutboxUncertain, "provider_bundle_mismatch", models.VersionUncertain, models.WorkerPaused)
		s.wantRequests(0, 2)
		return d
	}
	t.Run("absent", func(t *testing.T) { swallowed(newSystem(t), "one") })
	t.Run("previous release", func(t *testing.T) {
		s := newSystem(t)
		live := s.deploy(s.small("one"))
		swallowed(s, "two")
		s.wantAnswer(live.version) // the provider still serves it; the gateway does not (S2-187)
	})
}

// S2-212: the answer is lost and so is the way to read: neither is known, and
// the code says so. A repair that can read completes it.
func TestUnreadableIsUncertain(t *testing.T) {
	s := newSystem(t)
	s.front.Inject(func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		if r.Method == http.MethodPut {
			return providertest.LoseReply()(w, r, inner)
		}
		return providertest.Refuse(503, 10013)(w, r, inner)
	}, nil)
	d := s.admit(s.small("one"))
	s.deliver(d, false)
	s.want(d, models.OutboxUncertain, "cloudflare_upload_uncertain", models.VersionUncertain, models.WorkerPaused)
	s.front.Inject(nil, nil)
	s.front.Counts()
	s.repair(&d)
	s.deliver(d, false)
	s.wantRequests(0, 2)
	s.wantCompleted(d)
}

// S2-200..S2-203, S2-205, D14: a 429 withdraws the fence; when the block is over the
// second attempt begins with its PUT. A second 429 fails safely.
func TestRateLimit(t *testing.T) {
	limit := providertest.OnUpload(providertest.Refuse(429, 971, "Retry-After", "120"))
	limited := func(s *system) deployment {
		s.T.Helper()
		s.front.Counts()
		s.front.Inject(limit, nil)
		d := s.admit(s.small("limited"))
		s.deliver(d, true)
		s.want(d, models.OutboxPending, "cloudflare_rate_limited", models.VersionDeployPending, models.WorkerDraft)
		s.wantRequests(1, 0)
		return d
	}
	t.Run("then completed", func(t *testing.T) {
		s := newSystem(t)
		d := limited(s)
		s.front.Inject(nil, nil)
		s.clock.add(2 * time.Minute)
		s.deliver(d, false)
		s.wantRequests(1, 2)
		s.wantCompleted(d)
	})
	t.Run("twice", func(t *testing.T) {
		s := newSystem(t)
		d := limited(s)
		s.clock.add(2 * time.Minute)
		s.deliver(d, false)
		s.want(d, models.OutboxFailed, "cloudflare_rate_limited", models.VersionFailed, models.WorkerDraft)
		s.wantRequests(1, 0)
	})
	t.Run("redelivered while blocked", func(t *testing.T) { // D14: waits before its lease
		s := newSystem(t)
		s.front.Inject(providertest.OnUpload(providertest.Refuse(429, 971, "Retry-After", "1")), nil)
		d := s.admit(s.small("limited"))
		s.deliver(d, true)
		s.front.Inject(nil, nil)
		s.front.Counts()
		go func() { <-time.After(50 * time.Millisecond); s.clock.add(time.Second) }()
		s.deliver(d, false)
		s.wantRequests(1, 2)
		s.wantCompleted(d)
	})
}
