package cloudflow

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/retirement"
	"github.com/teamsync/edge-workers/runtime"
)

// S1-339, S1-341, S1-342: on real workerd a retired Worker answers 410 at both its
// doors, its stored data outlive the tombstone, and a week later script and data
// are gone. Answers that are lost on the way change nothing of it.
func TestRetirement(t *testing.T) {
	s := newSystem(t)
	d := s.deploy(s.orders())
	s.invoke(d.version, "orders.create", `{"customer":"Ada","lines":[{"sku":"CH-001","quantity":2}]}`)
	s.must(s.Directory.DeleteDepartment(t.Context(), s.Actor, s.Tenant.DepartmentID))
	lane, err := retirement.New(retirement.Params{
		DB: s.DB, Outbox: s.Outbox, Scripts: func() (retirement.Scripts, error) { return s.cloud, nil }, Tombstone: runtime.Tombstone(), Log: s.Log,
	})
	s.must(err)
	round := func(what string) {
		t.Helper()
		result, err := lane.RunOnce(t.Context(), 10*time.Second)
		s.must(err)
		if len(result) != 1 || result[what] != 1 {
			t.Fatalf("%v, want one %s", result, what)
		}
	}
	s.front.Inject(loseAnswer(http.MethodPut), nil)
	round("retired")
	s.front.Inject(nil, nil)
	s.wantGone()

	raw, err := s.Store.Get(t.Context(), artifact.Tenant(s.Tenant), artifact.Bundle, d.version.BundleObjectKey, 0)
	s.must(err)
	release := provider.Release{
		Namespace: s.Worker().ServingNamespace, ScriptName: s.Worker().ScriptName, CompatibilityDate: d.version.CompatibilityDate,
		Bundle: raw, BundleDigest: d.version.BundleDigest,
	}
	s.must(s.cloud.Upload(t.Context(), release)) // as a late upload would
	if got := s.invoke(d.version, "orders.get", `{"id":"1"}`); got["customer"] != "Ada" {
		t.Errorf("the data did not outlive the tombstone: %v", got)
	}

	s.Exec("UPDATE edge_worker_audit_logs SET created_at = created_at - INTERVAL 8 DAY WHERE action = ?", reconcile.ActionRetired)
	s.front.Inject(loseAnswer(http.MethodDelete), nil)
	round("removed")
	s.front.Inject(nil, nil)
	there, err := s.cloud.Exists(t.Context(), release.Namespace, release.ScriptName)
	if err != nil || there {
		t.Errorf("exists: %v, %v", there, err)
	}
	if result, err := lane.RunOnce(context.Background(), 10*time.Second); err != nil || len(result) > 0 {
		t.Errorf("one more round: %v, %v", result, err)
	}
}

// loseAnswer applies requests of the method and breaks the connection off.
func loseAnswer(method string) func(http.ResponseWriter, *http.Request, http.Handler) bool {
	return func(_ http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		if r.Method != method {
			return false
		}
		inner.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// wantGone asks both doors of the Worker.
func (s *system) wantGone() {
	s.T.Helper()
	for _, door := range []string{"/__control", "/__invoke/orders.get"} {
		req, err := http.NewRequestWithContext(s.T.Context(), http.MethodPost, s.dispatch+"/"+s.Worker().ScriptName+door, strings.NewReader("{}"))
		s.must(err)
		resp, err := http.DefaultClient.Do(req)
		s.must(err)
		raw, err := io.ReadAll(resp.Body)
		s.must(err)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusGone || !strings.Contains(string(raw), `"worker_retired"`) {
			s.T.Errorf("%s: %d %s", door, resp.StatusCode, raw)
		}
	}
}
