package httpapi_test

import (
	"crypto/ed25519"
	"maps"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// buildingFrom is the API with a builder that takes packages from a registry and
// waits for its next byte no longer than idle; 0 is the ordinary limit.
func (a *api) buildingFrom(registry string, idle time.Duration) *api {
	a.t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	a.must(err)
	packages, err := npm.New(npm.Params{Registry: registry, CacheDir: a.t.TempDir(), Idle: idle, Retry: time.Millisecond})
	a.must(err)
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}, Packages: packages})
	a.must(err)
	submitter, err := version.NewSubmitter(version.Params{
		DB: a.DB, Outbox: a.Outbox, Builder: build, Store: a.Store, Provider: func() error { return nil }, Log: a.Log,
	})
	a.must(err)
	changed := *a
	changed.echo, err = httpapi.New(httpapi.Params{
		Roles: []httpapi.Role{httpapi.Management}, Verifier: a.verifier(), DB: a.DB, Store: a.Store, Submitter: submitter, Desk: a.Desk,
		Mirror: a.Mirror, Directory: a.Directory, Log: a.Log,
	})
	a.must(err)
	return &changed
}

// A package that is not what the lock file says, and a registry that does not
// deliver, leave no row and no object; the same project is accepted when the
// registry is well.
func TestFaultyPackages(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	x := npmtest.Make("x", "1.0.0", map[string]string{"index.js": "export default 1"})
	registry.Add(x)
	a := newAPI(t, databasetest.SQLite(t), nil)
	a, hasty := a.buildingFrom(registry.URL, 0), a.buildingFrom(registry.URL, 200*time.Millisecond)
	project := plane.Project("one")
	maps.Copy(project, npmtest.Project(x))
	project["src/index.js"] = "import x from 'x';\nexport default { 'echo.say': () => ({ said: x }) };\n"
	archive := projecttest.Archive(t, project)

	const loc = `["package-lock.json","packages","node_modules/x"]`
	const away = `{"detail":{"code":"npm_registry_unavailable","message":"The npm registry did not deliver x@1.0.0; try again"}}`
	for fault, kind := range map[npmtest.Fault]string{
		npmtest.OtherBytes: "dependency_integrity_mismatch", npmtest.HalfThenEnd: "dependency_integrity_mismatch",
		npmtest.Missing: "dependency_not_found", npmtest.Endless: "dependency_too_large",
	} {
		registry.Fail(x, fault)
		a.submit(archive).problems(problem{kind, loc})
	}
	for fault, api := range map[npmtest.Fault]*api{
		npmtest.Silent: hasty, npmtest.Stalled: hasty, npmtest.Truncated: a, npmtest.Dropped: a, npmtest.Broken: a, npmtest.Elsewhere: a,
	} {
		registry.Fail(x, fault)
		api.submit(archive).is(503, away)
	}
	project["package-lock.json"] = npmtest.Lock(map[string]npmtest.Fields{
		"": {"dependencies": npmtest.Fields{"x": "1.0.0"}}, "node_modules/x": npmtest.Installed(x, npmtest.Fields{"integrity": nil}),
	})
	a.submit(projecttest.Archive(t, project)).problems(problem{"dependency_integrity_invalid", loc})
	a.nothingStored()

	registry.Fail(x)
	var made gen.Version
	a.submit(archive).into(201, &made)
	if a.Count("edge_worker_versions") != 1 {
		t.Error("the good submission left no version")
	}
}
