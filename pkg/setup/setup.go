// Package setup is the composition root: it builds a process's graph from its
// settings and nothing else, so that the binaries and the embedded development
// system are the same system with other endpoints.
package setup

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/builder/npm"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/inprocess"
)

// Params is what a process brings besides its settings.
type Params struct {
	Settings config.Settings
	// Store is the artifact store; nil is the one that the settings name.
	Store artifact.Store
	// Owner names the process in lease tokens. Two living processes never
	// share a name; empty means host name and process id.
	Owner    string
	Registry *prometheus.Registry
	Health   *observe.Health
	Log      *slog.Logger
	// Cloud, when set by a test, says where the cloud provider's API is, and
	// Network the way to the settings' artifact store.
	Cloud   func(*cloudflare.Params)
	Network *s3store.Network
}

// In-process jobs (S1-251): deployments wait for the provider most of their
// time, so a few at once do no harm; what does not fit is left to the sweep.
const (
	jobWorkers        = 4
	jobQueue          = 1024
	jobRedeliverAfter = 2 * time.Second
	jobMaxDeliveries  = 5
)

// System is a running control plane of one process with the legacy transport.
type System struct {
	// Handler serves the API and the gateway.
	Handler http.Handler
	// Directory provisions tenants.
	Directory *tenancy.Directory
	Outbox    *outbox.Outbox
	// Artifacts gives the artifact store, or says why there is none. Work that
	// cannot do without asks before each batch (S1-155).
	Artifacts func() (artifact.Store, error)
	// Recover is the republishing lane, for a start over a dead owner's rows.
	Recover func(claim outbox.RecoveryClaim) *reconcile.Republisher

	// TakeBack withdraws what a dead owner did not upload; see deploy.Task.
	TakeBack func(ctx context.Context, owner string) (int, error)

	runner    *reconcile.Runner
	transport *inprocess.Transport
	db        *database.DB
	redis     redis.UniversalClient
}

// New opens what the settings name and wires the process. Close the system to
// give everything back.
func New(ctx context.Context, p Params) (*System, error) {
	if p.Owner == "" {
		p.Owner = processOwner()
	}
	s := &System{}
	err := s.build(ctx, p)
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func processOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%.60s-%d", host, os.Getpid())
}

func (s *System) build(ctx context.Context, p Params) error {
	var err error
	s.db, err = database.Open(ctx, database.Params{URL: p.Settings.Database.URL.Reveal(), Log: p.Log})
	if err != nil {
		return err
	}
	err = s.db.CreateMissing(ctx)
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(p.Settings.Redis.URL.Reveal())
	if err != nil {
		return errors.New("EDGE_WORKERS_REDIS_URL is not a Redis URL") // the cause may quote the password
	}
	options.ContextTimeoutEnabled = true // whoever sets a deadline means it
	s.redis = redis.NewClient(options)
	signer, err := newSigner(p.Settings.Control)
	if err != nil {
		return err
	}
	serving, err := newServing(p.Settings.Provider, signer, p.Log, p.Cloud)
	if err != nil {
		return err
	}
	if serving.guard != nil {
		p.Health.Add("dispatch_namespace", serving.guard.ready)
	}
	s.Artifacts = openArtifacts(p)
	p.Store, err = s.Artifacts()
	if err != nil {
		p.Log.Warn("the artifact store is not configured; submissions and source downloads answer 503", "error", err)
	}
	p.Health.Add("database", s.db.Ping)
	p.Health.Add("redis", func(ctx context.Context) error { return s.redis.Ping(ctx).Err() })
	return s.wire(ctx, p, signer, serving)
}

// wire builds the domain on the opened parts.
func (s *System) wire(ctx context.Context, p Params, signer *control.Signer, serving *serving) error {
	s.Outbox = outbox.New(s.db, serving.scope)
	s.Directory = tenancy.New(s.db)
	mirror := ticket.NewMirror(s.redis, p.Log)
	metrics, err := deploy.NewMetrics(p.Registry)
	if err != nil {
		return err
	}
	task, err := deploy.New(deploy.Params{
		DB: s.db, Outbox: s.Outbox, Redis: s.redis, Mirror: mirror, Provider: serving.provider, Store: p.Store,
		Prober: serving, Purger: serving, Owner: p.Owner, Metrics: metrics, Log: p.Log,
	})
	if err != nil {
		return err
	}
	s.TakeBack = task.TakeBack
	receiver, err := transports.NewReceiver(transports.ReceiverParams{Transport: config.Legacy, Handler: task.Handle, Registerer: p.Registry, Log: p.Log})
	if err != nil {
		return err
	}
	s.transport, err = inprocess.New(inprocess.Params{
		Receiver: receiver, Workers: jobWorkers, Queue: jobQueue,
		RedeliverAfter: jobRedeliverAfter, MaxDeliveries: jobMaxDeliveries, Log: p.Log,
	})
	if err != nil {
		return err
	}
	s.Recover = func(claim outbox.RecoveryClaim) *reconcile.Republisher {
		return reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: s.Outbox, Mirror: mirror, Publisher: s.transport, Log: p.Log, Claim: &claim})
	}
	sweeps, err := reconcile.NewMetrics(p.Registry)
	if err != nil {
		return err
	}
	republisher := reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: s.Outbox, Mirror: mirror, Publisher: inprocess.Inline{Handler: task.Handle}, Log: p.Log})
	cleaner, err := reconcile.NewCleaner(reconcile.CleanupParams{DB: s.db, Outbox: s.Outbox, Store: s.Artifacts, Owner: p.Owner, Log: p.Log})
	if err != nil {
		return err
	}
	auditor, err := reconcile.NewControlAuditor(reconcile.ControlAuditParams{
		DB: s.db, Outbox: s.Outbox, Receipts: serving.receipts(), Owner: p.Owner, Log: p.Log,
	})
	if err != nil {
		return err
	}
	s.runner = &reconcile.Runner{Provider: serving.check, Metrics: sweeps, Log: p.Log, Lanes: []reconcile.Lane{republisher, cleaner, auditor}}
	return s.serve(ctx, p, signer, serving, mirror)
}

// serve builds the routes.
func (s *System) serve(ctx context.Context, p Params, signer *control.Signer, serving *serving, mirror *ticket.Mirror) error {
	keys := make([]ed25519.PublicKey, 0, builder.MaxPublicKeys)
	for _, k := range signer.PublicKeys() {
		keys = append(keys, k.Key)
	}
	packages, err := npm.New(npm.Params{Registry: p.Settings.NPM.Registry, CacheDir: p.Settings.NPM.CacheDir, Log: p.Log})
	if err != nil {
		return fmt.Errorf("EDGE_WORKERS_NPM_REGISTRY, EDGE_WORKERS_NPM_CACHE_DIR: %w", err)
	}
	build, err := builder.New(builder.Params{PublicKeys: keys, Packages: packages, Log: p.Log})
	if err != nil {
		return err
	}
	submitter, err := version.NewSubmitter(version.Params{
		DB: s.db, Outbox: s.Outbox, Builder: build, Store: p.Store, Provider: serving.check, Log: p.Log,
	})
	if err != nil {
		return err
	}
	changes, err := live.NewMetrics(p.Registry)
	if err != nil {
		return err
	}
	settings, err := live.New(live.Params{
		DB: s.db, Outbox: s.Outbox, Redis: s.redis, Channel: serving, Provider: serving.check, Metrics: changes, Log: p.Log,
	})
	if err != nil {
		return err
	}
	desk, err := admission.New(admission.Params{
		DB: s.db, Outbox: s.Outbox, Redis: s.redis, Mirror: mirror, Publisher: s.transport, Stager: settings, Provider: serving.check, Log: p.Log,
	})
	if err != nil {
		return err
	}
	verifier, err := newVerifier(ctx, p.Settings.Auth, p.Log)
	if err != nil {
		return err
	}
	p.Health.Add("identity", verifier.Ready)
	var gate *gateway.Gateway // nil while the provider's settings are wrong
	if serving.check() == nil {
		gate, err = gateway.New(gateway.Params{
			DB: s.db, Signer: invocationSigner{signer}, DispatchURL: serving.dispatchURL, Failures: gateway.NewFailures(s.redis, p.Log),
		})
		if err != nil {
			return err
		}
	}
	proxies, err := p.Settings.Edge.Proxies()
	if err != nil {
		return err
	}
	roles := make([]httpapi.Role, 0, len(p.Settings.HTTP.Roles))
	for _, r := range p.Settings.HTTP.Roles {
		roles = append(roles, httpapi.Role(r))
	}
	s.Handler, err = httpapi.New(httpapi.Params{
		Roles: roles, Verifier: verifier, DB: s.db, Store: p.Store, Submitter: submitter, Desk: desk, Live: settings,
		Mirror: mirror, Directory: s.Directory, Gateway: gate, Log: p.Log,
		Edge: gateway.Edge{Proxies: proxies, Header: p.Settings.Edge.ClientAddressHeader},
	})
	return err
}

// Sweep runs the recovery loop until ctx ends.
func (s *System) Sweep(ctx context.Context) { s.runner.Run(ctx) }

// Close drains the running jobs until ctx ends and closes what was opened.
func (s *System) Close(ctx context.Context) error {
	var errs []error
	if s.transport != nil {
		errs = append(errs, s.transport.Close(ctx))
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}
