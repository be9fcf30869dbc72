// Command demo runs the product's main job on this machine, from an empty
// folder to answers through the gateway, and prints what it saw with how long
// it took. It drives the real command line and the real system; it exits 0
// only when everything was as it must be.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1) //nolint:gocritic // exitAfterDefer: stop was called
	}
}

// edgectl is the built command line; the demo is run from the repository's root.
const (
	edgectl = "bin/edgectl"
	example = "examples/orders"
)

// The demo's own bounds: a part that hangs is an error, not a wait.
const (
	startLimit = 60 * time.Second
	wholeLimit = 5 * time.Minute
)

type demo struct {
	ready devkit.Ready
	data  string
	api   *client.Client
	line  timeline
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, wholeLimit)
	defer cancel()
	folder, err := os.MkdirTemp("", "edge-workers-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	d := &demo{data: filepath.Join(folder, "data")}
	stop, err := d.start(ctx, filepath.Join(folder, "ready.json"), filepath.Join(folder, "dev.log"))
	if err != nil {
		return err
	}
	err = d.play(ctx, folder)
	return errors.Join(err, stop())
}

// start runs `edgectl dev` and waits for its ready file.
func (d *demo) start(ctx context.Context, readyFile, logFile string) (func() error, error) {
	began := time.Now()
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	system := exec.CommandContext(context.WithoutCancel(ctx), edgectl, "dev", "--data", d.data, "--addr", "127.0.0.1:0", "--ready-file", readyFile) //nolint:gosec // G204: our own binary
	system.Stdout, system.Stderr = log, log
	err = system.Start()
	if err != nil {
		return nil, fmt.Errorf("start the system (run `make build` first): %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- system.Wait() }()
	stop := func() error {
		_ = system.Process.Signal(syscall.SIGTERM)
		return errors.Join(<-ended, log.Close())
	}
	for {
		raw, err := os.ReadFile(readyFile)
		if err == nil && json.Unmarshal(raw, &d.ready) == nil {
			break
		}
		select {
		case err := <-ended:
			text, _ := os.ReadFile(logFile)
			return nil, fmt.Errorf("the system ended: %w\n%s", err, text)
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(began) > startLimit {
			return nil, errors.Join(errors.New("the system is not up in time"), stop())
		}
	}
	d.line.add("system up", time.Since(began))
	d.api, err = client.New(client.Params{BaseURL: d.ready.APIURL, Token: d.ready.ManagerToken})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// play is the story: deploy, call, deploy again, look at what is left.
func (d *demo) play(ctx context.Context, folder string) error {
	say("Deploy %s", example)
	first, err := d.deploy(ctx, example)
	if err != nil {
		return err
	}
	say("Call three operations through the gateway")
	order, err := d.call(ctx)
	if err != nil {
		return err
	}
	say("Deploy a second revision")
	changed := filepath.Join(folder, "orders")
	err = secondRevision(changed)
	if err != nil {
		return err
	}
	second, err := d.deploy(ctx, changed)
	if err != nil {
		return err
	}
	err = d.check(ctx, order, first, second)
	if err != nil {
		return err
	}
	figures, err := d.measure(ctx)
	if err != nil {
		return err
	}
	d.line.print(os.Stdout)
	figures.print(os.Stdout)
	return figures.judge()
}

// deployed is what `edgectl deploy --json` prints.
type deployed struct {
	Version gen.Version `json:"version"`
	Ticket  gen.Ticket  `json:"ticket"`
}

// deploy runs the command line as a person would and keeps its progress on
// the screen.
func (d *demo) deploy(ctx context.Context, dir string) (gen.Version, error) {
	began := time.Now()
	command := exec.CommandContext(ctx, edgectl, "deploy", dir, "--wait", "--json", "--dev-data", d.data) //nolint:gosec // G204: our own binary
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return gen.Version{}, fmt.Errorf("edgectl deploy %s: %w", dir, err)
	}
	var result deployed
	err = json.Unmarshal(out, &result)
	if err != nil {
		return gen.Version{}, fmt.Errorf("the answer of edgectl deploy: %w", err)
	}
	if result.Ticket.Status != gen.TicketStatusCompleted {
		return gen.Version{}, fmt.Errorf("the ticket is %s", result.Ticket.Status)
	}
	d.line.add(fmt.Sprintf("revision %d submitted, built, deployed", result.Version.Revision), time.Since(began))
	return result.Version, nil
}

// call writes an order, reads it back at its public path and sends a faulty
// one. It returns the order as it was read.
func (d *demo) call(ctx context.Context) ([]byte, error) {
	worker, err := d.api.Worker(ctx)
	if err != nil {
		return nil, err
	}
	base := d.ready.GatewayURL + "/w/" + worker.ScriptName
	status, made, err := d.send(ctx, http.MethodPost, base+"/orders", `{"customer":"Ada","lines":[{"sku":"DS-001","quantity":3}]}`)
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("orders.create: %d %s %w", status, made, err)
	}
	var order struct{ ID int }
	err = json.Unmarshal(made, &order)
	if err != nil {
		return nil, fmt.Errorf("orders.create: %w", err)
	}
	status, read, err := d.send(ctx, http.MethodGet, fmt.Sprintf("%s/orders/%d", base, order.ID), "")
	if err != nil || status != http.StatusOK || !bytes.Equal(made, read) {
		return nil, fmt.Errorf("orders.get: %d %s %w", status, read, err)
	}
	status, refused, err := d.send(ctx, http.MethodPost, base+"/orders", `{"customer":"","lines":[{"sku":"DS-001","quantity":0}]}`)
	if err != nil || status != http.StatusUnprocessableEntity {
		return nil, fmt.Errorf("bad input: %d %s %w", status, refused, err)
	}
	return read, nil
}

// send makes one request with the manager's token and tells it on the screen.
func (d *demo) send(ctx context.Context, method, url, body string) (int, []byte, error) {
	began := time.Now()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+d.ready.ManagerToken)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	path := url[strings.LastIndex(url, "/orders"):]
	fmt.Printf("  %s %s %s\n  → %d %.300s\n", method, path, body, response.StatusCode, answer)
	d.line.add(fmt.Sprintf("%s %s → %d", method, path, response.StatusCode), time.Since(began))
	return response.StatusCode, answer, err
}

// check shows that the data survived the deployment and that exactly the first
// revision was superseded.
func (d *demo) check(ctx context.Context, order []byte, first, second gen.Version) error {
	var known struct{ ID int }
	err := json.Unmarshal(order, &known)
	if err != nil {
		return err
	}
	worker, err := d.api.Worker(ctx)
	if err != nil {
		return err
	}
	status, again, err := d.send(ctx, http.MethodGet, fmt.Sprintf("%s/w/%s/orders/%d", d.ready.GatewayURL, worker.ScriptName, known.ID), "")
	if err != nil || status != http.StatusOK || !bytes.Equal(order, again) {
		return fmt.Errorf("the order after the second deployment: %d %s %w", status, again, err)
	}
	for _, want := range []struct {
		id    string
		state gen.VersionState
	}{{first.ID, gen.VersionStateSuperseded}, {second.ID, gen.VersionStateDeployed}} {
		got, err := d.api.Version(ctx, want.id)
		if err != nil {
			return err
		}
		fmt.Printf("  revision %d is %s\n", got.Revision, got.State)
		if got.State != want.state {
			return fmt.Errorf("revision %d is %s, not %s", got.Revision, got.State, want.state)
		}
	}
	return nil
}

// secondRevision copies the example and changes its price list, so that the
// bundle really differs.
func secondRevision(dir string) error {
	err := os.CopyFS(dir, os.DirFS(example))
	if err != nil {
		return fmt.Errorf("copy the example: %w", err)
	}
	name := filepath.Join(dir, "static", "products.json")
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var prices map[string]any
	err = json.Unmarshal(raw, &prices)
	if err != nil {
		return fmt.Errorf("the example's price list: %w", err)
	}
	prices["revision"] = 2
	raw, err = json.MarshalIndent(prices, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, raw, 0o600)
}

func say(format string, args ...any) { fmt.Printf("\n"+format+"\n", args...) }
