package setup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/purge"
	"github.com/teamsync/edge-workers/pkg/retirement"
	"github.com/teamsync/edge-workers/pkg/version"
)

// probeSubject is the subject of a deployment's assertions: those of the
// readiness probe (S2-177) and of the purge before a legacy release.
const probeSubject = "system:edge-worker-deploy"

// serving is what the provider's settings decide: the provider, its scope, and
// where Workers are commanded and invoked. Wrong settings do not stop the
// process: check says what is wrong each time it is asked (S2-022, S1-272).
type serving struct {
	settings    config.Provider
	scope       outbox.Scope
	dispatchURL string
	client      *control.Client
	purger      *purge.Purger
	target      target
	guard       *guard // of the cloud's dispatch namespaces; nil on-prem
}

// newServing builds what the settings allow for; it sends nothing. cloud, when
// not nil, changes what a test needs changed.
func newServing(settings config.Provider, signer *control.Signer, log *slog.Logger, cloud func(*cloudflare.Params)) (*serving, error) {
	s := &serving{settings: settings, scope: scopeOf(settings)}
	err := s.check()
	if err != nil {
		log.Warn("the provider's settings are not usable; submissions and deployments answer 503", "error", err)
		return s, nil
	}
	if s.scope.Cloud() {
		err = s.useCloudflare(cloud)
	} else {
		err = s.useEdgeHost()
	}
	if err != nil {
		return nil, err
	}
	s.client, err = control.NewClient(s.dispatchURL, signer)
	if err != nil {
		return nil, err
	}
	s.purger = purge.New(s.client, probeSubject, log)
	return s, nil
}

// scopeOf is what the process may claim, whatever else is wrong with its
// settings: a delivery is then settled as the specification says (S2-124).
// Without a usable namespace or identity it claims nothing (S1-042).
func scopeOf(settings config.Provider) outbox.Scope {
	kind, err := settings.Resolve()
	switch {
	case err != nil:
		return outbox.Scope{}
	case kind == provider.OnPrem:
		return outbox.OnPremScope(settings.EdgeHostIdentity)
	case cloudflare.CheckNamespace(settings.CloudflareDispatchNamespace) != nil:
		return outbox.CloudScope("")
	}
	return outbox.CloudScope(settings.CloudflareDispatchNamespace, settings.CloudflareSharedNamespaces...)
}

func (s *serving) useEdgeHost() error {
	s.dispatchURL = s.settings.EdgeHostDispatchURL
	target, err := onprem.New(onprem.Params{Origin: s.settings.EdgeHostURL, Token: s.settings.EdgeHostAPIToken.Reveal()})
	if err != nil {
		return err
	}
	s.target = target
	return nil
}

func (s *serving) useCloudflare(change func(*cloudflare.Params)) error {
	s.dispatchURL = s.settings.CloudflareGatewayURL
	params := cloudflare.Params{
		AccountID: s.settings.CloudflareAccountID, Token: s.settings.CloudflareAPIToken.Reveal(),
		Namespace: s.settings.CloudflareDispatchNamespace, Shared: s.settings.CloudflareSharedNamespaces,
	}
	if change != nil {
		change(&params)
	}
	target, err := cloudflare.New(params)
	if err != nil {
		return err
	}
	s.target = target
	s.guard = newGuard(target.CheckNamespace, time.Now)
	return nil
}

func (s *serving) check() error {
	err := s.settings.Check()
	if err == nil && s.guard != nil {
		err = s.guard.verdict()
	}
	if err != nil {
		return fmt.Errorf("provider %.40q: %w", s.settings.Name, err)
	}
	return nil
}

// provider resolves the provider for one run of the deployment task. On-prem
// settings from which none can be built are provider.ErrUnavailable.
func (s *serving) provider() (provider.Provider, error) {
	err := s.check()
	if err != nil {
		kind, _ := s.settings.Resolve()
		if kind == provider.OnPrem {
			err = fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
		}
		return nil, err
	}
	return s.target, nil
}

// scripts resolves the provider for one round of the retirement.
func (s *serving) scripts() (retirement.Scripts, error) {
	err := s.check()
	if err != nil {
		return nil, err
	}
	return s.target, nil
}

// target is what is asked of a provider.
type target interface {
	provider.Provider
	retirement.Scripts
}

// Call sends one command to a live Worker.
func (s *serving) Call(ctx context.Context, command control.Command) (json.RawMessage, error) {
	if s.client == nil {
		return nil, version.ErrProviderInvalid
	}
	return s.client.Call(ctx, command)
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

// PurgeSecrets removes every secret through the live release.
func (s *serving) PurgeSecrets(ctx context.Context, target deploy.Purge) error {
	if s.purger == nil {
		return version.ErrProviderInvalid
	}
	return s.purger.PurgeSecrets(ctx, target)
}
