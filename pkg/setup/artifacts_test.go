package setup

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/plane"
)

const (
	storeHost   = "0123456789abcdef0123456789abcdef.r2.cloudflarestorage.com"
	kitHost     = "edge-workers-artifacts"
	storeSecret = "secret-of-the-artifact-store"
)

// inCloud is a good cloud environment with R2 beside an application's storage.
func inCloud() map[string]string {
	variables := complete()
	maps.Copy(variables, map[string]string{
		"EDGE_WORKERS_R2_BUCKET": "edge-artifacts", "EDGE_WORKERS_R2_ACCESS_KEY_ID": "r2-key", "EDGE_WORKERS_R2_SECRET_ACCESS_KEY": storeSecret,
		"S3_PROVIDER": "r2", "S3_ENDPOINT_URL": "https://" + storeHost,
		"AWS_S3_BUCKET": "application-bucket", "AWS_ACCESS_KEY_ID": "application-key", "AWS_SECRET_ACCESS_KEY": "application-secret",
	})
	return variables
}

// inKit is a good on-prem environment beside an application's storage.
func inKit() map[string]string {
	return map[string]string{
		"EDGE_WORKERS_PROVIDER": "onprem", "EDGE_WORKERS_EDGE_HOST_URL": "http://127.0.0.1:1", "EDGE_WORKERS_EDGE_HOST_API_TOKEN": strings.Repeat("t", 64),
		"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL": "http://127.0.0.1:1", "EDGE_WORKERS_EDGE_HOST_IDENTITY": "host-1",
		"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL": "http://" + kitHost + ":9000", "EDGE_WORKERS_ARTIFACTS_BUCKET": "kit-artifacts",
		"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID": "kit-key", "EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY": storeSecret,
		"S3_PROVIDER": "aws", "AWS_S3_BUCKET": "application-bucket",
	}
}

// places are the two stores, and which of them was dialled by which address.
type places struct {
	cloud, kit *artifacttest.S3Server
	mu         sync.Mutex
	dialled    map[string]bool
}

func newPlaces(t *testing.T) *places {
	t.Helper()
	return &places{
		cloud:   artifacttest.StartS3(t, artifacttest.S3Params{Bucket: "edge-artifacts", Region: "auto", AccessKeyID: "r2-key", SecretAccessKey: storeSecret, R2: true, Name: storeHost}),
		kit:     artifacttest.StartS3(t, artifacttest.S3Params{Bucket: "kit-artifacts", Region: "us-east-1", AccessKeyID: "kit-key", SecretAccessKey: storeSecret, Plain: true}),
		dialled: map[string]bool{},
	}
}

func (p *places) network() *s3store.Network {
	return &s3store.Network{RootCAs: p.cloud.RootCAs(), Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		p.mu.Lock()
		p.dialled[address] = true
		p.mu.Unlock()
		switch address {
		case storeHost + ":443":
			return p.cloud.Dial(ctx, network, address)
		case kitHost + ":9000":
			return p.kit.Dial(ctx, network, address)
		}
		return nil, errors.New("nobody is at " + address)
	}}
}

func (p *places) addresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.dialled))
}

// S1-020, S0-01, S0-03, S0-04, S0-05, S0-14, S0-15, S0-19, S0-52, S0-55: a submission
// is stored in the selected provider's store with its own key pair, read back
// from there and deleted there, and no other place is asked for anything.
func TestTheSelectedStoreIsUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variables map[string]string
		store     func(*places) *artifacttest.S3Server
		other     func(*places) *artifacttest.S3Server
		address   string
	}{
		"cloudflare": {inCloud(), func(p *places) *artifacttest.S3Server { return p.cloud }, func(p *places) *artifacttest.S3Server { return p.kit }, storeHost + ":443"},
		"onprem":     {inKit(), func(p *places) *artifacttest.S3Server { return p.kit }, func(p *places) *artifacttest.S3Server { return p.cloud }, kitHost + ":9000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := newPlaces(t)
			p := startWith(t, c.variables, Params{Network: at.network()})
			archive := projecttest.Archive(t, plane.Project("one"))
			status, body := p.submit(t)
			if status != http.StatusCreated {
				t.Fatalf("submission: %d %s", status, body)
			}
			var version struct{ ID string }
			must(t, json.Unmarshal([]byte(body), &version))
			status, source := p.ask(t, http.MethodGet, "/worker/versions/"+version.ID+"/source", "", nil)
			if status != http.StatusOK || source != strings.TrimSpace(string(archive)) {
				t.Errorf("source: %d, %d bytes of %d", status, len(source), len(archive))
			}
			store := c.store(at)
			objects := store.Objects()
			if len(objects) != 2 {
				t.Errorf("%d objects", len(objects))
			}
			fenced, err := p.Artifacts()
			must(t, err)
			for key := range objects {
				kind := artifact.Project
				if strings.HasSuffix(key, ".mjs") {
					kind = artifact.Bundle
				}
				must(t, fenced.Delete(t.Context(), artifact.Tenant(tenant), kind, key))
			}
			for _, r := range store.Requests("") {
				if r.Refused != "" || r.AccessKeyID() != store.AccessKeyID || !strings.HasPrefix(r.Path, "/"+store.Bucket+"/") {
					t.Errorf("%s %s by %s: refused %q", r.Method, r.Path, r.AccessKeyID(), r.Refused)
				}
			}
			if len(store.Requests("")) != 5 || len(store.Objects()) != 0 {
				t.Errorf("%d requests, %d objects left", len(store.Requests("")), len(store.Objects()))
			}
			if n := len(c.other(at).Requests("")); n != 0 || !slices.Equal(at.addresses(), []string{c.address}) {
				t.Errorf("the other store got %d requests; dialled: %v", n, at.addresses())
			}
			if strings.Contains(p.log.String(), storeSecret) || strings.Contains(p.log.String(), "not configured") {
				t.Errorf("log: %s", p.log.String())
			}
		})
	}
}

// S0-06, S0-07, S0-20, S0-21: a store that is not configured stops neither the
// process nor what needs no store. Nothing is stored, and nothing is asked of
// the application's storage.
func TestStoreIsNotConfigured(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variables map[string]string
		change    map[string]string
		says      string
	}{
		"no R2 bucket":        {inCloud(), map[string]string{"EDGE_WORKERS_R2_BUCKET": ""}, "EDGE_WORKERS_R2_BUCKET"},
		"no R2 key":           {inCloud(), map[string]string{"EDGE_WORKERS_R2_ACCESS_KEY_ID": ""}, "EDGE_WORKERS_R2_ACCESS_KEY_ID"},
		"no R2 secret":        {inCloud(), map[string]string{"EDGE_WORKERS_R2_SECRET_ACCESS_KEY": ""}, "EDGE_WORKERS_R2_SECRET_ACCESS_KEY"},
		"another S3_PROVIDER": {inCloud(), map[string]string{"S3_PROVIDER": "aws"}, "S3_PROVIDER"},
		"another endpoint":    {inCloud(), map[string]string{"S3_ENDPOINT_URL": "https://s3.amazonaws.com"}, "S3_ENDPOINT_URL"},
		"impossible bucket":   {inCloud(), map[string]string{"EDGE_WORKERS_R2_BUCKET": "edge/artifacts"}, "the bucket is not a name"},
		"no kit endpoint":     {inKit(), map[string]string{"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL": ""}, "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"},
		"another kit":         {inKit(), map[string]string{"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL": "http://elsewhere:9000"}, "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"},
		"no kit secret":       {inKit(), map[string]string{"EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY": ""}, "EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := newPlaces(t)
			maps.Copy(c.variables, c.change)
			p := startWith(t, c.variables, Params{Network: at.network()})
			status, body := p.submit(t)
			if status != http.StatusServiceUnavailable || body != `{"detail":"Edge Worker artifact storage is unavailable"}` {
				t.Errorf("submission: %d %s", status, body)
			}
			version := aVersion(t, p)
			status, body = p.ask(t, http.MethodGet, "/worker/versions/"+version+"/source", "", nil)
			const refused = `{"detail":{"code":"edge_worker_artifact_unavailable","message":"Edge Worker artifact is unavailable"}}`
			if status != http.StatusServiceUnavailable || body != refused {
				t.Errorf("source: %d %s", status, body)
			}
			if status, body = p.ask(t, http.MethodGet, "/worker/versions", "", nil); status != http.StatusOK || strings.Count(body, `"revision"`) != 1 {
				t.Errorf("list: %d %s", status, body) // the version of this test and no other
			}
			store, err := p.Artifacts()
			if store != nil || err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), storeSecret) {
				t.Errorf("store: %v, %v", store, err)
			}
			if len(at.addresses()) != 0 {
				t.Errorf("dialled: %v", at.addresses())
			}
			if !strings.Contains(p.log.String(), c.says) || strings.Contains(p.log.String(), storeSecret) {
				t.Errorf("log: %s", p.log.String())
			}
		})
	}
}

// aVersion puts a version into the database, as if the store had been there.
func aVersion(t *testing.T, p *process) string {
	t.Helper()
	worker := models.Worker{ID: "worker-1", CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID, ScriptName: models.ScriptName(tenant.CompanyID, tenant.DepartmentID), Status: models.WorkerDraft, LatestRevision: 1}
	must(t, p.db.Read(t.Context()).Create(&worker).Error)
	key, err := artifact.Key(artifact.Tenant(tenant), artifact.Project, strings.Repeat("a", 64), "artifact-1")
	must(t, err)
	version := models.Version{
		ID: "00000000-0000-4000-8000-000000000001", WorkerID: worker.ID, CompanyID: tenant.CompanyID, DepartmentID: tenant.DepartmentID, Revision: 1,
		State: models.VersionReady, Language: "javascript", ArtifactID: "artifact-1", ProjectObjectKey: key, ProjectSize: 1, ProjectDigest: strings.Repeat("a", 64),
	}
	must(t, p.db.Read(t.Context()).Create(&version).Error)
	return version.ID
}

// S0-23: with both wrong the provider's refusal comes first.
func TestProviderRefusalComesFirst(t *testing.T) {
	t.Parallel()
	at := newPlaces(t)
	variables := inCloud()
	variables["EDGE_WORKERS_R2_BUCKET"], variables["EDGE_WORKERS_CLOUDFLARE_API_TOKEN"] = "", ""
	p := startWith(t, variables, Params{Network: at.network()})
	status, body := p.submit(t)
	if status != http.StatusServiceUnavailable || body != `{"detail":"Edge Worker provider is not configured"}` {
		t.Errorf("%d %s", status, body)
	}
	variables["EDGE_WORKERS_CLOUDFLARE_API_TOKEN"] = secret // the control: the store's turn
	p = startWith(t, variables, Params{Network: at.network()})
	status, body = p.submit(t)
	if status != http.StatusServiceUnavailable || body != `{"detail":"Edge Worker artifact storage is unavailable"}` {
		t.Errorf("%d %s", status, body)
	}
}

// S0-20: a store that is away answers as one that is not configured,
// and one that the process brought is the one that it gets.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	at := newPlaces(t)
	p := startWith(t, inKit(), Params{Network: at.network()})
	at.kit.Script(artifacttest.Fault{Do: artifacttest.Answer, Status: 503, Code: "SlowDown"}.Times(20)...)
	status, body := p.submit(t)
	if status != http.StatusServiceUnavailable || body != `{"detail":"Edge Worker artifact storage is unavailable"}` {
		t.Errorf("%d %s", status, body)
	}
	if len(at.kit.Objects()) != 0 || len(at.kit.Requests("")) == 0 {
		t.Errorf("%d objects after %d requests", len(at.kit.Objects()), len(at.kit.Requests("")))
	}
	brought := artifact.NewFenced(artifacttest.NewMemory())
	got, err := openArtifacts(Params{Store: brought, Settings: config.Settings{}})()
	if got != artifact.Store(brought) || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}
