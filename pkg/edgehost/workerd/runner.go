package workerd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// Params is what a Runner needs. All fields but ValidationUID are required.
type Params struct {
	Binary         string        // path of workerd
	Logger         *slog.Logger  // Workers' output, with the script's name
	StartTimeout   time.Duration // of one start or validation
	MaxHeapMiB     int           // V8's heap limit of one Worker
	MaxMemoryBytes uint64        // of a validation; the host polls serving ones
	ScratchDir     string        // exists; short, because socket paths are bounded
	ValidationUID  uint32        // uid of validations; 0 keeps the host's
}

// Runner starts workerd processes. Close it after the last one ended.
type Runner struct {
	p       Params
	spawn   *spawner
	once    sync.Once
	maxDate string
}

var newestDate = regexp.MustCompile(`newest date supported by this server binary is "(\d{4}-\d{2}-\d{2})"`)

// NewRunner checks that the binary runs and asks it for its newest
// compatibility date.
func NewRunner(ctx context.Context, p Params) (*Runner, error) {
	r := &Runner{p: p, spawn: &spawner{requests: make(chan func())}}
	go func() {
		runtime.LockOSThread() // never unlocked: see spawner
		for start := range r.spawn.requests {
			start()
		}
	}()
	message, err := r.try(ctx, []byte("export default {}"), "2999-12-31")
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("workerd %s: %w", p.Binary, err)
	}
	found := newestDate.FindStringSubmatch(message)
	if found == nil {
		r.Close()
		return nil, fmt.Errorf("workerd %s does not tell its newest compatibility date, is it version %s? It said: %s", p.Binary, Version, oneLine(message))
	}
	r.maxDate = found[1]
	return r, nil
}

// Close ends the starting thread.
func (r *Runner) Close() { r.once.Do(func() { close(r.spawn.requests) }) }

// MaxCompatibilityDate is the newest date that the binary accepts.
func (r *Runner) MaxCompatibilityDate() string { return r.maxDate }

// Rejected says that a bundle does not start; Message is workerd's first
// error, fit for the author of the bundle.
type Rejected struct{ Message string }

func (e *Rejected) Error() string { return "bundle rejected: " + e.Message }

// Validate starts the bundle in a throw-away process without storage and
// without a network and stops it again. nil: it starts and exports the storage
// class. *Rejected: it does not. Any other error is the host's, and says
// nothing about the bundle.
func (r *Runner) Validate(ctx context.Context, bundle []byte, compatibilityDate string) error {
	if compatibilityDate > r.maxDate {
		return &Rejected{Message: fmt.Sprintf("compatibility date %s is newer than %s, the newest that this edge host supports", compatibilityDate, r.maxDate)}
	}
	message, err := r.try(ctx, bundle, compatibilityDate)
	if err != nil {
		return err
	}
	if message != "" {
		return &Rejected{Message: oneLine(message)}
	}
	return nil
}

// try returns what is wrong with the bundle, empty for nothing.
func (r *Runner) try(ctx context.Context, bundle []byte, compatibilityDate string) (string, error) {
	dir, err := os.MkdirTemp(r.p.ScratchDir, "v")
	if err != nil {
		return "", fmt.Errorf("validation folder: %w", err)
	}
	// What cannot be removed goes with the run folder.
	defer func() { _ = os.RemoveAll(dir) }()
	config, err := renderConfig(compatibilityDate, "0", r.p.MaxHeapMiB, false)
	if err != nil {
		return "", err
	}
	if err := writeFiles(dir, config, bundle, r.p.ValidationUID); err != nil {
		return "", err
	}
	p, err := r.launch(launchSpec{binary: r.p.Binary, dir: dir, args: socketArgs(dir), uid: r.p.ValidationUID})
	if err != nil {
		return "", err
	}
	end := r.watchStart(ctx, p, r.p.MaxMemoryBytes)
	p.Kill()
	<-p.done // all output is read: a warning written before "listen" is known now
	return verdict(ctx, p, end, r.p.StartTimeout)
}

type startEnd int

const (
	endListening startEnd = iota
	endExited
	endTimeout
	endMemory
	endCancelled
)

// watchStart waits for the first of: listening, exit, time limit, memory
// limit (0: none), cancellation.
func (r *Runner) watchStart(ctx context.Context, p *Process, memoryLimit uint64) startEnd {
	timeout := time.NewTimer(r.p.StartTimeout)
	defer timeout.Stop()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-p.listen:
			return endListening
		case <-p.done:
			return endExited
		case <-timeout.C:
			return endTimeout
		case <-ctx.Done():
			return endCancelled
		case <-poll.C:
			if used, ok := p.Memory(memoryLimit); ok && memoryLimit > 0 && used > memoryLimit {
				return endMemory
			}
		}
	}
}

func verdict(ctx context.Context, p *Process, end startEnd, limit time.Duration) (string, error) {
	found := p.output.findings()
	switch end {
	case endCancelled:
		return "", ctx.Err()
	case endTimeout:
		return fmt.Sprintf("the bundle's top-level code did not finish within %s", limit), nil
	case endMemory:
		return "the bundle's top-level code uses too much memory", nil
	case endListening:
		if found.missingClass {
			return "the bundle does not export the Durable Object class " + provider.StorageClass, nil
		}
		return "", nil
	case endExited: // its output says why
	}
	if _, after, found := strings.Cut(found.firstError, checkMark); found {
		text, _, _ := strings.Cut(after, "\n")
		return text, nil
	}
	// Not a prefix test: a line that was cut is kept unparsed.
	if _, after, found := strings.Cut(found.firstError, mainErrorMark); found {
		return after, nil
	}
	if found.outOfMemory {
		return "the bundle's top-level code uses too much memory", nil
	}
	return "", fmt.Errorf("workerd ended during start (%s): %s", p.exit, oneLine(found.firstError))
}

func socketArgs(dir string) []string {
	return []string{
		"--socket-addr=" + mainSocket + "=unix:" + filepath.Join(dir, "m.sock"),
		"--socket-addr=" + healthSocket + "=unix:" + filepath.Join(dir, "h.sock"),
	}
}

func writeFiles(dir string, config, bundle []byte, uid uint32) error {
	for name, content := range map[string][]byte{configFile: config, provider.MainModule: bundle} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := give(path, uid); err != nil {
			return err
		}
	}
	return give(dir, uid)
}

// give makes uid the owner of path; 0 leaves it as it is.
func give(path string, uid uint32) error {
	if uid == 0 {
		return nil
	}
	if err := os.Lchown(path, int(uid), int(uid)); err != nil {
		return fmt.Errorf("give to isolated uid: %w", err)
	}
	return nil
}

// oneLine makes workerd's text fit for an API message: one line, printable,
// at most 1,000 bytes.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c < 0x20 || c == 0x7f }), " ")
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > 1000 {
		text = strings.ToValidUTF8(text[:1000], "") + "…"
	}
	return text
}
