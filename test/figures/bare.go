// Package figures takes the speeds that the project promises. The demo prints
// them and the benchmarks keep them, so both take them here, and each figure is
// a ratio or a share of what was measured in the same run.
package figures

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evanw/esbuild/pkg/api"
	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/runtime"
)

// Bare is what no submission can do without: bundling the same files with
// esbuild alone, and writing archive and bundle to a store. Submissions are
// measured against it.
type Bare struct {
	// Archive is the packed project, as it is submitted.
	Archive []byte

	folder string
	store  *artifact.Directory
	writes int
}

// NewBare packs a project and lays its files out in an empty folder.
func NewBare(projectFolder, folder string) (*Bare, error) {
	archive, err := project.Pack(projectFolder)
	if err != nil {
		return nil, err
	}
	source, err := project.Read(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	for name, data := range source.Files {
		err := write(filepath.Join(folder, "project", name), data)
		if err != nil {
			return nil, err
		}
	}
	err = errors.Join(
		write(filepath.Join(folder, "runtime.mjs"), []byte(runtime.Module())),
		write(filepath.Join(folder, "author.mjs"), []byte("export const defineWorker = (x) => x; export class OperationError extends Error {}\n")),
		write(filepath.Join(folder, "index.mjs"), []byte("export * from './runtime.mjs'; import entry from './project/"+source.Manifest.Entry+"'; globalThis.entry = entry;\n")),
	)
	if err != nil {
		return nil, err
	}
	store, err := artifact.NewDirectory(filepath.Join(folder, "store"))
	if err != nil {
		return nil, err
	}
	return &Bare{Archive: archive, folder: folder, store: store}, nil
}

func write(name string, data []byte) error {
	err := os.MkdirAll(filepath.Dir(name), 0o700)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o600)
}

// Install lets npm put the project's packages beside its files.
func (b *Bare) Install(ctx context.Context, registry string) error {
	command := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund")
	command.Dir = filepath.Join(b.folder, "project")
	command.Env = append(os.Environ(), "npm_config_registry="+registry)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm ci: %w: %s", err, out)
	}
	return nil
}

// Close closes the store; the folder is the caller's.
func (b *Bare) Close() error { return b.store.Close() }

// Once bundles and writes once and tells how long each took, in this order.
func (b *Bare) Once(ctx context.Context) (time.Duration, time.Duration, error) {
	bundle, bundling, err := b.bundle()
	if err != nil {
		return 0, 0, err
	}
	writing, err := b.write(ctx, bundle)
	return bundling, writing, err
}

func (b *Bare) bundle() ([]byte, time.Duration, error) {
	began := time.Now()
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: b.folder, EntryPoints: []string{"index.mjs"}, Outfile: "out.mjs", Bundle: true, Format: api.FormatESModule,
		Platform: api.PlatformBrowser, Target: api.ES2022, LogLevel: api.LogLevelSilent, External: []string{"cloudflare:*"},
		Alias:      map[string]string{"@teamsync/edge-worker": "./author.mjs"},
		Loader:     map[string]api.Loader{".sql": api.LoaderText},
		Conditions: []string{"worker"}, Define: map[string]string{"process.env.NODE_ENV": `"production"`},
	})
	took := time.Since(began)
	if len(result.Errors) > 0 {
		return nil, 0, fmt.Errorf("bare bundling: %s", result.Errors[0].Text)
	}
	return result.OutputFiles[0].Contents, took, nil
}

// write stores archive and bundle in a directory store, both at once, as a
// submission does.
func (b *Bare) write(ctx context.Context, bundle []byte) (time.Duration, error) {
	store := artifact.NewFenced(b.store)
	b.writes++
	id := fmt.Sprint(b.writes)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for kind, content := range map[artifact.Kind][]byte{artifact.Project: b.Archive, artifact.Bundle: bundle} {
		group.Go(func() error {
			sum := sha256.Sum256(content)
			return store.Put(ctx, artifact.Object{
				Tenant: artifact.Tenant{CompanyID: "c", DepartmentID: "d"}, Kind: kind, ArtifactID: id,
				Digest: hex.EncodeToString(sum[:]), Content: content,
			})
		})
	}
	err := group.Wait()
	if err != nil {
		return 0, fmt.Errorf("bare writing: %w", err)
	}
	return time.Since(began), nil
}
