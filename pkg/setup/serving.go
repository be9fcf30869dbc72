package setup

import (
	"context"
	"errors"
	"log/slog"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/version"
)

// probeSubject is the subject of the readiness probe's assertion (S2-177).
const probeSubject = "system:edge-worker-deploy"

// serving is what the provider's settings decide: the provider, its scope, and
// where Workers are commanded and invoked. Wrong settings do not stop the
// process: check says what is wrong each time it is asked (S2-022, S1-272).
type serving struct {
	settings    config.Provider
	scope       outbox.Scope
	dispatchURL string
	client      *control.Client
	target      provider.Provider
}

func newServing(settings config.Provider, signer *control.Signer, log *slog.Logger) (*serving, error) {
	s := &serving{settings: settings}
	err := s.check()
	if err != nil {
		log.Warn("the provider's settings are not usable; submissions and deployments answer 503", "error", err)
		return s, nil
	}
	s.scope = outbox.OnPremScope(settings.EdgeHostIdentity)
	s.dispatchURL = settings.EdgeHostDispatchURL
	s.client, err = control.NewClient(s.dispatchURL, signer)
	if err != nil {
		return nil, err
	}
	s.target, err = onprem.New(onprem.Params{Origin: settings.EdgeHostURL, Token: settings.EdgeHostAPIToken.Reveal()})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// errNoCloud says that this build serves Workers on edge hosts only.
var errNoCloud = errors.New("EDGE_WORKERS_PROVIDER=cloudflare is not available in this release; use onprem")

func (s *serving) check() error {
	kind, err := s.settings.Resolve()
	if err != nil {
		return err
	}
	if kind != provider.OnPrem {
		return errNoCloud
	}
	return s.settings.Check()
}

// provider resolves the provider for one run of the deployment task.
func (s *serving) provider() (provider.Provider, error) {
	err := s.check()
	if err != nil {
		return nil, err
	}
	return s.target, nil
}

// Probe asks the release of a generation for its access policy through the
// signed control channel (S2-175 to S2-177). Only a policy that decodes
// strictly is an answer (S2-189).
func (s *serving) Probe(ctx context.Context, scriptName, generation string) error {
	if s.client == nil {
		return version.ErrProviderInvalid
	}
	_, err := s.client.AccessPolicy(ctx, scriptName, generation, probeSubject)
	return err
}
