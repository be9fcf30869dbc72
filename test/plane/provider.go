package plane

import (
	"context"
	"errors"
	"sync"

	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// Provider is a provider that remembers what it was asked and holds what was
// uploaded. The hooks replace its answers; they run before the state changes.
type Provider struct {
	mu       sync.Mutex
	live     *provider.Release
	calls    []string
	OnUpload func(provider.Release) error
	// After runs when the upload has been applied; its error is the answer.
	After      func(provider.Release) error
	OnReadBack func(provider.Release) error
}

// Upload applies the release unless a hook refuses it first.
func (p *Provider) Upload(_ context.Context, r provider.Release) error {
	p.note("PUT")
	if p.OnUpload != nil {
		err := p.OnUpload(r)
		if err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.live = &r
	p.mu.Unlock()
	if p.After != nil {
		return p.After(r)
	}
	return nil
}

// ReadBack compares the release with the one that was applied last.
func (p *Provider) ReadBack(_ context.Context, r provider.Release) error {
	p.note("GET")
	if p.OnReadBack != nil {
		return p.OnReadBack(r)
	}
	want, err := r.Tag()
	if err != nil {
		return err
	}
	live := p.Live()
	if live == nil {
		return &provider.MismatchError{Detail: "no script"}
	}
	got, err := live.Tag()
	if err != nil {
		return err
	}
	if got != want || live.ScriptName != r.ScriptName {
		return &provider.MismatchError{Detail: "tag"}
	}
	return nil
}

func (p *Provider) note(call string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call)
}

// Calls lists the requests in order: PUT and GET.
func (p *Provider) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.calls...)
}

// Puts counts the uploads.
func (p *Provider) Puts() int {
	n := 0
	for _, c := range p.Calls() {
		if c == "PUT" {
			n++
		}
	}
	return n
}

// Live is the release that is applied, nil if none.
func (p *Provider) Live() *provider.Release {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// ErrSilent is the answer of a release that does not answer.
var ErrSilent = errors.New("the release is silent")

// Release answers readiness probes. OnProbe replaces the answer.
type Release struct {
	mu      sync.Mutex
	probes  []string
	OnProbe func(script, generation string) error
}

// Probe answers for whatever generation is asked.
func (r *Release) Probe(_ context.Context, script, generation string) error {
	r.mu.Lock()
	r.probes = append(r.probes, generation)
	r.mu.Unlock()
	if r.OnProbe != nil {
		return r.OnProbe(script, generation)
	}
	return nil
}

// Probes lists the generations that were asked for.
func (r *Release) Probes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.probes...)
}

// Secrets stands for the live release's secrets: it records the purges that
// are asked for. OnPurge replaces its answer.
type Secrets struct {
	mu      sync.Mutex
	purges  []deploy.Purge
	OnPurge func(deploy.Purge) error
}

// PurgeSecrets confirms the purge.
func (s *Secrets) PurgeSecrets(_ context.Context, p deploy.Purge) error {
	s.mu.Lock()
	s.purges = append(s.purges, p)
	s.mu.Unlock()
	if s.OnPurge != nil {
		return s.OnPurge(p)
	}
	return nil
}

// Purges lists what was asked for.
func (s *Secrets) Purges() []deploy.Purge {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]deploy.Purge(nil), s.purges...)
}
