package npm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/fault"
)

var subject = Entry{Path: "node_modules/x", Name: "x", Version: "1.0.0"}

type file = npmtest.Entry

// own is the package.json that every package has.
var own = file{Name: "package/package.json", Body: "{}"}

func problem(err error) string {
	refused := fault.As(err)
	if refused == nil || refused.Kind != fault.Invalid || len(refused.Problems) != 1 {
		return fmt.Sprintf("no refusal: %v", err)
	}
	return refused.Problems[0].Type + ": " + refused.Problems[0].Msg
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	got, err := unpack(subject, npmtest.Pack(
		file{Name: "package/", Type: tar.TypeDir},
		file{Name: "package/package.json", Body: "\ufeff{\"type\":\"module\"}"},
		file{Name: "package/index.js", Body: "first"},
		file{Name: "package/index.js", Body: "second"},
		file{Name: "./package/lib/a.mjs", Body: "a"},
		file{Name: "other-folder//lib/./b.cjs", Body: "b"},
		file{Name: "package/data.json", Body: "1"},
		file{Name: "package/empty.js"},
		file{Name: "package/types.d.ts", Body: "t"},
		file{Name: "package/README.md", Body: "r"},
		file{Name: "package/style.css", Body: "c"},
		file{Name: "package/LICENSE", Body: "l"},
		file{Name: "package/native.node", Body: "\x7fELF"},
		file{Name: "package/node_modules/inner/index.js", Body: "n"},
		file{Name: "package/link.js", Type: tar.TypeSymlink, Link: "/etc/passwd"},
		file{Name: "package/hard.js", Type: tar.TypeLink, Link: "package/index.js"},
		file{Name: "package/device.js", Type: tar.TypeChar},
		file{Name: "package/pipe.js", Type: tar.TypeFifo},
		file{Name: "outside.js", Body: "o"},
	))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"package.json": "\ufeff{\"type\":\"module\"}", "index.js": "second", "lib/a.mjs": "a", "lib/b.cjs": "b", "data.json": "1", "empty.js": "",
	}
	if !maps.Equal(got.files, want) {
		t.Errorf("files %q", got.files)
	}
	if others := slices.Sorted(maps.Keys(got.others)); !slices.Equal(others, []string{"LICENSE", "native.node", "style.css"}) {
		t.Errorf("others %q", others)
	}
	if got.size != int64(len("\ufeff{\"type\":\"module\"}")+len("second")+3) || !got.manifests[""].module {
		t.Errorf("size %d, manifest %+v", got.size, got.manifests[""])
	}
}

func TestUnpackRefuses(t *testing.T) {
	t.Parallel()
	good := npmtest.Pack(own, file{Name: "package/index.js", Body: strings.Repeat("text ", 4000)})
	many := []file{own}
	for i := range MaxFiles {
		many = append(many, file{Name: fmt.Sprintf("package/%d", i)})
	}
	large := strings.Repeat("x", 33<<20)
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"nothing":            {nil, "dependency_invalid: x@1.0.0 is not a package: it is not gzip"},
		"no gzip":            {[]byte("PK\x03\x04"), "it is not gzip"},
		"no tar":             {packed(t, []byte(strings.Repeat("no tar ", 1000))), "dependency_invalid: x@1.0.0 is not a package: its tarball is damaged"},
		"cut off":            {good[:len(good)/2], "its tarball is damaged"},
		"a changed byte":     {flipped(good), "its tarball is damaged"},
		"no package.json":    {npmtest.Pack(file{Name: "package/index.js"}), "x@1.0.0 is not a package: it has no package.json"},
		"a broken one":       {npmtest.Pack(file{Name: "package/package.json", Body: "{"}), "its package.json cannot be read"},
		"one that is a list": {npmtest.Pack(file{Name: "package/package.json", Body: "[]"}), "its package.json cannot be read: it is not an object"},
		"one nested deep":    {npmtest.Pack(file{Name: "package/package.json", Body: strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50)}), "nested too deep"},
		"a path that leaves": {npmtest.Pack(own, file{Name: "package/../../etc/passwd", Body: "x"}), `dependency_invalid: x@1.0.0 is not a package: its file "package/../../etc/passwd" is outside the package`},
		"a folder that does": {npmtest.Pack(own, file{Name: "../", Type: tar.TypeDir}), "is outside the package"},
		"a link that does":   {npmtest.Pack(own, file{Name: "package/../../x", Type: tar.TypeSymlink, Link: "y"}), "is outside the package"},
		"an absolute path":   {npmtest.Pack(own, file{Name: "/etc/passwd", Body: "x"}), `its file "/etc/passwd" has an absolute or unportable path`},
		"a backslash":        {npmtest.Pack(own, file{Name: `package\..\..\x.js`, Body: "x"}), "absolute or unportable path"},
		"a drive":            {npmtest.Pack(own, file{Name: `C:/x.js`, Body: "x"}), "absolute or unportable path"},
		"a long path":        {npmtest.Pack(own, file{Name: "package/" + strings.Repeat("a", 1024), Body: "x"}), "over 1,024 bytes"},
		"too many files":     {npmtest.Pack(many...), "dependency_too_large: x@1.0.0 has more than 64 MiB, 32 MiB of code or 20000 files"},
		"33 MiB of code":     {npmtest.Pack(own, file{Name: "package/x.js", Body: large}), "dependency_too_large"},
		"66 MiB of the rest": {npmtest.Pack(own, file{Name: "package/x.md", Body: large}, file{Name: "package/y.md", Body: large}), "dependency_too_large"},
		"a claim of 1 GiB":   {packed(t, claim(t, 1<<30)), "dependency_too_large"},
		"a sparse file":      {packed(t, sparse(t)), "sparse"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := unpack(subject, c.raw)
			if text := problem(err); got != nil || !strings.Contains(text, c.want) {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
	if _, err := unpack(subject, good); err != nil {
		t.Error(err)
	}
}

// A bomb is stopped at the bound: what lies beyond, here nothing but damage, is
// not read. Damage before the bound is found.
func TestBombIsStopped(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("\x00", 1<<20)
	bomb := []file{own}
	for i := range 72 {
		bomb = append(bomb, file{Name: fmt.Sprintf("package/%d.md", i), Body: zeros})
	}
	raw := npmtest.Pack(bomb...)
	for megabytes, want := range map[int]string{
		70: "dependency_too_large: x@1.0.0", 60: "dependency_invalid: x@1.0.0 is not a package: its tarball is damaged",
	} {
		_, err := unpack(subject, raw[:len(raw)*megabytes/72])
		if text := problem(err); !strings.HasPrefix(text, want) {
			t.Errorf("cut after %d MiB: %s", megabytes, text)
		}
	}
}

// claim is the header of a file with that many bytes, and nothing else.
func claim(t *testing.T, size int64) []byte {
	t.Helper()
	var out bytes.Buffer
	err := tar.NewWriter(&out).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "package/x.txt", Size: size, Mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sparse is a tar with a file of 1 GiB that holds nothing.
func sparse(t *testing.T) []byte {
	t.Helper()
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	body := append([]byte("1\n0\n0\n"), make([]byte, 504)...)[:512]
	err := archive.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: "package/x.js", Size: int64(len(body)), Mode: 0o644, Format: tar.FormatPAX,
		PAXRecords: map[string]string{"XXX.sparse.major": "1", "XXX.sparse.minor": "0", "XXX.sparse.realsize": "1073741824"},
	})
	if err == nil {
		_, err = archive.Write(body)
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("XXX.sparse"), []byte("GNU.sparse"))
}

func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(content)
	if err = errors.Join(err, zip.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func flipped(raw []byte) []byte {
	changed := bytes.Clone(raw)
	changed[len(changed)/2] ^= 0xff
	return changed
}

func FuzzUnpack(f *testing.F) {
	f.Add(npmtest.Pack(own, file{Name: "package/index.js", Body: "x"}))
	f.Add(npmtest.Pack(file{Name: "a/package.json", Body: `{"browser":{"x":false},"exports":{".":{"import":"./x"}},"sideEffects":["*.js"]}`}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := unpack(subject, raw)
		if err != nil {
			if text := problem(err); !strings.Contains(text, "x@1.0.0") {
				t.Error(text)
			}
			return
		}
		var size int64
		for name, content := range got.files {
			size += int64(len(content))
			if strings.HasPrefix(name, "/") || strings.HasPrefix(name, "../") {
				t.Errorf("file %q", name)
			}
		}
		if size != got.size || size > MaxImportable {
			t.Errorf("size %d, files of %d", got.size, size)
		}
	})
}
