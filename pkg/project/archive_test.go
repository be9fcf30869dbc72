package project

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// member is one entry of a test archive.
type member struct {
	header tar.Header
	body   string
}

func file(name, body string) member {
	return member{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, body}
}

func folder(name string) member {
	return member{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}, ""}
}

func link(kind byte, name, target string) member {
	return member{tar.Header{Typeflag: kind, Name: name, Linkname: target}, ""}
}

const goodManifest = `{"schema_version":1,"name":"n","language":"javascript","entry":"index.js",` +
	`"compatibility_date":"2026-11-01","operations":[{"id":"a","method":"GET","path":"/"}]}`

// good are the least members of a clean archive.
func good(more ...member) []member {
	return append([]member{file("worker.json", goodManifest), file("index.js", "export default {}")}, more...)
}

func tarOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, m := range members {
		m.header.Size = int64(len(m.body))
		err := archive.WriteHeader(&m.header)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(archive, m.body)
		if err != nil {
			t.Fatal(err)
		}
	}
	err := archive.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipOf(t testing.TB, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(content)
	err = errors.Join(err, zip.Close())
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func archiveOf(t testing.TB, members ...member) []byte { return zipOf(t, tarOf(t, members...)) }

// read returns the problems of an archive as lines "type loc: msg".
func read(t testing.TB, archive []byte) []string {
	t.Helper()
	p, err := Read(bytes.NewReader(archive))
	if err == nil {
		if p == nil || p.Manifest == nil {
			t.Fatal("no error and no project")
		}
		return nil
	}
	return projecttest.Problems(t, err)
}

func TestReadGood(t *testing.T) {
	t.Parallel()
	archive := archiveOf(t, folder("./"), folder("./src/"), file("./worker.json", goodManifest), file("index.js", "export default {}"),
		file("./src/ü.ts", "x"), folder("src/"), file("static/Ä b.json", "{}"))
	p, err := Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Files) != 4 || string(p.Files["src/ü.ts"]) != "x" || string(p.Files["static/Ä b.json"]) != "{}" {
		t.Errorf("files %v", p.Files)
	}
	if p.Digest != canonical.SHA256(archive) || !bytes.Equal(p.Archive, archive) {
		t.Error("the archive or its digest is not the one that was read")
	}
	if p.Manifest.Operations[0].Path != "/" || p.Manifest.Language != JavaScript {
		t.Errorf("manifest %+v", p.Manifest)
	}
	text, err := canonical.Transform([]byte(goodManifest))
	if err != nil || !bytes.Equal(p.ManifestJSON, text) {
		t.Errorf("canonical manifest %s", p.ManifestJSON)
	}
}

// A global header with a comment, as `git archive` writes it, and long names
// in either extension are ordinary.
func TestReadOrdinaryExtensions(t *testing.T) {
	t.Parallel()
	comment := member{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "c0ffee"}}, ""}
	long := strings.Repeat("d/", 60) + strings.Repeat("f", MaxPath-120)
	gnu := file(strings.Repeat("g", 150), "x")
	gnu.header.Format = tar.FormatGNU
	projecttest.Same(t, read(t, archiveOf(t, append([]member{comment}, good(file(long, "x"), gnu)...)...)))
}

func TestReadRefusesEntries(t *testing.T) {
	t.Parallel()
	device := member{tar.Header{Typeflag: tar.TypeChar, Name: "dev"}, ""}
	override := member{tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "g", PAXRecords: map[string]string{"path": "evil"}}, ""}
	cases := []struct {
		name    string
		members []member
		want    []string
	}{
		{"symbolic link", good(link(tar.TypeSymlink, "l", "/etc/passwd")), []string{
			"archive_entry_unsupported [archive l]: the archive holds a symbolic link: only regular files and folders are accepted"}},
		{"hard link", good(link(tar.TypeLink, "l", "index.js")), []string{
			"archive_entry_unsupported [archive l]: the archive holds a hard link: only regular files and folders are accepted"}},
		{"device", good(device), []string{
			"archive_entry_unsupported [archive dev]: the archive holds a device: only regular files and folders are accepted"}},
		{"named pipe", good(link(tar.TypeFifo, "p", "")), []string{
			"archive_entry_unsupported [archive p]: the archive holds a named pipe: only regular files and folders are accepted"}},
		{"a global header that renames", append([]member{override}, good()...), []string{
			"archive_entry_unsupported [archive evil]: the archive holds a global header that changes other entries: only regular files and folders are accepted"}},
		{"absolute", good(file("/etc/x", "")), []string{"archive_path_invalid [archive /etc/x]: the path is absolute"}},
		{"parent", good(file("a/../../x", "")), []string{`archive_path_invalid [archive a/../../x]: the path has a segment ".."`}},
		{"parent folder", good(folder("../")), []string{`archive_path_invalid [archive ../]: the path has a segment ".."`}},
		{"dot segment", good(file("a/./x", "")), []string{`archive_path_invalid [archive a/./x]: the path has a segment "."`}},
		{"empty segment", good(file("a//x", "")), []string{"archive_path_invalid [archive a//x]: the path has an empty segment"}},
		{"backslash", good(file(`a\x`, "")), []string{`archive_path_invalid [archive a\x]: the path has a backslash`}},
		{"control character", good(file("a\nb", "")), []string{`archive_path_invalid [archive "a\nb"]: the path has a control character`}},
		{"text direction", good(file("a\u202eb", "")), []string{`archive_path_invalid [archive "a\u202eb"]: the path has a control character`}},
		{"too long", good(file(strings.Repeat("x", MaxPath+1), "")), []string{
			"archive_path_invalid [archive " + strings.Repeat("x", MaxPath+1) + "]: the path is longer than 255 bytes"}},
		{"the same name twice", good(file("index.js", "other")), []string{"archive_duplicate_name [archive index.js]: the name is in the archive twice"}},
		{"the same name with ./", good(file("./index.js", "other")), []string{"archive_duplicate_name [archive index.js]: the name is in the archive twice"}},
		{"another case", good(file("INDEX.js", "")), []string{`archive_duplicate_name [archive INDEX.js]: the name equals "index.js" when case is ignored`}},
		{"a folder in another case", good(file("src/a", ""), file("SRC/b", "")), []string{
			`archive_duplicate_name [archive SRC/b]: the name equals "src" when case is ignored`}},
		{"another normal form", good(file("\u00e9", ""), file("e\u0301", "")), []string{
			"archive_duplicate_name [archive e\u0301]: the name equals \"\u00e9\" when case is ignored"}},
		{"the sharp s", good(file("straße", ""), file("STRASSE", "")), []string{
			`archive_duplicate_name [archive STRASSE]: the name equals "straße" when case is ignored`}},
		{"a file that is a folder", good(file("a", ""), file("a/b", "")), []string{`archive_duplicate_name [archive a/b]: "a" is both a file and a folder`}},
		{"a folder that is a file", good(file("a/b", ""), file("a", "")), []string{`archive_duplicate_name [archive a]: "a" is both a file and a folder`}},
		{"all of it", good(file("/x", ""), link(tar.TypeSymlink, "l", "x"), file("a//b", "")), []string{
			"archive_path_invalid [archive /x]: the path is absolute",
			"archive_entry_unsupported [archive l]: the archive holds a symbolic link: only regular files and folders are accepted",
			"archive_path_invalid [archive a//b]: the path has an empty segment"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { projecttest.Same(t, read(t, archiveOf(t, c.members...)), c.want...) })
	}
	projecttest.Same(t, read(t, archiveOf(t, good()...)))
}

// Names that Go's tar writer does not write, put straight into the header.
func TestReadRefusesRawNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a\xffb": `archive_path_invalid [archive "a\xffb"]: the path is not valid UTF-8`,
		"":       "archive_path_invalid [archive]: the path is empty",
	} {
		raw := tarOf(t, good(file("PLACE", "x"))...)
		at := bytes.Index(raw, []byte("PLACE"))
		copy(raw[at:], name+strings.Repeat("\x00", 8))
		checksum(raw[at : at+512])
		projecttest.Same(t, read(t, zipOf(t, raw)), want)
	}
}

// checksum writes a header block's checksum anew.
func checksum(block []byte) {
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

func TestReadRefusesBrokenStreams(t *testing.T) {
	t.Parallel()
	clean := archiveOf(t, good()...)
	tarball := tarOf(t, good()...)
	damaged := bytes.Clone(clean)
	damaged[len(damaged)-6] ^= 1
	bad := bytes.Clone(tarball)
	copy(bad[148:], "9999999")
	cases := []struct {
		name    string
		archive []byte
		want    string
	}{
		{"nothing", nil, "archive_invalid [archive]: the archive is empty: 0 bytes were sent"},
		{"not gzip", []byte("PK\x03\x04 a zip file"), "archive_invalid [archive]: the archive is not gzip: send a .tar.gz file"},
		{"one byte", []byte{0x1f}, "archive_invalid [archive]: the archive is not gzip: send a .tar.gz file"},
		{"gzip of nothing", zipOf(t, nil), "archive_invalid [archive]: the archive is empty: it holds no files"},
		{"an empty tar", archiveOf(t), "archive_invalid [archive]: the archive is empty: it holds no files"},
		{"only a folder", archiveOf(t, folder("a/")), "archive_invalid [archive]: the archive is empty: it holds no files"},
		{"truncated gzip", clean[:len(clean)-12], "archive_invalid [archive]: the archive is truncated"},
		{"truncated checksum", clean[:len(clean)-2], "archive_invalid [archive]: the archive is truncated"},
		{"tar truncated in a file", zipOf(t, tarball[:600]), "archive_invalid [archive]: the archive is truncated"},
		{"tar truncated in the padding", zipOf(t, tarball[:1000]), "archive_invalid [archive]: the archive is truncated"},
		{"tar truncated between files", zipOf(t, tarball[:1024]), "archive_invalid [archive]: the archive is truncated"},
		{"wrong checksum", damaged, "archive_invalid [archive]: the archive is damaged: its checksum does not match"},
		{"a second gzip stream", append(bytes.Clone(clean), clean...), "archive_invalid [archive]: the archive has data after the end of its gzip stream"},
		{"bytes behind gzip", append(bytes.Clone(clean), 0), "archive_invalid [archive]: the archive has data after the end of its gzip stream"},
		{"bytes behind the tar", zipOf(t, append(bytes.Clone(tarball), "hidden"...)), "archive_invalid [archive]: the archive has data after the end of its tar"},
		{"a second tar", zipOf(t, append(bytes.Clone(tarball), tarball...)), "archive_invalid [archive]: the archive has data after the end of its tar"},
		{"no tar", zipOf(t, bytes.Repeat([]byte("x"), 2000)), "archive_invalid [archive]: the archive is damaged or holds no tar: archive/tar: invalid tar header"},
		{"a wrong header", zipOf(t, bad), "archive_invalid [archive]: the archive is damaged or holds no tar: archive/tar: invalid tar header"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { projecttest.Same(t, read(t, c.archive), c.want) })
	}
	projecttest.Same(t, read(t, clean))
	projecttest.Same(t, read(t, zipOf(t, append(bytes.Clone(tarball), make([]byte, 10240)...))))
}

// S2-143, S1-090: 2 MiB pass, one byte more does not, and no more than that
// byte is read.
func TestReadBoundsTheUpload(t *testing.T) {
	t.Parallel()
	random := make([]byte, MaxCompressed-40_000)
	_, err := rand.Read(random)
	if err != nil {
		t.Fatal(err)
	}
	content := tarOf(t, good(file("random", string(random)))...)
	plain := len(zipOf(t, content))
	// An extra field of the gzip header fills up the rest.
	sized := func(n int) []byte {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		zip.Extra = make([]byte, n-plain-2)
		_, err := zip.Write(content)
		if errors.Join(err, zip.Close()) != nil || out.Len() != n {
			t.Fatalf("the test archive has %d bytes: %v", out.Len(), err)
		}
		return out.Bytes()
	}
	projecttest.Same(t, read(t, sized(MaxCompressed)))
	source := bytes.NewReader(append(sized(MaxCompressed+1), make([]byte, 1000)...))
	_, err = Read(source)
	if fault.KindOf(err) != fault.TooLarge {
		t.Errorf("over the bound: %v", err)
	}
	if source.Len() != 1000 {
		t.Errorf("%d bytes are unread, want 1000", source.Len())
	}
}

func TestReadFailsWithItsSource(t *testing.T) {
	t.Parallel()
	broken := errors.New("the connection broke")
	_, err := Read(io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) { return 0, broken })))
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReadBoundsTheContent(t *testing.T) {
	t.Parallel()
	many := func(n int) []member {
		var all []member
		for i := range n {
			all = append(all, file(fmt.Sprintf("f/%d", i), ""))
		}
		return all
	}
	folders := func(n int) []member {
		var all []member
		for i := range n {
			all = append(all, folder(fmt.Sprintf("d/%d/", i)))
		}
		return all
	}
	rest := MaxUnpacked - len(goodManifest) - len("export default {}")
	zeros := func(n int) string { return strings.Repeat("\x00", n) }
	cases := []struct {
		name    string
		members []member
		want    []string
	}{
		{"16 MiB", good(file("z", zeros(rest))), nil},
		{"16 MiB and a byte", good(file("z", zeros(rest+1))), []string{"archive_too_large [archive z]: the files of the archive exceed 16 MiB unpacked"}},
		{"1,000 files", good(many(MaxFiles - 2)...), nil},
		{"1,001 files", good(many(MaxFiles - 1)...), []string{"archive_too_large [archive]: the archive holds more than 1000 files"}},
		{"1,000 folders", good(folders(MaxFolders)...), nil},
		{"1,001 folders", good(folders(MaxFolders + 1)...), []string{"archive_too_large [archive]: the archive holds more than 1000 folders"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { projecttest.Same(t, read(t, archiveOf(t, c.members...)), c.want...) })
	}
}

// A bomb costs about what the bound allows, whatever it would unpack to: 1 GiB
// of zeros in a 1 MiB archive, behind the end of the tar, where no header
// claims it.
func TestReadStopsAtABomb(t *testing.T) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	_, err = zip.Write(tarOf(t, good()...))
	block := make([]byte, 1<<20)
	for range 200 {
		_, more := zip.Write(block)
		err = errors.Join(err, more)
	}
	if errors.Join(err, zip.Close()) != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	projecttest.Same(t, read(t, out.Bytes()), "archive_too_large [archive]: the archive exceeds 16 MiB unpacked")
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d bytes were allocated for a bomb of %d", used, out.Len())
	}
	// A header that claims much costs nothing either.
	claim := tarOf(t, good(file("z", ""))...)
	at := bytes.Index(claim, []byte("z\x00"))
	copy(claim[at+124:], "77777777777\x00")
	checksum(claim[at : at+512])
	projecttest.Same(t, read(t, zipOf(t, claim)), "archive_too_large [archive z]: the files of the archive exceed 16 MiB unpacked")
}

func TestReadListsAtMostFiftyProblems(t *testing.T) {
	t.Parallel()
	var members []member
	for i := range 200 {
		members = append(members, file(fmt.Sprintf("/%d", i), ""))
	}
	if got := read(t, archiveOf(t, good(members...)...)); len(got) != MaxProblems {
		t.Errorf("%d problems", len(got))
	}
}

func TestReadRefusesSparseFiles(t *testing.T) {
	t.Parallel()
	sparse := file("sparse", "x")
	raw := tarOf(t, good(sparse)...)
	at := bytes.Index(raw, []byte("sparse\x00"))
	raw[at+156] = tar.TypeGNUSparse
	copy(raw[at+257:], "ustar  \x00")
	// One block of data at 0, and the real size 1 GiB.
	copy(raw[at+386:], "00000000000\x0000000000001\x00")
	copy(raw[at+483:], "10000000000\x00")
	checksum(raw[at : at+512])
	got := read(t, zipOf(t, raw))
	if len(got) != 1 || !strings.Contains(got[0], "sparse") {
		t.Errorf("got %v", got)
	}
}
