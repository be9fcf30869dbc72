//go:build faults

package faults_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/test/faults"
	"github.com/teamsync/edge-workers/test/plane"
)

// The two binaries are built once for all tests.
var (
	folder string
	whole  = sync.OnceValues(func() (string, error) { return build("node") })
	broken = sync.OnceValues(func() (string, error) { return build("broken", faults.Guards...) })
)

func TestMain(m *testing.M) {
	var err error
	folder, err = os.MkdirTemp("", "edge-faults-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func build(name string, guards ...faults.Guard) (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(folder, name)
	err = os.Mkdir(dir, 0o700)
	if err != nil {
		return "", err
	}
	return faults.Build(context.Background(), root, dir, guards...)
}

// grounds prepares a database for each story that may run at once. Stories do
// not share one: a sweep passes over rows that another sweep looks at.
func grounds(t *testing.T, node func() (string, error), n int) chan faults.Ground {
	t.Helper()
	binary, err := node()
	must(t, err)
	public, _, err := ed25519.GenerateKey(nil)
	must(t, err)
	free := make(chan faults.Ground, n)
	for range n {
		url := databasetest.MySQLURL(t)
		db := databasetest.Open(t, database.Params{URL: url})
		must(t, faults.RecordHistory(t.Context(), db))
		free <- faults.Ground{DB: db, DSN: url, Redis: plane.Redis(t), RedisURL: os.Getenv("EDGE_TEST_REDIS_URL"), Node: binary, Key: public}
	}
	return free
}

// atOnce is how many stories run at once.
func atOnce(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	must(t, err)
	return n
}

// TestMatrix runs every cell and prints the figures of docs/reliability.md.
// (S0-62, S2-207, S2-214, S2-237, S2-254)
func TestMatrix(t *testing.T) {
	free := grounds(t, whole, atOnce(t))
	began := time.Now()
	var mu sync.Mutex
	modes, finals, violations := map[faults.Mode]int{}, map[string][]string{}, 0
	t.Run("cell", func(t *testing.T) {
		for _, cell := range faults.Cells() {
			t.Run(cell.Name(), func(t *testing.T) {
				t.Parallel()
				ground := <-free
				defer func() { free <- ground }()
				result := cell.Run(t, ground)
				for _, violation := range result.Violations {
					t.Error(violation)
				}
				mu.Lock()
				defer mu.Unlock()
				modes[cell.Mode]++
				finals[string(result.Final)] = append(finals[string(result.Final)], cell.Name())
				violations += len(result.Violations)
			})
		}
	})
	cells := []string{}
	total := 0
	for _, mode := range faults.Modes {
		total += modes[mode]
		cells = append(cells, fmt.Sprintf("%s %d", mode, modes[mode]))
	}
	ends := []string{}
	for final, names := range finals {
		ends = append(ends, fmt.Sprintf("%s %d", final, len(names)))
		if sort.Strings(names); final != string(models.OutboxCompleted) {
			fmt.Printf("ended %s: %s\n", final, strings.Join(names, ", "))
		}
	}
	sort.Strings(ends)
	fmt.Printf("fault matrix: %d of %d cells run (%s); ended %s; violations %d; %.0f s\n",
		total, len(faults.Cells()), strings.Join(cells, ", "), strings.Join(ends, ", "), violations, time.Since(began).Seconds())
}

// TestCheckerCanFail runs nodes that lack one guard each: for every invariant
// there is one whose breach is reported.
func TestCheckerCanFail(t *testing.T) {
	free := grounds(t, broken, atOnce(t))
	for _, control := range faults.Controls {
		t.Run(control.Guard+"/"+control.Invariant, func(t *testing.T) {
			t.Parallel()
			ground := <-free
			defer func() { free <- ground }()
			result := control.Run(t, ground)
			for _, violation := range result.Violations {
				if strings.HasPrefix(violation, control.Invariant+":") {
					return
				}
			}
			t.Errorf("a node without the guard %q was to violate %s; reported: %v", control.Guard, control.Invariant, result.Violations)
		})
	}
}

// TestZombieChangesNothing stops a process with SIGSTOP just before its
// settlement, lets another one take the deployment over and end it, and lets
// the first go on (S2-182, S2-214, S2-237).
func TestZombieChangesNothing(t *testing.T) {
	ground := <-grounds(t, whole, 1)
	for _, cell := range faults.Cells() {
		if cell.Name() != "run/settleBefore/stall" {
			continue
		}
		result := cell.Run(t, ground)
		if len(result.Violations) > 0 || result.Final != models.OutboxCompleted {
			t.Fatalf("ended %s; %v", result.Final, result.Violations)
		}
		return
	}
	t.Fatal("the matrix has no such cell")
}

// TestReleaseHasNoFailpoint looks for gofail's runtime and the failpoints in
// the commands as they are released; the node is the positive control.
func TestReleaseHasNoFailpoint(t *testing.T) {
	commands, err := filepath.Glob(filepath.Join(absolute(t), "bin", "*"))
	must(t, err)
	if len(commands) == 0 {
		t.Fatal("bin/ has no command: run make build")
	}
	for _, command := range commands {
		if name, found := failpointIn(t, command); found {
			t.Errorf("%s contains %q", filepath.Base(command), name)
		}
	}
	node, err := whole()
	must(t, err)
	if _, found := failpointIn(t, node); !found {
		t.Error("the node seems to contain no failpoint: this test sees nothing")
	}
}

func failpointIn(t *testing.T, binary string) (string, bool) {
	t.Helper()
	content, err := os.ReadFile(binary)
	must(t, err)
	for _, name := range []string{"go.etcd.io/gofail", "faults/failpoint", "__fp_", "settleBefore"} {
		if bytes.Contains(content, []byte(name)) {
			return name, true
		}
	}
	return "", false
}
