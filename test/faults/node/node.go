package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/onprem"
	"github.com/teamsync/edge-workers/pkg/reconcile"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/test/faults/failpoint"
	"github.com/teamsync/edge-workers/test/faults/sample"
	"github.com/teamsync/edge-workers/test/faults/wire"
)

// sweepBudget is more than any sweep of the matrix needs.
const sweepBudget = 20 * time.Second

var actor = audit.Actor{Type: "user", ID: "user:manager", Method: "bearer_jwt"}

// node is a whole control plane over tampered wires.
type node struct {
	config      control.Config
	submitter   *version.Submitter
	desk        *admission.Desk
	task        *deploy.Task
	republisher *reconcile.Republisher
	cleaner     *reconcile.Cleaner
}

func open(ctx context.Context, config control.Config) (*node, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	world := outside{origin: config.Origin}
	failpoint.OnHit(world.hit)
	failpoint.OnWire("http", func(string) error { return nil }) // the matrix's server was armed by the hit
	db, err := openDatabase(ctx, config, world)
	if err != nil {
		return nil, err
	}
	client, err := openRedis(config)
	if err != nil {
		return nil, err
	}
	folder, err := artifact.NewDirectory(config.Store)
	if err != nil {
		return nil, err
	}
	backend := &store{Directory: folder}
	failpoint.OnWire("store", backend.arm)
	api, err := onprem.New(onprem.Params{Origin: config.Origin, Token: "matrix", Namespace: config.Namespace})
	if err != nil {
		return nil, err
	}
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{config.Key}})
	if err != nil {
		return nil, err
	}
	metrics, err := deploy.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	rows, mirror, valid := outbox.New(db, outbox.CloudScope(config.Namespace)), ticket.NewMirror(client, log), func() error { return nil }
	objects := artifact.NewFenced(backend)
	n := &node{config: config, republisher: reconcile.NewRepublisher(reconcile.RepublishParams{Outbox: rows, Mirror: mirror, Publisher: world, Log: log})}
	var failures [4]error
	n.submitter, failures[0] = version.NewSubmitter(version.Params{DB: db, Outbox: rows, Builder: build, Store: objects, Provider: valid, Log: log})
	n.desk, failures[1] = admission.New(admission.Params{DB: db, Outbox: rows, Redis: client, Mirror: mirror, Publisher: world, Stager: world, Provider: valid, Log: log})
	n.task, failures[2] = deploy.New(deploy.Params{
		DB: db, Outbox: rows, Redis: client, Mirror: mirror, Store: objects, Prober: world, Purger: world, Metrics: metrics, Log: log,
		Owner: "node-" + uuid.NewString()[:8], Provider: func() (provider.Provider, error) { return api, nil },
	})
	n.cleaner, failures[3] = reconcile.NewCleaner(reconcile.CleanupParams{
		DB: db, Outbox: rows, Store: func() (artifact.Store, error) { return objects, nil }, Owner: "node-" + uuid.NewString()[:8], Log: log,
	})
	return n, errors.Join(failures[:]...)
}

func openDatabase(ctx context.Context, config control.Config, world outside) (*database.DB, error) {
	dsn, err := mysql.ParseDSN(config.DSN)
	if err != nil {
		return nil, fmt.Errorf("database DSN: %w", err)
	}
	network, address := dsn.Net, dsn.Addr
	line := wire.New(func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}, wire.Commit, world.freeze)
	mysql.RegisterDialContext("fault", func(ctx context.Context, _ string) (net.Conn, error) { return line.Dial(ctx) })
	failpoint.OnWire("database", line.Arm)
	dsn.Net, dsn.Addr = "fault", "database"
	return database.Open(ctx, database.Params{URL: dsn.FormatDSN()})
}

func openRedis(config control.Config) (redis.UniversalClient, error) {
	options, err := redis.ParseURL(config.Redis)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	network, address := options.Network, options.Addr
	line := wire.New(func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}, func([]byte) bool { return true }, nil)
	options.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) { return line.Dial(ctx) }
	failpoint.OnWire("redis", line.Arm)
	return redis.NewClient(options), nil
}

func (n *node) submit(ctx context.Context, text string) (control.Reply, error) {
	archive, err := sample.Archive(text)
	if err != nil {
		return control.Reply{}, err
	}
	v, err := n.submitter.Submit(ctx, version.Submission{Tenant: n.config.Tenant, Actor: actor, Archive: bytes.NewReader(archive)})
	return control.Reply{Version: v.ID}, err
}
