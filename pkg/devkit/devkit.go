// Package devkit runs the whole system in one process and one folder: SQLite,
// an in-process Redis, a directory store and an edge host on real workerd. It
// starts the same graph as production from the same settings; only endpoints
// and adapters differ (D2).
package devkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/setup"
)

// The tenant that a development system starts with.
const (
	CompanyID    = "dev-company"
	DepartmentID = "dev-department"
)

// owner names the process in lease tokens. One name is enough: the folder's
// lock lets only one process live.
const owner = "dev"

// stopGrace is how long running deployments and requests may take when the
// process is asked to stop.
const stopGrace = 20 * time.Second

// Params says where the system lives.
type Params struct {
	// Data is the folder of all state; it is created if missing.
	Data string
	// Addr is the API's address, such as 127.0.0.1:8787; port 0 picks a free one.
	Addr string
	// MetricsAddr is where /healthz, /readyz and /metrics are.
	MetricsAddr string
	// Workerd is the runtime's binary; empty searches for it.
	Workerd string
	// NPMRegistry is where npm packages come from; empty means npm's own. They
	// are kept in the data folder.
	NPMRegistry string
	Log         *slog.Logger
	// Ready is called once when all is up.
	Ready func(Ready) error
}

// Run starts the system and serves until ctx ends. State survives the process
// however it ends: what a killed one left half done is taken up again.
func Run(ctx context.Context, p Params) error {
	data, err := filepath.Abs(p.Data)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	lock, err := lockFolder(data)
	if err != nil {
		return err
	}
	defer lock.release()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	k := &kit{p: p, data: data, group: group, registry: observe.NewRegistry("edgectl-dev"), health: observe.NewHealth(2*time.Second, p.Log)}
	err = k.start(ctx)
	if err != nil {
		stop()
		return errors.Join(err, group.Wait(), k.close())
	}
	return errors.Join(group.Wait(), k.close())
}

// kit is one running development system.
type kit struct {
	p        Params
	data     string
	group    *errgroup.Group
	registry *prometheus.Registry
	health   *observe.Health

	redis  *redisServer
	host   *edgeHost
	store  *artifact.Directory
	system *setup.System
}

func (k *kit) path(parts ...string) string {
	return filepath.Join(append([]string{k.data}, parts...)...)
}

func (k *kit) start(ctx context.Context) error {
	keys, err := loadKeys(k.path("keys"))
	if err != nil {
		return err
	}
	k.redis, err = startRedis(ctx)
	if err != nil {
		return err
	}
	k.host, err = startEdgeHost(ctx, k, keys.hostToken)
	if err != nil {
		return err
	}
	k.store, err = artifact.NewDirectory(k.path("artifacts"))
	if err != nil {
		return fmt.Errorf("artifact folder: %w", err)
	}
	settings, err := config.Load(k.environment(keys), config.API)
	if err != nil {
		return err
	}
	k.system, err = setup.New(ctx, setup.Params{
		Settings: settings, Store: artifact.NewFenced(k.store), Owner: owner,
		Registry: k.registry, Health: k.health, Log: k.p.Log,
	})
	if err != nil {
		return err
	}
	err = k.provision(ctx)
	if err != nil {
		return err
	}
	err = k.takeUp(ctx)
	if err != nil {
		return err
	}
	k.group.Go(func() error { k.system.Sweep(ctx); return nil })
	return k.serve(ctx, keys)
}

// environment is what a production process would find in its own.
func (k *kit) environment(keys keys) map[string]string {
	return map[string]string{
		"EDGE_WORKERS_DATABASE_URL":             "sqlite:" + k.path("edge.db"),
		"EDGE_WORKERS_REDIS_URL":                k.redis.url,
		"EDGE_WORKERS_PROVIDER":                 "onprem",
		"EDGE_WORKERS_EDGE_HOST_URL":            k.host.controlURL,
		"EDGE_WORKERS_EDGE_HOST_API_TOKEN":      keys.hostToken,
		"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL":   k.host.dispatchURL,
		"EDGE_WORKERS_EDGE_HOST_IDENTITY":       keys.hostIdentity,
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": keys.controlFile,
		"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE":      keys.authFile,
		"EDGE_WORKERS_LISTEN_ADDR":              k.p.Addr,
		"EDGE_WORKERS_METRICS_ADDR":             k.p.MetricsAddr,
		"EDGE_WORKERS_NPM_REGISTRY":             k.p.NPMRegistry,
		"EDGE_WORKERS_NPM_CACHE_DIR":            k.path("npm"),
	}
}

// provision makes the development tenant. Doing it again changes nothing.
func (k *kit) provision(ctx context.Context) error {
	actor := audit.System("edgectl-dev")
	err := k.system.Directory.PutCompany(ctx, actor, CompanyID, "Development company")
	if err != nil {
		return err
	}
	return k.system.Directory.PutDepartment(ctx, actor, models.Tenant{CompanyID: CompanyID, DepartmentID: DepartmentID}, "Development department")
}

// takeUp brings back what the previous process left: it is dead with its edge
// host, because the folder's lock is ours. So its leases are ended, what it
// did not upload is uploaded anew, and every unfinished deployment is published
// again at once instead of after its grace.
func (k *kit) takeUp(ctx context.Context) error {
	withdrawn, err := k.system.TakeBack(ctx, owner)
	if err != nil {
		return err
	}
	ended, err := k.system.Outbox.EndLeases(ctx, owner)
	if err != nil {
		return err
	}
	result, err := k.system.Recover(outbox.RecoveryClaim{Grace: 0, Cooldown: time.Second, Limit: outbox.RecoveryBatch}).RunOnce(ctx, stopGrace)
	if err != nil {
		return err
	}
	if withdrawn > 0 || ended > 0 || len(result) > 0 {
		k.p.Log.InfoContext(ctx, "unfinished deployments taken up", "withdrawn", withdrawn, "ended_leases", ended, "result", map[string]int(result))
	}
	return nil
}

// serve listens, writes down where, and serves until the context ends.
func (k *kit) serve(ctx context.Context, keys keys) error {
	api, err := listen(ctx, k.p.Addr)
	if err != nil {
		return err
	}
	admin, err := listen(ctx, k.p.MetricsAddr)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	k.group.Go(func() error {
		return observe.Serve(ctx, observe.ServerParams{Name: "api", Listener: api, Handler: k.system.Handler, Log: k.p.Log, Grace: stopGrace})
	})
	k.group.Go(func() error {
		return observe.Serve(ctx, observe.ServerParams{Name: "metrics", Listener: admin, Handler: observe.Admin(k.health, k.registry, k.p.Log), Log: k.p.Log})
	})
	ready, err := Describe("http://"+api.Addr().String(), "http://"+admin.Addr().String(), keys.authFile)
	if err != nil {
		return err
	}
	err = writeReady(k.path(ReadyName), ready)
	if err != nil || k.p.Ready == nil {
		return err
	}
	return k.p.Ready(ready)
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		if strings.Contains(err.Error(), "address already in use") {
			return nil, fmt.Errorf("%s is in use; choose another address (127.0.0.1:0 picks a free one): %w", addr, err)
		}
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return l, nil
}

// close stops the parts in the order in which they use each other.
func (k *kit) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	var errs []error
	if k.system != nil {
		errs = append(errs, k.system.Close(ctx))
	}
	if k.host != nil {
		errs = append(errs, k.host.close(ctx))
	}
	if k.redis != nil {
		k.redis.close()
	}
	if k.store != nil {
		errs = append(errs, k.store.Close())
	}
	err := os.Remove(k.path(ReadyName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
