package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const manifest = `{"schema_version":1,"name":"small","language":"javascript","entry":"src/index.js","compatibility_date":"2026-01-01",
  "operations":[{"id":"say","method":"POST","path":"/say"}]}`

const source = "export default { say: () => 'first' };\n"

// entry is one member of an archive; without a kind it is a regular file.
type entry struct {
	name, body string
	kind       byte
	link       string
}

// project is a good project with more entries.
func project(more ...entry) []entry {
	return append([]entry{{name: "worker.json", body: manifest}, {name: "src/index.js", body: source}}, more...)
}

// with is a good project with another entry file.
func with(text string) []entry {
	return []entry{{name: "worker.json", body: manifest}, {name: "src/index.js", body: text}}
}

// packed makes a .tar.gz of exactly these entries, whatever they are.
func packed(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	must(t, err)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.body)), Typeflag: tar.TypeReg, Linkname: e.link}
		if e.kind != 0 {
			header.Typeflag = e.kind
		}
		must(t, w.WriteHeader(header))
		_, err := w.Write([]byte(e.body))
		must(t, err)
	}
	must(t, w.Close())
	must(t, zip.Close())
	return out.Bytes()
}

// hostile is an archive with the status and the problem that it must get: the
// type, and a text that the place or the message names.
type hostile struct {
	archive     []byte
	status      int
	kind, names string
}

func hostiles(t *testing.T) map[string]hostile {
	t.Helper()
	good := packed(t, project()...)
	file := func(name string) []byte { return packed(t, project(entry{name: name, body: "x"})...) }
	link := func(kind byte, target string) []byte {
		return packed(t, project(entry{name: "src/link.js", kind: kind, link: target})...)
	}
	zeros := strings.Repeat("\x00", 8<<20)
	long := make([]byte, 2<<20+1)
	copy(long, good)
	return map[string]hostile{
		"climbing path":        {file("../evil.js"), 422, "archive_path_invalid", "../evil.js"},
		"climbing path inside": {file("src/../../evil.js"), 422, "archive_path_invalid", "src/../../evil.js"},
		"absolute path":        {file("/etc/passwd"), 422, "archive_path_invalid", "/etc/passwd"},
		"backslash":            {file(`src\evil.js`), 422, "archive_path_invalid", `src\\evil.js`},
		"symbolic link":        {link(tar.TypeSymlink, "/etc/passwd"), 422, "archive_entry_unsupported", "src/link.js"},
		"hard link":            {link(tar.TypeLink, "worker.json"), 422, "archive_entry_unsupported", "src/link.js"},
		"device":               {link(tar.TypeChar, ""), 422, "archive_entry_unsupported", "src/link.js"},
		"pipe":                 {link(tar.TypeFifo, ""), 422, "archive_entry_unsupported", "src/link.js"},
		"name twice":           {file("src/index.js"), 422, "archive_duplicate_name", "src/index.js"},
		"name in another case": {file("SRC/Index.js"), 422, "archive_duplicate_name", "SRC"},
		"bomb":                 {packed(t, project(entry{name: "a", body: zeros}, entry{name: "bomb", body: zeros})...), 422, "archive_too_large", "bomb"},
		"too many files":       {packed(t, project(many(1000)...)...), 422, "archive_too_large", "1000 files"},
		"2 MiB and a byte":     {long, 413, "", "Project archive exceeds 2 MiB"},
		"nothing":              {nil, 422, "archive_invalid", "empty"},
		"no entries":           {packed(t), 422, "archive_invalid", "empty"},
		"cut off":              {good[:len(good)-20], 422, "archive_invalid", "truncated"},
		"two streams":          {append(slices.Clone(good), good...), 422, "archive_invalid", "after the end"},
		"no gzip":              {[]byte("PK\x03\x04 this is a zip"), 422, "archive_invalid", "not gzip"},
		"no manifest":          {packed(t, entry{name: "src/index.js", body: source}), 422, "manifest_missing", "worker.json"},
		"wrong manifest":       {packed(t, entry{name: "worker.json", body: `{"schema_version":2}`}), 422, "manifest_invalid", "worker.json"},
		"no entry file":        {packed(t, entry{name: "worker.json", body: manifest}), 422, "manifest_entry_invalid", "src/index.js"},
		"unknown import":       {packed(t, with("import x from './gone.js';\n"+source)...), 422, "import_unresolved", "./gone.js"},
		"outside import":       {packed(t, with("import x from '../../../etc/passwd';\n"+source)...), 422, "import_unresolved", "passwd"},
		"node built-in":        {packed(t, with("import fs from 'node:fs';\n"+source)...), 422, "import_unresolved", "node:fs"},
		"platform module":      {packed(t, with("import { env } from 'cloudflare:workers';\n"+source)...), 422, "import_unresolved", "cloudflare:workers"},
		"package import":       {packed(t, with("import x from 'left-pad';\n"+source)...), 422, "import_unresolved", "left-pad"},
		"package declared":     {packed(t, project(entry{name: "package.json", body: `{"dependencies":{"left-pad":"1.3.0"}}`})...), 422, "lock_missing", "left-pad"},
	}
}

func many(n int) []entry {
	var out []entry
	for i := range n {
		out = append(out, entry{name: fmt.Sprintf("f/%d", i), body: "x"})
	}
	return out
}

// D7: what may not come in does not, each with its status and with a problem
// that names it; nothing of it stays; and a good project then works as ever.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	d := start(t, filepath.Join(t.TempDir(), "data"))
	for name, h := range hostiles(t) {
		got := d.submit(d.ManagerToken, h.archive)
		if got.code != h.status || !strings.Contains(string(got.body), h.names) || !strings.Contains(string(got.body), h.kind) {
			t.Errorf("%s: %d %s %v, want %d %s naming %s", name, got.code, got.body, got.err, h.status, h.kind, h.names)
		}
	}
	// A syntax error has its file, line and column.
	got := d.submit(d.ManagerToken, packed(t, with("export default {\n  say: () => 'x' +,\n};\n")...))
	var refused struct {
		Detail []struct {
			Type string
			Loc  []any
		}
	}
	got.into(t, http.StatusUnprocessableEntity, &refused)
	if len(refused.Detail) != 1 || fmt.Sprint(refused.Detail[0].Loc) != "[src/index.js 2 19]" {
		t.Errorf("syntax error: %s", got.body)
	}

	var page gen.VersionPage
	d.call("GET", "/worker/versions", d.ManagerToken, "", "").into(t, 200, &page)
	if len(page.Items) != 0 || len(d.artifacts()) != 0 {
		t.Errorf("%d versions and files %v are left of refused archives", len(page.Items), d.artifacts())
	}
	v, ticket := d.release(d.ManagerToken, packed(t, project()...)) // the control
	if ticket.Status != gen.TicketStatusCompleted || len(d.artifacts()) == 0 {
		t.Fatalf("a good project: %+v", ticket)
	}
	d.says("first")
	d.brokenModules(v)
}

// brokenModules deploys what builds and does not start: the deployment fails
// with the host's verdict, and the release before it serves on.
func (d *dev) brokenModules(good gen.Version) {
	d.t.Helper()
	for name, text := range map[string]string{
		"throws": "throw new Error('at the top');\n" + source,
		"loops":  "for (;;) {}\n" + source,
	} {
		v, ticket := d.release(d.ManagerToken, packed(d.t, with(text)...))
		if ticket.Status != gen.TicketStatusFailed || ticket.ErrorCode == nil || *ticket.ErrorCode != "edge_host_bundle_rejected" {
			text, _ := json.Marshal(ticket)
			d.t.Errorf("%s: %s\n%s", name, text, tail(d.data+".log"))
		}
		var read gen.Version
		d.call("GET", "/worker/versions/"+v.ID, d.ManagerToken, "", "").into(d.t, 200, &read)
		var worker gen.Worker
		d.call("GET", "/worker", d.ManagerToken, "", "").into(d.t, 200, &worker)
		if read.State != gen.VersionStateFailed || worker.Status != gen.Active || worker.CurrentVersionID == nil || *worker.CurrentVersionID != good.ID {
			d.t.Errorf("%s: version %s, worker %+v", name, read.State, worker)
		}
		d.says("first")
	}
	_, ticket := d.release(d.ManagerToken, packed(d.t, with(strings.Replace(source, "first", "last", 1))...))
	if ticket.Status != gen.TicketStatusCompleted {
		d.t.Errorf("after broken modules: %+v", ticket)
	}
	d.says("last")
}

func (d *dev) says(want string) {
	d.t.Helper()
	got := d.json("POST", "/worker/invoke/say", d.ManagerToken, "{}")
	if got.code != 200 || string(got.body) != `"`+want+`"` {
		d.t.Errorf("the Worker says %d %s %v, want %q", got.code, got.body, got.err, want)
	}
}

// artifacts lists the regular files in the artifact store.
func (d *dev) artifacts() []string {
	d.t.Helper()
	var files []string
	must(d.t, filepath.WalkDir(filepath.Join(d.data, "artifacts"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	}))
	return files
}
