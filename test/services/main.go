// Command services runs a command with the servers that the tests need:
//
//	go run ./test/services -- go test ./...
//
// It makes sure that MariaDB and Redis are on this machine (installing them
// with apt-get or brew where they are missing), starts a private one of each
// in a temporary folder, passes their addresses on in EDGE_TEST_MYSQL_DSN and
// EDGE_TEST_REDIS_URL, and ends with the command's exit code. A variable that
// is already set is left alone and its server is not started.
//
//	go run ./test/services -minio .cache/bin/minio -- go test ./test/objects
//
// starts that MinIO too, and passes its address on in EDGE_TEST_S3_URL, with the
// key pair of its administrator in it: http://KEY:SECRET@127.0.0.1:PORT. And
//
//	go run ./test/services -sqs tools/sqs -- go test -tags sqs ./transports/sqs
//
// starts the SQS server of that npm package, and passes its address on in
// EDGE_TEST_SQS_URL.
//
// When the command is `go test`, its output is condensed: one line for each
// package, the full output of each test that failed, and at the end the tests
// that were skipped, with their reasons, and one line of totals. With -v, -json
// or a benchmark the output of go test is left as it is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// exitHarness is the exit code when the harness itself failed: the value of
// EX_UNAVAILABLE, which neither go test nor a shell uses.
const exitHarness = 69

func main() {
	binary := flag.String("minio", "", "the MinIO binary to start, if any")
	queues := flag.String("sqs", "", "the folder of the SQS server to start, if any")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: go run ./test/services [-minio BINARY] [-sqs FOLDER] -- COMMAND [ARGUMENT]...")
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	all := slices.Clone(servers)
	if *binary != "" {
		all = append(all, minio(*binary))
	}
	if *queues != "" {
		all = append(all, sqs(*queues))
	}
	code, err := run(flag.Args(), all)
	if err != nil {
		fmt.Fprintln(os.Stderr, "test services:", err)
		os.Exit(exitHarness)
	}
	os.Exit(code)
}

// run starts the servers, runs the command, and stops the servers. Its error is
// the harness's; what became of the command is the exit code.
func run(arguments []string, all []server) (int, error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go relayOrphaning(signals)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	set, err := startInterruptibly(ctx, cancel, signals, all)
	if err != nil {
		return 0, err
	}
	code, err := execute(arguments, set.environment(), signals)
	set.stop(err != nil || code != 0)
	return code, err
}

// startInterruptibly starts the servers; a signal ends that early.
func startInterruptibly(ctx context.Context, cancel func(), signals chan os.Signal, all []server) (*services, error) {
	type outcome struct {
		set *services
		err error
	}
	started := make(chan outcome, 1)
	go func() {
		set, err := start(ctx, all)
		started <- outcome{set, err}
	}()
	select {
	case result := <-started:
		return result.set, result.err
	case caught := <-signals:
		cancel()
		result := <-started
		if result.set != nil {
			result.set.stop(false)
		}
		return nil, errors.Join(fmt.Errorf("stopped by %s while the servers were starting", caught), result.err)
	}
}

// orphanPoll is how often the harness looks whether its parent is still there.
const orphanPoll = time.Second

// relayOrphaning turns the end of the parent into a signal. `go run` passes no
// SIGTERM on: whoever kills it would leave the tests and the servers running.
func relayOrphaning(signals chan<- os.Signal) {
	parent := os.Getppid()
	for range time.Tick(orphanPoll) {
		if os.Getppid() != parent {
			signals <- syscall.SIGTERM
			return
		}
	}
}
