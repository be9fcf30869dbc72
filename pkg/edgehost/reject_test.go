package edgehost

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/provider"
)

const className = `export class TeamSyncDepartmentStorage extends DurableObject {}`

// A bundle that does not start is refused with the reason, and the release
// before is still served by the same process.
func TestBadBundlesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.StartTimeout = 3e9 })
	name := scriptName(20)
	r.deploy(name, bundle("good"))
	serving := r.instanceOf(name)
	imports := `import { DurableObject } from "cloudflare:workers"; `
	for what, c := range map[string]struct{ source, message string }{
		"syntax error":      {"export default {fetch(){", "SyntaxError"},
		"top-level throw":   {imports + className + `; throw new Error("boom at the top")`, "boom at the top"},
		"top-level loop":    {imports + className + `; for (;;) {}`, "did not finish within 3s"},
		"unknown import":    {`import x from "left-pad"; export default {fetch(){}}`, `No such module \"left-pad\"`},
		"no storage class":  {`export default {fetch(){return new Response("x")}}`, "does not export the Durable Object class TeamSyncDepartmentStorage"},
		"foreign export":    {imports + className + `; export const x = 1; export default {fetch(){}}`, "map entry 'x'"},
		"huge error text":   {`throw new Error("x".repeat(1 << 20))`, "xxxx"},
		"heap at top level": {`const all = []; for (;;) all.push(Array.from({length: 1000}, (_, i) => ({ i })));`, "the bundle's top-level code"},
	} {
		a := r.put(name, []byte(c.source))
		if a.status != http.StatusBadRequest || !strings.Contains(a.text, `"code":10021`) || !strings.Contains(a.text, c.message) {
			t.Errorf("%s: got %d %.300s", what, a.status, a.text)
		}
	}
	if r.instanceOf(name) != serving {
		t.Fatal("a refused upload touched the serving process")
	}
	r.wantText(name, "version", "good")
	if got := r.counted("edge_host_validation_seconds", "rejected"); got != 8 {
		t.Fatalf("%v rejections counted", got)
	}
	a := r.put(scriptName(21), []byte("throw 1"))
	wantCode(t, a, http.StatusBadRequest, "10021")
	wantCode(t, r.must(http.MethodGet, r.scriptURL(scriptName(21), "/settings"), "", nil), http.StatusNotFound, "10007")
}

// A release that passes validation and then does not start for real is not
// left as the current one: what is read back is what is served.
func TestReleaseThatFailsToStartIsTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	name := scriptName(22)
	once := []byte(`import { DurableObject } from "cloudflare:workers"; ` + className + `; export default {fetch(){ return new Response("x") }}`)
	r.deploy(name, bundle("good"))
	store := r.host.fleet.store
	before, err := store.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	version, err := store.Stage(name, releaseOf(once), []byte("throw new Error('late')"), before.ModifiedOn)
	if err != nil {
		t.Fatal(err)
	}
	err = r.host.fleet.swap(r.host.fleet.worker(name), before.Version, version)
	if err == nil || !strings.Contains(err.Error(), "late") {
		t.Fatalf("swap: %v", err)
	}
	after, err := store.Get(name)
	if err != nil || after.Version != before.Version {
		t.Fatalf("current version %s, want %s (%v)", after.Version, before.Version, err)
	}
	r.wantText(name, "version", "good")
	// A first release is taken back to nothing.
	fresh := scriptName(23)
	version, err = store.Stage(fresh, releaseOf(once), []byte("throw new Error('late')"), before.ModifiedOn)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.host.fleet.swap(r.host.fleet.worker(fresh), "", version); err == nil {
		t.Fatal("the swap succeeded")
	}
	wantCode(t, r.invoke(fresh, "version", ""), http.StatusNotFound, `"worker_not_found"`)
}

func releaseOf(source []byte) scriptstore.Release {
	return scriptstore.Release{
		MainModule: provider.MainModule, CompatibilityDate: testDate, CompatibilityFlags: []string{},
		Bindings: provider.Bindings(), Exports: provider.Exports(), Tags: []string{tagOf(source)},
	}
}

// S2-157 to S2-163: only the one form of metadata is taken, and the message
// names what differs.
func TestUploadFormIsExact(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.MaxBundleBytes = 4096 })
	small := []byte(`import { DurableObject } from "cloudflare:workers"; ` + className + `; export default {fetch(){}}`)
	with := func(key string, value any) []part {
		m := metadataOf(tagOf(small))
		m[key] = value
		return uploadParts(m, small)
	}
	without := func(key string) []part {
		m := metadataOf(tagOf(small))
		delete(m, key)
		return uploadParts(m, small)
	}
	good := uploadParts(metadataOf(tagOf(small)), small)
	other := func(change func(*part)) []part {
		parts := append([]part(nil), good...)
		change(&parts[1])
		return parts
	}
	for what, c := range map[string]struct {
		parts   []part
		status  int
		message string
	}{
		"S2-157 other main module":   {with("main_module", "main.mjs"), 400, "main_module"},
		"S2-158 no date":             {without("compatibility_date"), 400, "compatibility_date"},
		"S2-158 not a date":          {with("compatibility_date", "2026-13-01"), 400, "compatibility_date"},
		"S2-158 date too new":        {with("compatibility_date", "2090-01-01"), 400, "the newest that this edge host supports"},
		"S2-168 a flag":              {with("compatibility_flags", []string{"x"}), 400, "compatibility_flags"},
		"S2-168 flags null":          {with("compatibility_flags", nil), 400, "compatibility_flags"},
		"S2-159 no bindings":         {with("bindings", []any{}), 400, "bindings"},
		"S2-159 a second binding":    {with("bindings", append(provider.Bindings(), provider.Binding{Type: "plain_text", Name: "X"})), 400, "bindings"},
		"S2-160 legacy storage":      {with("exports", map[string]any{"TeamSyncDepartmentStorage": map[string]string{"type": "durable-object", "storage": "legacy-kv"}}), 400, "exports"},
		"S2-160 no exports":          {without("exports"), 400, "exports"},
		"S2-161 no tag":              {with("tags", []string{}), 400, "tags"},
		"S2-161 two tags":            {with("tags", []string{tagOf(small), tagOf(nil)}), 400, "tags"},
		"S2-163 keep_bindings":       {with("keep_bindings", []string{}), 400, "keep_bindings"},
		"migrations":                 {with("migrations", map[string]any{}), 400, "migrations"},
		"metadata too large":         {with("tags", []string{strings.Repeat("x", 65<<10)}), 413, "metadata is larger"},
		"bundle too large":           {uploadParts(metadataOf(tagOf(small)), []byte(strings.Repeat(" ", 4097))), 413, "index.mjs is larger"},
		"far too large":              {uploadParts(metadataOf(tagOf(small)), []byte(strings.Repeat(" ", 1<<20))), 413, "larger"},
		"bundle is not UTF-8":        {uploadParts(metadataOf(tagOf(small)), []byte("\xff\xfe")), 400, "not UTF-8"},
		"only metadata":              {good[:1], 400, "exactly the parts"},
		"only the bundle":            {good[1:], 400, "exactly the parts"},
		"a third part":               {append(good[:2:2], part{"extra.mjs", "extra.mjs", "application/javascript+module", "1"}), 400, "extra.mjs"},
		"the bundle twice":           {append(good[:2:2], good[1]), 400, "repeated"},
		"other part name":            {other(func(p *part) { p.name = "main.mjs" }), 400, "main.mjs"},
		"other file name":            {other(func(p *part) { p.file = "../index.mjs" }), 400, "index.mjs"},
		"service-worker syntax type": {other(func(p *part) { p.contentType = "application/javascript" }), 400, "index.mjs"},
	} {
		contentType, body := multipartOf(c.parts...)
		a := r.must(http.MethodPut, r.scriptURL(scriptName(24), ""), contentType, body)
		if a.status != c.status || !strings.Contains(a.text, c.message) {
			t.Errorf("%s: got %d %s", what, a.status, a.text)
		}
	}
	a := r.must(http.MethodPut, r.scriptURL(scriptName(24), ""), "application/json", strings.NewReader("{}"))
	wantCode(t, a, http.StatusBadRequest, "10021")
	contentType, body := multipartOf(good...)
	if a := r.must(http.MethodPut, r.scriptURL(scriptName(24), ""), contentType, body); a.status != http.StatusOK {
		t.Fatalf("the exact form: %d %s", a.status, a.text)
	}
}

func TestControlAPIGuards(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(p *Params) { p.Limits.MaxScripts = 3 })
	for _, token := range []string{"", "Bearer ", "Bearer wrong-token-000000", "Basic " + testToken} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.scriptURL(scriptName(1), ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("token %q: %d", token, resp.StatusCode)
		}
	}
	for _, name := range []string{"dw-1", "..", "DW-" + strings.Repeat("0", 48), "dw-" + strings.Repeat("g", 48)} {
		a := r.must(http.MethodGet, r.scriptURL(strings.ReplaceAll(name, ".", "%2e"), "/settings"), "", nil)
		wantCode(t, a, http.StatusBadRequest, "10016")
	}
	foreign := strings.Replace(r.scriptURL(scriptName(1), ""), DefaultNamespace, "other", 1)
	wantCode(t, r.must(http.MethodGet, foreign, "", nil), http.StatusNotFound, "7003")
	wantCode(t, r.must(http.MethodGet, r.control.URL+"/nowhere", "", nil), http.StatusNotFound, "7003")
	small := []byte(`import { DurableObject } from "cloudflare:workers"; ` + className + `; export default {fetch(){}}`)
	for n := range 3 {
		r.deploy(scriptName(30+n), small)
	}
	wantCode(t, r.put(scriptName(33), small), http.StatusInsufficientStorage, `"edge_host_capacity_exhausted"`)
	r.deploy(scriptName(30), append(small, ' ')) // a known script is no new one
	var capacity Capacity
	r.must(http.MethodGet, r.control.URL+"/edge-host/v1/capacity", "", nil).decode(t, &capacity)
	if capacity.Scripts != 3 || capacity.Limits.Scripts != 3 || capacity.Processes != 3 {
		t.Fatalf("capacity: %+v", capacity)
	}
	if a := r.must(http.MethodGet, r.control.URL+"/healthz", "", nil); a.status != http.StatusOK {
		t.Fatalf("healthz: %d", a.status)
	}
	r.listsPages(3)
}

func (r *rig) listsPages(total int) {
	r.t.Helper()
	seen, cursor := []string{}, ""
	for {
		var page struct {
			Result     []struct{ ID string }
			ResultInfo struct{ Cursor string } `json:"result_info"`
		}
		url := strings.TrimSuffix(r.scriptURL("", ""), "/") + fmt.Sprintf("?limit=2&cursor=%s", cursor)
		r.must(http.MethodGet, url, "", nil).decode(r.t, &page)
		for _, row := range page.Result {
			seen = append(seen, row.ID)
		}
		cursor = page.ResultInfo.Cursor
		if cursor == "" {
			break
		}
	}
	if len(seen) != total || seen[0] != scriptName(30) || seen[total-1] != scriptName(30+total-1) {
		r.t.Fatalf("listed %v", seen)
	}
}
