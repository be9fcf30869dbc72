package edgehost

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/teamsync/edge-workers/pkg/edgehost/egress"
)

// The path segments of the script API of a host that is not told others.
const (
	DefaultAccount   = "onprem"
	DefaultNamespace = "edge-workers"
)

// Params is what a Host needs. DataDir, Workerd, Token, Logger and Registerer
// are required; the rest has defaults.
type Params struct {
	// DataDir holds all state: scripts, their storage, and run folders. One
	// host owns it; a second host on the same folder is refused. It must be
	// on a local file system (locks, atomic renames).
	DataDir string
	// Workerd is the path of the workerd binary; see workerd.Find.
	Workerd string
	// Token is the bearer token of the script API, at least 16 characters.
	Token string
	// Account and Namespace are the segments that the script API's paths must
	// carry. Defaults: DefaultAccount and DefaultNamespace.
	Account   string
	Namespace string
	// Limits bounds what the host does; a zero field takes its default.
	Limits Limits
	// Egress is what Workers may reach. The zero value lets them reach public
	// addresses on ports 80 and 443 only.
	Egress egress.Policy
	// Isolation, when not nil, runs each Worker under its own uid in an empty
	// network namespace. It needs Linux and root and stops the start without.
	Isolation *Isolation
	// Logger receives the host's and the Workers' log lines.
	Logger *slog.Logger
	// Registerer receives the metrics of this host. Two hosts in one process
	// need two registries.
	Registerer prometheus.Registerer
}

// Isolation says under which uids Workers run. The uid of a script is derived
// from its name and stays the same; scripts are spread over Count uids, so
// few scripts of many may share one.
type Isolation struct {
	FirstUID uint32 // default 200000
	Count    uint32 // default 65536
}

// Limits bounds a host. A zero field takes the default that is given with it.
type Limits struct {
	// MaxScripts is how many scripts the host takes (1000). The next new one
	// is refused with edge_host_capacity_exhausted.
	MaxScripts int
	// MinFreeBytes of DataDir's file system must be free for an upload
	// (256 MiB); otherwise edge_host_capacity_exhausted.
	MinFreeBytes uint64
	// MaxProcesses is how many Workers run at once (200, about 10 MB each when
	// idle). The least recently used idle one makes room.
	MaxProcesses int
	// ConcurrentStarts and ConcurrentValidations are bounded by the cores.
	ConcurrentStarts      int
	ConcurrentValidations int
	// MaxUploads is how many uploads are read, validated or waiting at once
	// (32); more are refused with 429.
	MaxUploads int
	// MaxMetadataBytes (64 KiB) and MaxBundleBytes (5 MiB) bound an upload.
	MaxMetadataBytes int64
	MaxBundleBytes   int64
	// MaxBodyBytes (8 MiB) and MaxResponseBytes (64 MiB) bound one request.
	MaxBodyBytes     int64
	MaxResponseBytes int64
	// RequestTimeout is the time of one request from its first byte to its
	// last, waiting for a start included (60 s).
	RequestTimeout time.Duration
	// MaxInFlight is how many requests one Worker serves at once (128) and
	// MaxWaiting how many may wait for its start or swap (256).
	MaxInFlight int
	MaxWaiting  int
	// StartTimeout bounds a start and a validation start (10 s).
	StartTimeout time.Duration
	// DrainTimeout is how long a swap waits for requests of the old release
	// (10 s), StopGrace how long SIGTERM may take before SIGKILL (5 s).
	DrainTimeout time.Duration
	StopGrace    time.Duration
	// IdleTimeout stops a Worker without requests (15 min).
	IdleTimeout time.Duration
	// HealthInterval and HealthTimeout drive the watchdog: a Worker whose
	// event loop is silent for HealthTimeout is killed (1 s, 5 s).
	HealthInterval time.Duration
	HealthTimeout  time.Duration
	// MaxHeapMiB is V8's heap limit (128): the process aborts beyond it.
	// MaxMemoryBytes is the limit of the whole process (384 MiB).
	MaxHeapMiB     int
	MaxMemoryBytes uint64
}

func fill[T int | int64 | uint64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

func (l Limits) withDefaults() Limits {
	fill(&l.MaxScripts, 1000)
	fill(&l.MinFreeBytes, 256<<20)
	fill(&l.MaxProcesses, 200)
	fill(&l.ConcurrentStarts, runtime.NumCPU())
	fill(&l.ConcurrentValidations, runtime.NumCPU())
	fill(&l.MaxUploads, 32)
	fill(&l.MaxMetadataBytes, 64<<10)
	fill(&l.MaxBundleBytes, 5<<20)
	fill(&l.MaxBodyBytes, 8<<20)
	fill(&l.MaxResponseBytes, 64<<20)
	fill(&l.RequestTimeout, 60*time.Second)
	fill(&l.MaxInFlight, 128)
	fill(&l.MaxWaiting, 256)
	fill(&l.StartTimeout, 10*time.Second)
	fill(&l.DrainTimeout, 10*time.Second)
	fill(&l.StopGrace, 5*time.Second)
	fill(&l.IdleTimeout, 15*time.Minute)
	fill(&l.HealthInterval, time.Second)
	fill(&l.HealthTimeout, 5*time.Second)
	fill(&l.MaxHeapMiB, 128)
	fill(&l.MaxMemoryBytes, 384<<20)
	return l
}

func (l Limits) validate() error {
	for name, v := range map[string]int64{
		"MaxScripts": int64(l.MaxScripts), "MaxProcesses": int64(l.MaxProcesses),
		"ConcurrentStarts": int64(l.ConcurrentStarts), "ConcurrentValidations": int64(l.ConcurrentValidations),
		"MaxUploads": int64(l.MaxUploads), "MaxMetadataBytes": l.MaxMetadataBytes, "MaxBundleBytes": l.MaxBundleBytes,
		"MaxBodyBytes": l.MaxBodyBytes, "MaxResponseBytes": l.MaxResponseBytes,
		"RequestTimeout": int64(l.RequestTimeout), "MaxInFlight": int64(l.MaxInFlight), "MaxWaiting": int64(l.MaxWaiting),
		"StartTimeout": int64(l.StartTimeout), "DrainTimeout": int64(l.DrainTimeout), "StopGrace": int64(l.StopGrace),
		"IdleTimeout": int64(l.IdleTimeout), "HealthInterval": int64(l.HealthInterval), "HealthTimeout": int64(l.HealthTimeout),
		"MaxHeapMiB": int64(l.MaxHeapMiB),
	} {
		if v < 0 {
			return fmt.Errorf("edge host limit %s is negative", name)
		}
	}
	return nil
}

func (p Params) withDefaults() (Params, error) {
	switch {
	case p.DataDir == "":
		return p, errors.New("edge host: DataDir is required")
	case p.Workerd == "":
		return p, errors.New("edge host: Workerd is required")
	case len(p.Token) < 16:
		return p, errors.New("edge host: Token must have at least 16 characters")
	case p.Logger == nil || p.Registerer == nil:
		return p, errors.New("edge host: Logger and Registerer are required")
	}
	dir, err := filepath.Abs(p.DataDir)
	if err != nil {
		return p, fmt.Errorf("edge host data folder: %w", err)
	}
	p.DataDir = dir
	if p.Account == "" {
		p.Account = DefaultAccount
	}
	if p.Namespace == "" {
		p.Namespace = DefaultNamespace
	}
	p.Limits = p.Limits.withDefaults()
	if err := p.Limits.validate(); err != nil {
		return p, err
	}
	if p.Isolation != nil {
		iso := *p.Isolation
		if iso.FirstUID == 0 {
			iso.FirstUID = 200000
		}
		if iso.Count == 0 {
			iso.Count = 65536
		}
		p.Isolation = &iso
	}
	return p, nil
}
