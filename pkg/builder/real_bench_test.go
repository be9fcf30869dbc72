package builder

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/runtime"
)

// BenchmarkRealPackages is a whole warm build with 64 npm packages: what a
// submission costs from its second time on.
func BenchmarkRealPackages(b *testing.B) {
	p := realProject(b)
	builder := builderWith(b, packagesOf(b, npm.Params{Registry: npmtest.Real(b)}))
	build := func() {
		_, err := builder.Build(b.Context(), Input{Project: p, ScriptName: scriptName})
		if err != nil {
			b.Fatal(err)
		}
	}
	build()
	for b.Loop() {
		build()
	}
}

// BenchmarkRealPackagesFromFolder is the same with the packages in the cache
// folder only, as after a restart.
func BenchmarkRealPackagesFromFolder(b *testing.B) {
	p, registry, dir := realProject(b), npmtest.Real(b), b.TempDir()
	for b.Loop() {
		builder := builderWith(b, packagesOf(b, npm.Params{Registry: registry, CacheDir: dir}))
		_, err := builder.Build(b.Context(), Input{Project: p, ScriptName: scriptName})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRealPackagesBare is the bundler alone, with its own resolver, on the
// same files in a folder.
func BenchmarkRealPackagesBare(b *testing.B) {
	dir := unpackedProject(b)
	for b.Loop() {
		result := api.Build(api.BuildOptions{
			AbsWorkingDir: dir, EntryPoints: []string{"src/index.ts"}, Outfile: "index.mjs", Bundle: true, Format: api.FormatESModule,
			Platform: api.PlatformBrowser, Conditions: []string{"worker"}, Target: api.ES2022, Charset: api.CharsetUTF8,
			LegalComments: api.LegalCommentsEndOfFile, Metafile: true, TsconfigRaw: "{}", LogLevel: api.LogLevelSilent, External: []string{"cloudflare:*"},
			Alias: map[string]string{authorModule: "./runtime.mjs"}, Define: map[string]string{"process.env.NODE_ENV": `"production"`},
		})
		if len(result.Errors) > 0 {
			b.Fatal(result.Errors[0].Text)
		}
	}
}

// unpackedProject is a folder with the project, its packages and the runtime.
func unpackedProject(b *testing.B) string {
	b.Helper()
	p, registry, dir := realProject(b), npmtest.Real(b), b.TempDir()
	write := func(name string, content []byte) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
		if err != nil {
			b.Fatal(err)
		}
	}
	for name, content := range p.Files {
		write(name, content)
	}
	write("runtime.mjs", []byte(runtime.Module()))
	root, problems := readRoot(p)
	lock, more := packagesOf(b, npm.Params{}).Read(p.Files[npm.LockName], root, authorModule)
	if len(problems)+len(more) > 0 {
		b.Fatal(problems, more)
	}
	for _, entry := range lock.Packages {
		short := entry.Name[strings.LastIndexByte(entry.Name, '/')+1:]
		err := download(fmt.Sprintf("%s/%s/-/%s-%s.tgz", registry, entry.Name, short, entry.Version), func(name string, content []byte) {
			write(entry.Path+"/"+name, content)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// download fetches a tarball and visits its files.
func download(address string, visit func(name string, content []byte)) error {
	response, err := http.Get(address)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	zip, err := gzip.NewReader(response.Body)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		_, name, found := strings.Cut(header.Name, "/")
		if !found || header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		visit(name, content)
	}
}
