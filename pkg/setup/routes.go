package setup

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/transports"
)

// serve builds the routes.
func (s *System) serve(ctx context.Context, publisher transports.Publisher) error {
	keys := make([]ed25519.PublicKey, 0, builder.MaxPublicKeys)
	for _, k := range s.signer.PublicKeys() {
		keys = append(keys, k.Key)
	}
	packages, err := npm.New(npm.Params{Registry: s.Settings.NPM.Registry, CacheDir: s.Settings.NPM.CacheDir, Log: s.Log})
	if err != nil {
		return fmt.Errorf("EDGE_WORKERS_NPM_REGISTRY, EDGE_WORKERS_NPM_CACHE_DIR: %w", err)
	}
	build, err := builder.New(builder.Params{PublicKeys: keys, Packages: packages, Log: s.Log})
	if err != nil {
		return err
	}
	submitter, err := version.NewSubmitter(version.Params{
		DB: s.db, Outbox: s.Outbox, Builder: build, Store: s.Store, Provider: s.serving.check, Log: s.Log,
	})
	if err != nil {
		return err
	}
	changes, err := live.NewMetrics(s.Registry)
	if err != nil {
		return err
	}
	settings, err := live.New(live.Params{
		DB: s.db, Outbox: s.Outbox, Redis: s.redis, Channel: s.serving, Provider: s.serving.check, Metrics: changes, Log: s.Log,
	})
	if err != nil {
		return err
	}
	desk, err := admission.New(admission.Params{
		DB: s.db, Outbox: s.Outbox, Redis: s.redis, Mirror: s.mirror, Publisher: publisher, Stager: settings, Provider: s.serving.check, Log: s.Log,
	})
	if err != nil {
		return err
	}
	verifier, err := newVerifier(ctx, s.Settings.Auth, s.Log)
	if err != nil {
		return err
	}
	s.Health.Add("identity", verifier.Ready)
	var gate *gateway.Gateway // nil while the provider's settings are wrong
	if s.serving.check() == nil {
		gate, err = gateway.New(gateway.Params{
			DB: s.db, Signer: invocationSigner{s.signer}, DispatchURL: s.serving.dispatchURL, Failures: gateway.NewFailures(s.redis, s.Log),
		})
		if err != nil {
			return err
		}
	}
	proxies, err := s.Settings.Edge.Proxies()
	if err != nil {
		return err
	}
	roles := make([]httpapi.Role, 0, len(s.Settings.HTTP.Roles))
	for _, r := range s.Settings.HTTP.Roles {
		roles = append(roles, httpapi.Role(r))
	}
	s.Handler, err = httpapi.New(httpapi.Params{
		Roles: roles, Verifier: verifier, DB: s.db, Store: s.Store, Submitter: submitter, Desk: desk, Live: settings,
		Mirror: s.mirror, Directory: s.Directory, Maintenance: s.keeper, Gateway: gate, Log: s.Log,
		Edge: gateway.Edge{Proxies: proxies, Header: s.Settings.Edge.ClientAddressHeader},
	})
	return err
}
