package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/transports"
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

// parts is what every process of the control plane is made of.
type parts struct {
	Params

	// Outbox is the durable rows, in this environment's scope.
	Outbox *outbox.Outbox
	// Artifacts gives the artifact store, or says why there is none. Work that
	// cannot do without asks before each batch (S1-155).
	Artifacts func() (artifact.Store, error)

	db      *database.DB
	redis   redis.UniversalClient
	signer  *control.Signer
	serving *serving
	mirror  *ticket.Mirror
	keeper  *maintenance.Keeper // of the edge host's gates; nil on cloud
	opened  []io.Closer         // in their order
}

// open opens what the settings name. What it has opened is closed by close,
// also after an error.
func (p *parts) open(ctx context.Context) error {
	if p.Owner == "" {
		p.Owner = processOwner()
	}
	var err error
	p.db, err = database.Open(ctx, database.Params{URL: p.Settings.Database.URL.Reveal(), Log: p.Log})
	if err != nil {
		return err
	}
	p.opened = append(p.opened, p.db)
	err = p.db.CreateMissing(ctx)
	if err != nil {
		return err
	}
	options, err := redis.ParseURL(p.Settings.Redis.URL.Reveal())
	if err != nil {
		return errors.New("EDGE_WORKERS_REDIS_URL is not a Redis URL") // the cause may quote the password
	}
	options.ContextTimeoutEnabled = true // whoever sets a deadline means it
	p.redis = redis.NewClient(options)
	p.opened = append(p.opened, p.redis)
	p.signer, err = newSigner(p.Settings.Control)
	if err != nil {
		return err
	}
	p.serving, err = newServing(p.Settings.Provider, p.signer, p.Log, p.Cloud)
	if err != nil {
		return err
	}
	p.Artifacts = openArtifacts(p.Params)
	p.Store, err = p.Artifacts()
	if err != nil {
		p.Log.Warn("the artifact store is not configured; submissions and source downloads answer 503", "error", err)
	}
	p.Outbox = outbox.New(p.db, p.serving.scope)
	p.mirror = ticket.NewMirror(p.redis, p.Log)
	p.keeper, err = p.newKeeper()
	if err == nil && p.keeper != nil {
		_, err = p.keeper.Prepare(ctx)
	}
	if err != nil {
		return err
	}
	p.checks()
	return nil
}

// checks tells the readiness what every process needs.
func (p *parts) checks() {
	if p.serving.guard != nil {
		p.Health.Add("dispatch_namespace", p.serving.guard.ready)
	}
	p.Health.Add("database", p.db.Ping)
	p.Health.Add("redis", func(ctx context.Context) error { return p.redis.Ping(ctx).Err() })
}

func processOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%.60s-%d", host, os.Getpid())
}

// task is the deployment task (S1 "deploy task").
func (p *parts) task() (*deploy.Task, error) {
	metrics, err := deploy.NewMetrics(p.Registry)
	if err != nil {
		return nil, err
	}
	return deploy.New(deploy.Params{
		DB: p.db, Outbox: p.Outbox, Redis: p.redis, Mirror: p.mirror, Provider: p.serving.provider, Store: p.Store,
		Prober: p.serving, Purger: p.serving, Owner: p.Owner, Metrics: metrics, Log: p.Log,
		BatchJobID: p.Settings.Batch.JobID, BatchAttempt: p.Settings.Batch.Attempt(),
	})
}

// receiver hands the transport's messages to the task.
func (p *parts) receiver(task *deploy.Task) (*transports.Receiver, error) {
	return transports.NewReceiver(transports.ReceiverParams{
		Transport: p.Settings.Transport.Type, Handler: task.Handle, Registerer: p.Registry, Log: p.Log,
	})
}

// close gives back what was opened, the last one first.
func (p *parts) close() error {
	var errs []error
	for len(p.opened) > 0 {
		last := len(p.opened) - 1
		errs = append(errs, p.opened[last].Close())
		p.opened = p.opened[:last]
	}
	return errors.Join(errs...)
}
