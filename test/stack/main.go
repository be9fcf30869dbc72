// Command stack runs the production programs on this machine as an installation
// has them: api, deployers, reconciler and an edge host, each a process of its
// own, with MariaDB, Redis, MinIO and a queue on the loopback interface. It makes
// a company and a department, prints the addresses and tokens, and runs until
// Ctrl-C; then it stops the programs one after another and removes its folder.
//
//	go run ./test/stack -transport pubsub
//
// Servers that EDGE_TEST_S3_URL and EDGE_TEST_SQS_URL name are used and not
// started. It exits with 0 after a clean stop, 1 when a program did not start or
// did not end well, and 2 for wrong arguments.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/test/fleet"
	"github.com/teamsync/edge-workers/test/services/daemon"
)

// transports are those that separate processes work over.
var transports = []string{config.PubSubBroker, config.SQSBroker, config.BatchBroker, config.Legacy}

type params struct {
	transport string
	deployers int
	minio     string
	sqs       string
	readyFile string
}

func main() {
	var p params
	flag.StringVar(&p.transport, "transport", config.PubSubBroker, "how deployments reach the deployers: pubsub, sqs, batch or legacy")
	flag.IntVar(&p.deployers, "deployers", 2, "how many deployers; batch starts one for each deployment, legacy has none")
	flag.StringVar(&p.minio, "minio", ".cache/bin/minio", "the MinIO binary")
	flag.StringVar(&p.sqs, "sqs", "tools/sqs", "the folder of the SQS server's npm package")
	flag.StringVar(&p.readyFile, "ready-file", "", "also write the addresses and tokens as one JSON object to this file when all is up")
	flag.Parse()
	if flag.NArg() > 0 || !slices.Contains(transports, p.transport) || p.deployers < 1 {
		fmt.Fprintf(os.Stderr, "stack: the transport is one of %v, with at least one deployer\n", transports)
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second signal ends this process at once
	err := run(ctx, p, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

// run has all of the stack's files in one folder, which it removes.
func run(ctx context.Context, p params, out io.Writer) error {
	folder, err := os.MkdirTemp("", "ew-stack-") // short: a socket's path must be
	if err != nil {
		return err
	}
	err = os.Setenv("TMPDIR", folder) //nolint:forbidigo // for all that it starts
	if err != nil {
		return err
	}
	s := newScope(folder)
	err = s.try(func() { s.must(operate(ctx, s, p, out)) })
	s.close()
	return errors.Join(err, os.RemoveAll(folder))
}

// operate starts the fleet, waits for the signal, and stops it.
func operate(ctx context.Context, s *scope, p params, out io.Writer) error {
	starting := context.AfterFunc(ctx, s.cancel)
	say(out, "Starting Edge Workers with %s:\n", p.transport)
	startServers(s, p, out)
	f := fleet.Start(s, fleet.Params{Transport: p.transport, Deployers: p.deployers, Step: stepper(out)})
	f.Provision(devkit.CompanyID, devkit.DepartmentID)
	ready, err := describe(f)
	if err != nil {
		return err
	}
	for _, name := range []string{filepath.Join(s.folder, devkit.ReadyName), p.readyFile} {
		if name == "" {
			continue
		}
		err = devkit.WriteReady(name, ready)
		if err != nil {
			return err
		}
	}
	if !starting() {
		return errors.New("stopped while it was starting")
	}
	announce(out, f, ready, s.folder)
	watch(ctx, f, out)
	say(out, "\nStopping: what is in flight is finished first. Ctrl-C again ends it at once and leaves %s\n", s.folder)
	return f.Stop()
}

// startServers starts what a fleet takes from the environment, as tests do.
func startServers(s *scope, p params, out io.Writer) {
	type server func(ctx context.Context, dir string) (*daemon.Daemon, string, error)
	start := func(name, variable string, server server) {
		if os.Getenv(variable) != "" {
			return
		}
		stepper(out)(name, func() {
			d, address, err := server(s.Context(), s.folder)
			s.must(err)
			s.Cleanup(d.Kill)
			s.must(os.Setenv(variable, address)) //nolint:forbidigo // where a fleet looks for it, also in tests
		})
	}
	start("MinIO", "EDGE_TEST_S3_URL", func(ctx context.Context, dir string) (*daemon.Daemon, string, error) {
		return daemon.MinIO(ctx, dir, p.minio)
	})
	if p.transport == config.SQSBroker {
		start("the SQS server", "EDGE_TEST_SQS_URL", func(ctx context.Context, dir string) (*daemon.Daemon, string, error) {
			return daemon.SQS(ctx, dir, p.sqs)
		})
	}
}

// watch reports programs that end, until the context does. The others go on
// without them, as an installation does.
func watch(ctx context.Context, f *fleet.Fleet, out io.Writer) {
	programs := f.Programs()
	died := make(chan fleet.Program, len(programs))
	for _, p := range programs {
		go func() { <-p.Done(); died <- p }()
	}
	for {
		select {
		case p := <-died:
			say(out, "\n%s (process %d) has ended; the others go on. The end of its log:\n%s\n", p.Name, p.PID(), fleet.Tail(p.Log()))
		case <-ctx.Done():
			return
		}
	}
}
