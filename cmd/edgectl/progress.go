package main

import (
	"fmt"
	"sync"
	"time"
)

const redrawEvery = 200 * time.Millisecond

// progress shows the stages of a deployment with their durations. On a
// terminal the running stage is redrawn; elsewhere each stage gives one line
// when it is over.
type progress struct {
	console
	mu      sync.Mutex
	stage   string
	within  string // how far the stage is; may be empty
	started time.Time
	begun   time.Time
	stop    chan struct{}
	stopped sync.WaitGroup
}

func newProgress(c console) *progress { return &progress{console: c, begun: c.now()} }

// start begins a stage. The one before it must be over.
func (p *progress) start(stage string) {
	p.mu.Lock()
	p.stage, p.within, p.started = stage, "", p.now()
	p.mu.Unlock()
	if !p.live {
		return
	}
	p.draw()
	stop := make(chan struct{})
	p.stop = stop
	p.stopped.Go(func() {
		ticker := time.NewTicker(redrawEvery)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				p.draw()
			}
		}
	})
}

// detail says how far the running stage is. On a terminal it is shown with the
// stage.
func (p *progress) detail(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.within = text + " "
}

func (p *progress) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.write("\r\x1b[K%-11s … %s(%s)", p.stage, p.within, seconds(p.now().Sub(p.started)))
}

// done ends the running stage, if there is one, with what came of it.
func (p *progress) done(result string) {
	if p.stage == "" {
		return
	}
	lineStart := ""
	if p.live {
		close(p.stop)
		p.stopped.Wait()
		lineStart = "\r\x1b[K"
	}
	if result != "" {
		result += " "
	}
	p.write("%s%-11s %s(%s)\n", lineStart, p.stage, result, seconds(p.now().Sub(p.started)))
	p.stage = ""
}

// write ignores failures: a lost progress line must not end a deployment.
func (p *progress) write(format string, args ...any) { _, _ = fmt.Fprintf(p.err, format, args...) }

// total gives the time since the beginning.
func (p *progress) total() string { return seconds(p.now().Sub(p.begun)) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
