package httpapi_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

// form makes a multipart body of the parts, in order: name, content.
func form(t *testing.T, parts ...string) (string, *bytes.Buffer) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(parts); i += 2 {
		part, err := w.CreateFormFile(parts[i], "project.tar.gz")
		if err == nil {
			_, err = io.WriteString(part, parts[i+1])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), &body
}

// nothingStored checks that refused submissions left no row and no object.
func (a *api) nothingStored() {
	a.t.Helper()
	if a.Count("edge_workers")+a.Count("edge_worker_versions")+a.Count("edge_worker_outbox") != 0 {
		a.t.Error("a refused submission left a row")
	}
}

// S2-002 to S2-004, S3-69: the 201 holds the whole version, with null for what
// is not set; raw and form submissions are the same bytes.
func TestSubmit(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		archive := projecttest.Archive(t, plane.Project("one"))
		var raw map[string]any
		var made gen.Version
		got := a.submit(archive)
		got.into(201, &raw)
		got.into(201, &made)
		for _, name := range []string{"error_code", "error_message", "deployed_at"} {
			if value, has := raw[name]; !has || value != nil {
				t.Errorf("%s is %v", name, value)
			}
		}
		if made.State != gen.VersionStateReady || made.Revision != 1 || made.CreatedBy != "user:1" || made.ProjectSize != int64(len(archive)) ||
			made.ProjectDigest != canonical.SHA256(archive) || len(made.Operations) != 1 || made.Operations[0].Path != "/say" {
			t.Errorf("version %+v", made)
		}
		var worker map[string]any
		a.get("/worker").into(200, &worker)
		if worker["status"] != "draft" || worker["latest_revision"] != float64(1) || worker["current_version_id"] != nil {
			t.Errorf("worker %v", worker)
		}
		for i, parts := range [][]string{{"project", string(archive)}, {"note", "first", "project", string(archive)}, {"project", string(archive), "project", "x"}} {
			media, body := form(t, parts...)
			var again gen.Version
			a.do("POST", "/worker/versions", request{token: a.manager(), media: media, body: body}).into(201, &again)
			if again.Revision != int64(i+2) || again.ProjectDigest != made.ProjectDigest || again.BundleDigest != made.BundleDigest {
				t.Errorf("form %d: %+v", i, again)
			}
		}
		var read gen.Version
		a.get("/worker/versions/"+made.ID).into(200, &read)
		if read.ReleaseGeneration != made.ReleaseGeneration || !read.CreatedAt.Equal(made.CreatedAt) {
			t.Errorf("read %+v, made %+v", read, made)
		}
		var fact struct{ RequestID, ActorID, Action string }
		a.must(a.DB.Read(context.Background()).Raw("SELECT request_id, actor_id, action FROM edge_worker_audit_logs WHERE resource_id = ?", made.ID).Scan(&fact).Error)
		if fact.Action != "version.submitted" || fact.ActorID != "user:1" || fact.RequestID != got.header.Get("X-Request-Id") {
			t.Errorf("fact %+v", fact) // D5: the id that was returned is the one in the audit
		}
	})
}

// What is no submission at all is refused before anything is made of it.
func TestSubmissionForms(t *testing.T) {
	a := on(t)
	archive := string(projecttest.Archive(t, plane.Project("one")))
	post := func(media string, body io.Reader) answer {
		return a.do("POST", "/worker/versions", request{token: a.manager(), media: media, body: body})
	}
	const wrongType = `{"detail":"A submission is application/gzip, or multipart/form-data with the field project"}`
	for _, media := range []string{"", "application/json", "application/x-gzip", "text/plain; charset=utf-8", "multipart/form-data", "multipart/mixed; boundary=x", ";"} {
		post(media, strings.NewReader(archive)).is(415, wrongType)
	}
	media, body := form(t, "archive", archive)
	post(media, body).problems(problem{"missing", `["body","project"]`})
	media, body = form(t)
	post(media, body).problems(problem{"missing", `["body","project"]`})
	_, body = form(t, "project", archive)
	post("multipart/form-data; boundary=another", body).problems(problem{"missing", `["body","project"]`})

	media, body = form(t, "project", archive)
	post(media, io.LimitReader(body, int64(body.Len()-100))).is(400, `{"detail":"The request body could not be read"}`)
	post(media[:strings.Index(media, "=")+1]+"short", strings.NewReader("--short\r\nno header\r\n\r\n")).is(400, `{"detail":"The form could not be read"}`)
	broken := iotest.ErrReader(errors.New("connection reset"))
	post("application/gzip", io.MultiReader(strings.NewReader(archive[:50]), broken)).is(400, `{"detail":"The request body could not be read"}`)

	big := strings.Repeat("x", 2<<20+1)
	post("application/gzip", strings.NewReader(big)).is(413, `{"detail":"Project archive exceeds 2 MiB"}`)
	post("application/gzip", strings.NewReader(big+strings.Repeat("x", 64<<10))).is(413, `{"detail":"Request body is too large"}`)
	undeclared := func(body io.Reader) io.Reader { return struct{ io.Reader }{body} }
	post("application/gzip", undeclared(strings.NewReader(big))).is(413, `{"detail":"Project archive exceeds 2 MiB"}`)
	media, body = form(t, "project", big)
	post(media, undeclared(body)).is(413, `{"detail":"Project archive exceeds 2 MiB"}`)
	media, body = form(t, "other", big+big, "project", archive)
	post(media, undeclared(body)).is(413, `{"detail":"Request body is too large"}`)

	post("application/gzip", strings.NewReader("")).problems(problem{"archive_invalid", `["archive"]`})
	post("application/gzip", strings.NewReader("no gzip")).problems(problem{"archive_invalid", `["archive"]`})
	a.nothingStored()
	post("application/gzip; q=1", strings.NewReader(archive)).into(201, &gen.Version{}) // the control
	media, body = form(t, "project", archive)
	post(media, undeclared(body)).into(201, &gen.Version{})
}

// A faulty project is one entry for each fault, and nothing of it is kept.
func TestFaultyProject(t *testing.T) {
	a := on(t)
	project := plane.Project("one")
	project["src/index.js"] = "export default {\n  'echo.say': (input) => ({ said: input, }\n};\n"
	a.submit(projecttest.Archive(t, project)).problems(problem{"source_invalid", `["src/index.js",3,1]`})
	project["src/index.js"] = "import x from 'left-pad';\nimport y from './gone';\nexport default { 'echo.say': () => [x, y] };\n"
	a.submit(projecttest.Archive(t, project)).problems(
		problem{"import_unresolved", `["src/index.js",1,15]`}, problem{"import_unresolved", `["src/index.js",2,15]`})
	delete(project, "worker.json")
	a.submit(projecttest.Archive(t, project)).problems(problem{"manifest_missing", `["archive","worker.json"]`})
	a.nothingStored()
}

// S0-20 to S0-23, S2-022: the 503 texts, and which of them comes first.
func TestNotConfigured(t *testing.T) {
	t.Parallel()
	a := newAPI(t, databasetest.MySQL(t), nil)
	archive := projecttest.Archive(t, plane.Project("one"))
	var made gen.Version
	a.submit(archive).into(201, &made)
	rows := a.Count("edge_worker_outbox")

	a.Invalid = errors.New("EDGE_WORKERS_PROVIDER is wrong")
	const provider = `{"detail":"Edge Worker provider is not configured"}`
	a.submit(archive).is(503, provider)
	a.submit(nil).is(503, provider) // the refusal comes before the archive is looked at
	a.send("POST", "/worker/deployments", `{"version_id":"`+made.ID+`","base_revision":1}`).is(503, provider)
	a.send("POST", "/worker/deployments", `{"version_id":"unknown","base_revision":9}`).is(503, provider)
	if got := a.get("/worker/versions/" + made.ID + "/source"); got.code != 200 {
		t.Errorf("reading needs no provider: %d", got.code)
	}

	public, _, err := ed25519.GenerateKey(nil)
	a.must(err)
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}})
	a.must(err)
	invalid := errors.New("no provider either")
	bare, err := version.NewSubmitter(version.Params{DB: a.DB, Outbox: a.Outbox, Builder: build, Provider: func() error { return invalid }, Log: a.Log})
	a.must(err)
	storeless := *a
	p := httpapi.Params{
		Roles: []httpapi.Role{httpapi.Management}, Verifier: a.verifier(), DB: a.DB, Submitter: bare, Desk: a.Desk, Mirror: a.Mirror,
		Directory: a.Directory, Log: a.Log,
	}
	storeless.echo, err = httpapi.New(p)
	a.must(err)
	storeless.submit(archive).is(503, provider)
	invalid = nil
	storeless.submit(archive).is(503, `{"detail":"Edge Worker artifact storage is unavailable"}`)
	storeless.get("/worker/versions/"+made.ID+"/source").is(503, `{"detail":{"code":"edge_worker_artifact_unavailable","message":"Edge Worker artifact is unavailable"}}`)
	storeless.get("/worker/versions/unknown/source").is(404, `{"detail":"Worker version not found"}`)
	storeless.do("POST", "/worker/invoke/echo.say", request{token: a.member()}).is(404, `{"detail":"Not Found"}`) // the role is not served

	if a.Count("edge_worker_versions") != 1 || a.Count("edge_worker_outbox") != rows {
		t.Error("a refused request left a row")
	}
	a.Invalid = nil
	a.deploy(a.Version(made.ID)).into(202, &gen.Ticket{})
}

// A store that fails while objects are written is the same 503, and the rows of
// the submission become due for cleanup.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	a := newAPI(t, databasetest.SQLite(t), nil)
	a.must(a.Backend.Close())
	a.submit(projecttest.Archive(t, plane.Project("one"))).is(503, `{"detail":"Edge Worker artifact storage is unavailable"}`)
	if a.Count("edge_worker_versions") != 0 {
		t.Error("a version without objects")
	}
	var row struct{ Operation, Status, LastErrorCode string }
	a.must(a.DB.Read(t.Context()).Raw("SELECT operation, status, last_error_code FROM edge_worker_outbox").Scan(&row).Error)
	if row.Status != "pending" || row.LastErrorCode != "submission_not_committed" {
		t.Errorf("intent %+v", row) // S0-72
	}
}

// S0-55 to S0-60: the exact bytes with their headers, of superseded versions
// too; not one byte of an object that is not the recorded one.
func TestSource(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		archive := projecttest.Archive(t, plane.Project("one"))
		var made gen.Version
		a.submit(archive).into(201, &made)
		a.submit(projecttest.Archive(t, plane.Project("two"))).into(201, &gen.Version{})
		for _, state := range []string{"ready", "deployed", "superseded", "failed"} {
			a.Exec("UPDATE edge_worker_versions SET state = ? WHERE id = ?", state, made.ID)
			got := a.get("/worker/versions/" + made.ID + "/source")
			if got.code != 200 || !bytes.Equal(got.body, archive) {
				t.Errorf("%s: %d, %d bytes", state, got.code, len(got.body))
			}
			if h := got.header; h.Get("Content-Type") != "application/gzip" || h.Get("Content-Disposition") != `attachment; filename="source-r1.tar.gz"` ||
				h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", h)
			}
		}
		const unavailable = `{"detail":{"code":"edge_worker_artifact_unavailable","message":"Edge Worker artifact is unavailable"}}`
		v := a.Version(made.ID)
		key := v.ProjectObjectKey
		refused := func(what string) {
			t.Helper()
			got := a.get("/worker/versions/" + made.ID + "/source")
			got.is(503, unavailable)
			if bytes.Contains(got.body, archive[:8]) || got.header.Get("Content-Disposition") != "" {
				t.Errorf("%s: the refusal looks like an archive", what)
			}
		}
		for what, change := range map[string]string{
			"another digest": "project_digest = '" + strings.Repeat("0", 64) + "'",
			"another size":   "project_size = project_size + 1",
			"another tenant": "project_object_key = 'edge-workers/" + strings.Repeat("0", 32) + key[len("edge-workers/")+32:] + "'",
			"the bundle":     "project_object_key = bundle_object_key",
			"no key":         "project_object_key = ''",
		} {
			a.Exec("UPDATE edge_worker_versions SET "+change+" WHERE id = ?", made.ID)
			refused(what)
			a.Exec("UPDATE edge_worker_versions SET project_digest = ?, project_size = ?, project_object_key = ? WHERE id = ?", v.ProjectDigest, v.ProjectSize, key, v.ID)
		}
		for what, content := range map[string][]byte{
			"changed": append([]byte{archive[0] ^ 1}, archive[1:]...), "shorter": archive[:len(archive)-1], "too large": make([]byte, 2<<20+1),
		} {
			a.replace(key, content)
			refused(what)
		}
		a.must(a.Backend.Delete(t.Context(), key))
		refused("missing")
		a.replace(key, archive)
		if got := a.get("/worker/versions/" + made.ID + "/source"); got.code != 200 {
			t.Errorf("control: %d", got.code)
		}
	})
}

// replace puts other content under a key, past the fence.
func (a *api) replace(key string, content []byte) {
	a.t.Helper()
	a.must(a.Backend.Delete(a.t.Context(), key))
	a.must(a.Backend.Put(a.t.Context(), key, content, artifact.Attributes{
		ContentType: artifact.Project.ContentType(), Metadata: map[string]string{artifact.MetadataDigest: canonical.SHA256(content)},
	}))
}

// Paging: every version once, newest first, whatever is submitted meanwhile.
func TestVersionPages(t *testing.T) {
	each(t, func(t *testing.T, a *api) {
		var empty gen.VersionPage
		a.get("/worker/versions").into(200, &empty)
		if empty.Items == nil || len(empty.Items) != 0 || empty.NextCursor != nil {
			t.Errorf("an empty list is %+v", empty)
		}
		for range 5 {
			a.Submit("same")
		}
		var revisions []int64
		target := "/worker/versions?limit=2"
		for pages := 0; target != "" && pages < 5; pages++ {
			var page gen.VersionPage
			a.get(target).into(200, &page)
			for _, v := range page.Items {
				revisions = append(revisions, v.Revision)
			}
			target = ""
			if page.NextCursor != nil {
				target = "/worker/versions?limit=2&cursor=" + *page.NextCursor
				a.Submit("meanwhile")
			}
		}
		if text, _ := json.Marshal(revisions); string(text) != "[5,4,3,2,1]" {
			t.Errorf("pages hold %s", text)
		}
		for _, limit := range []string{"0", "-1", "101", "x", "1.5", "99999999999999999999", "%20"} {
			a.get("/worker/versions?limit=" + limit).problems(problem{"limit_invalid", `["query","limit"]`})
		}
		for _, cursor := range []string{"x", "%00", "r5", "cg", "cjA=", strings.Repeat("A", 600), "NQ", "cng"} {
			a.get("/worker/versions?cursor=" + cursor).problems(problem{"cursor_invalid", `["query","cursor"]`})
		}
		for range 14 {
			a.Submit("more")
		}
		for target, want := range map[string]int{"/worker/versions": 20, "/worker/versions?limit=100": 21, "/worker/versions?limit=1": 1} {
			var page gen.VersionPage
			a.get(target).into(200, &page)
			if len(page.Items) != want || (page.NextCursor == nil) != (want == 21) {
				t.Errorf("%s holds %d, next %v", target, len(page.Items), page.NextCursor)
			}
		}
	})
}
