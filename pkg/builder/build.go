package builder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/project"
)

// ErrTimeout answers a build that did not end within its time limit.
var ErrTimeout = fault.Coded(fault.Timeout, "build_timeout", "The project build exceeded its time limit")

// run builds within the time limit. The slot is given back when the work has
// really ended, which may be after the caller has its answer.
func (b *Builder) run(ctx context.Context, in Input, deps *dependencies) (*Output, error) {
	return within(ctx, b.timeout, func(ctx context.Context) (*Output, error) {
		defer b.slots.Release(1)
		return b.make(ctx, in, deps)
	})
}

// within runs work and waits for it no longer than limit, nor than ctx lives.
// Work that has ended is never answered with the limit: only the waiter ends
// the context, so that it cannot be found ended beside a result.
func within[T any](ctx context.Context, limit time.Duration, work func(context.Context) (T, error)) (T, error) {
	type outcome struct {
		out T
		err error
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		// A panic of the bundler must not end the process that serves other
		// tenants.
		defer func() {
			if reason := recover(); reason != nil {
				done <- outcome{err: panicked(reason)}
			}
		}()
		out, err := work(limited)
		done <- outcome{out, err}
	}()
	var none T
	select {
	case result := <-done:
		if result.err != nil && limited.Err() != nil && errors.Is(result.err, limited.Err()) {
			return none, stopped(ctx)
		}
		return result.out, result.err
	case <-limited.Done():
		return none, stopped(ctx)
	}
}

// stopped says why a build was stopped: by its caller or by its limit.
func stopped(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("build: %w", ctx.Err())
	}
	return ErrTimeout
}

func panicked(reason any) error {
	return fault.New(fault.Internal, "Internal Server Error").Because(fmt.Errorf("the bundler panicked: %v", reason))
}

// make is one build, step by step.
func (b *Builder) make(ctx context.Context, in Input, deps *dependencies) (*Output, error) {
	static, problems, err := readStatic(in.Project)
	if err != nil {
		return nil, fmt.Errorf("read static data: %w", err)
	}
	problems = append(deps.problems, problems...)
	out, err := b.identify(in, deps.tree, static)
	if err != nil {
		return nil, err
	}
	entry, err := b.entry(in, out, static)
	if err != nil {
		return nil, err
	}
	code, warnings, err := bundle(ctx, &sources{project: in.Project, tree: deps.tree, entry: entry})
	if len(problems) > 0 {
		return nil, joined(problems, err)
	}
	if err != nil {
		return nil, err
	}
	if len(code) == 0 || len(code) > MaxBundle {
		return nil, fault.Refuse(fault.Problem{Type: bundleTooLarge, Loc: []any{"index.mjs"},
			Msg: fmt.Sprintf("the bundle has %d bytes, more than 5 MiB", len(code))})
	}
	out.Bundle, out.Warnings = code, warnings
	out.Digests.Bundle = canonical.SHA256(code)
	return out, b.document(in, out, deps.tree, static)
}

// joined lists the problems outside the sources together with those in them.
func joined(problems []fault.Problem, err error) error {
	var refused *fault.Error
	if errors.As(err, &refused) && refused.Kind == fault.Invalid {
		problems = append(problems, refused.Problems...)
	}
	return fault.Refuse(problems[:min(len(problems), project.MaxProblems)]...)
}

// identify fills in the digests that are known before the bundle is made, and
// the release generation that the bundle carries.
func (b *Builder) identify(in Input, tree *npm.Tree, static *staticData) (*Output, error) {
	if tree == nil {
		tree = npm.NoPackages() // refused: the digests are never seen
	}
	dependency, err := dependencyDigest(tree)
	if err != nil {
		return nil, fmt.Errorf("dependency digest: %w", err)
	}
	out := &Output{
		Manifest:          in.Project.ManifestJSON,
		RuntimeDigest:     b.runtime,
		BuilderPolicy:     in.Policy,
		CompatibilityDate: in.Project.Manifest.CompatibilityDate,
		Language:          in.Project.Manifest.Language,
		Entry:             in.Project.Manifest.Entry,
		Digests: Digests{
			Project: in.Project.Digest,
			// Canonical already, so ManifestDigest would give the same.
			Manifest:   canonical.Digest(manifestDomain, in.Project.ManifestJSON),
			Lock:       lockDigest(in.Project),
			Dependency: dependency,
			StaticData: static.digest,
		},
	}
	out.ReleaseGeneration, err = Generation(GenerationInput{
		BuilderPolicy:     out.BuilderPolicy,
		CompatibilityDate: out.CompatibilityDate,
		ProjectDigest:     out.Digests.Project,
		ManifestDigest:    out.Digests.Manifest,
		LockDigest:        out.Digests.Lock,
		DependencyDigest:  out.Digests.Dependency,
		StaticDataDigest:  out.Digests.StaticData,
		RuntimeDigest:     out.RuntimeDigest,
	})
	return out, err
}

// entry writes the bundle's own module.
func (b *Builder) entry(in Input, out *Output, static *staticData) (string, error) {
	text, err := constants{
		ScriptName:        in.ScriptName,
		ReleaseGeneration: out.ReleaseGeneration,
		BuilderPolicy:     in.Policy,
		Entry:             out.Entry,
		PublicKeys:        b.keys,
		Operations:        in.Project.Manifest.Operations,
		StaticData:        static.values,
	}.literal()
	if err != nil {
		return "", err
	}
	quoted, err := plainJSON("./" + out.Entry)
	if err != nil {
		return "", fmt.Errorf("quote the entry: %w", err)
	}
	return fmt.Sprintf(entryTemplate, quoted, text), nil
}

// document adds the SBOM and the receipt.
func (b *Builder) document(in Input, out *Output, tree *npm.Tree, static *staticData) error {
	text, components, err := sbom(in.Project, tree, in.Policy, b.runtime)
	if err != nil {
		return err
	}
	out.SBOM = text
	out.Digests.SBOM = canonical.SHA256(text)
	out.Receipt, err = canonical.JSON(receipt{
		BuilderPolicy:     out.BuilderPolicy,
		BundleDigest:      out.Digests.Bundle,
		DependencyDigest:  out.Digests.Dependency,
		LockDigest:        out.Digests.Lock,
		ManifestDigest:    out.Digests.Manifest,
		ProjectDigest:     out.Digests.Project,
		ReleaseGeneration: out.ReleaseGeneration,
		ReceiptVersion:    receiptVersion,
		SBOM:              receiptSBOM{Format: sbomFormat, SpecVersion: sbomVersion, Components: components, Bytes: len(text)},
		SBOMDigest:        out.Digests.SBOM,
		StaticData:        receiptStaticData{Files: static.files, Bytes: static.bytes},
		StaticDataDigest:  out.Digests.StaticData,
	})
	if err != nil {
		return fmt.Errorf("write the build receipt: %w", err)
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
