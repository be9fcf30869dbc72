package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/test/services/daemon"
)

// harness is the built command; TestMain makes it.
var harness string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "edge-harness-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	harness = filepath.Join(folder, "services")
	output, err := exec.Command("go", "build", "-o", harness, ".").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build the harness: %v\n%s", err, output)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder) // a leftover in the temporary folder does no harm
	os.Exit(code)
}

// call is one run of the harness with a temporary folder of its own, so that
// what it leaves there can be counted.
type call struct {
	*exec.Cmd
	temp   string
	stderr bytes.Buffer
}

func prepare(t *testing.T, environment []string, arguments ...string) *call {
	t.Helper()
	for _, one := range servers {
		if !systemInstaller().complete(one) {
			t.Skipf("%s is not on this machine: the tests run against %s", one.recipe.title, one.variable)
		}
	}
	// Short, because sockets lie in it.
	temp, err := os.MkdirTemp("/tmp", "eh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	c := &call{Cmd: exec.CommandContext(t.Context(), harness, append([]string{"--"}, arguments...)...), temp: temp}
	c.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "EDGE_TEST_") })
	c.Env = append(c.Env, "TMPDIR="+temp)
	c.Env = append(c.Env, environment...)
	c.Stderr = &c.stderr
	return c
}

// finish runs the call to its end and gives what it printed and its exit code.
func (c *call) finish(t *testing.T) (string, int) {
	t.Helper()
	output, err := c.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v\n%s", err, c.stderr.String())
	}
	return string(output), c.ProcessState.ExitCode()
}

// leftovers are the names in the call's temporary folder.
func (c *call) leftovers(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(c.temp)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// talk is a shell program that proves that both servers run and tells their
// process ids.
const talk = `cd "$(dirname "${EDGE_TEST_REDIS_URL#unix://}")"; test -S m.sock && test -S r.sock && echo "pid $(cat m.pid)"; `

func serverPID(t *testing.T, output string) int {
	t.Helper()
	var pid int
	_, err := fmt.Sscanf(output, "pid %d", &pid)
	if err != nil {
		t.Fatalf("the command did not see the servers: %q", output)
	}
	return pid
}

func TestCommandGetsServersAndItsExitCodeComesBack(t *testing.T) {
	t.Parallel()
	c := prepare(t, nil, "sh", "-c", talk+"exit 7")
	output, code := c.finish(t)
	if code != 7 {
		t.Errorf("exit code %d, want 7\n%s", code, c.stderr.String())
	}
	pid := serverPID(t, output)
	if syscall.Kill(pid, 0) == nil {
		t.Errorf("MariaDB (%d) still runs", pid)
	}
	names := c.leftovers(t)
	if len(names) != 1 || !strings.HasPrefix(names[0], keptPrefix) {
		t.Fatalf("left behind: %q, want the logs alone", names)
	}
	if !strings.Contains(c.stderr.String(), names[0]) {
		t.Errorf("nothing tells where the logs are:\n%s", c.stderr.String())
	}
	log, err := os.ReadFile(filepath.Join(c.temp, names[0], "mariadb.log"))
	if err != nil || len(log) == 0 {
		t.Errorf("MariaDB's log: %d bytes, %v", len(log), err)
	}
}

func TestSuccessLeavesNothing(t *testing.T) {
	t.Parallel()
	// Standard output of a straggler must not hold the harness up, and the
	// straggler must not survive it.
	c := prepare(t, nil, "sh", "-c", talk+"sleep 1000 & echo straggler $!")
	output, code := c.finish(t)
	if code != 0 || len(c.leftovers(t)) != 0 {
		t.Errorf("exit code %d, left behind %q\n%s", code, c.leftovers(t), c.stderr.String())
	}
	var server, straggler int
	_, err := fmt.Sscanf(output, "pid %d\nstraggler %d", &server, &straggler)
	if err != nil {
		t.Fatalf("%q: %v", output, err)
	}
	for _, pid := range []int{server, straggler} {
		awaitEnd(t, pid)
	}
}

// awaitEnd waits until a process that is no child of ours has ended. There is
// no event for that; a zombie that nobody has collected counts as ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		if syscall.Kill(pid, 0) != nil || isZombie(pid) {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("process %d still runs", pid)
		}
	}
}

func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(state, []byte("Z"))
}

// startAndReadPID starts the call and returns the server's process id once
// the command has told it.
func startAndReadPID(t *testing.T, c *call) (int, *bufio.Reader) {
	t.Helper()
	pipe, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Start()
	if err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, c.stderr.String())
	}
	return serverPID(t, line), out
}

func TestSignalReachesTheCommand(t *testing.T) {
	t.Parallel()
	c := prepare(t, nil, "sh", "-c", `trap 'echo "got it"; exit 9' TERM; `+talk+`while :; do sleep 0.05; done`)
	pid, out := startAndReadPID(t, c)
	err := c.Process.Signal(syscall.SIGTERM)
	if err != nil {
		t.Fatal(err)
	}
	line, err := out.ReadString('\n')
	if err != nil || line != "got it\n" {
		t.Errorf("the command said %q, %v", line, err)
	}
	_ = c.Wait() // its error is the exit code below
	if c.ProcessState.ExitCode() != 9 {
		t.Errorf("exit code %d, want 9", c.ProcessState.ExitCode())
	}
	awaitEnd(t, pid)
}

func TestKilledHarnessTakesTheServersAlong(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal")
	}
	c := prepare(t, nil, "sh", "-c", talk+"exec sleep 1000")
	pid, _ := startAndReadPID(t, c)
	err := c.Process.Kill()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	awaitEnd(t, pid)
	// The data that it could not remove goes with the next run.
	if len(c.leftovers(t)) != 1 {
		t.Fatalf("left behind: %q", c.leftovers(t))
	}
	sweep(c.temp)
	if len(c.leftovers(t)) != 0 {
		t.Errorf("after the sweep: %q", c.leftovers(t))
	}
}

func TestSetVariablesAreKeptAndNothingIsStarted(t *testing.T) {
	t.Parallel()
	c := prepare(t, []string{mysqlVariable + "=mine", redisVariable + "=yours"}, "sh", "-c", "echo $EDGE_TEST_MYSQL_DSN $EDGE_TEST_REDIS_URL; exit 3")
	output, code := c.finish(t)
	if output != "mine yours\n" || code != 3 {
		t.Errorf("%q, exit code %d", output, code)
	}
	if len(c.leftovers(t)) != 0 || strings.Contains(c.stderr.String(), "logs") {
		t.Errorf("something was started: %q\n%s", c.leftovers(t), c.stderr.String())
	}
}

func TestServerThatDoesNotStart(t *testing.T) {
	t.Parallel()
	fakes := t.TempDir()
	for name, script := range map[string]string{
		"mariadbd":           "#!/bin/sh\necho the disk is on fire\nexit 1\n",
		"mariadb-install-db": "#!/bin/sh\nexit 0\n",
	} {
		err := os.WriteFile(filepath.Join(fakes, name), []byte(script), 0o700) // #nosec G306 -- a program
		if err != nil {
			t.Fatal(err)
		}
	}
	c := prepare(t, []string{"PATH=" + fakes + ":" + os.Getenv("PATH")}, "echo", "not reached")
	output, code := c.finish(t)
	if output != "" || code != exitHarness {
		t.Errorf("%q, exit code %d", output, code)
	}
	for _, text := range []string{"mariadb ended while it was starting", "the disk is on fire", "set " + mysqlVariable} {
		if !strings.Contains(c.stderr.String(), text) {
			t.Errorf("no %q in:\n%s", text, c.stderr.String())
		}
	}
	if len(c.leftovers(t)) != 0 {
		t.Errorf("left behind: %q", c.leftovers(t))
	}
}

func TestGoTestIsCondensed(t *testing.T) {
	t.Parallel()
	c := prepare(t, []string{mysqlVariable + "=x", redisVariable + "=x"}, "go", "test", "./testdata/sample")
	output, code := c.finish(t)
	if code != 1 {
		t.Errorf("exit code %d", code)
	}
	for _, text := range []string{
		"one is not two",
		"TestSkips: sample_test.go:8: the moon is in the way",
		"FAIL\tgithub.com/teamsync/edge-workers/test/services/testdata/sample",
		"1 passed, 2 failed, 1 skipped",
	} {
		if !strings.Contains(output, text) {
			t.Errorf("no %q in:\n%s", text, output)
		}
	}
	if strings.Contains(output, "nobody reads this") {
		t.Errorf("the output of a passed test was shown:\n%s", output)
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	c := prepare(t, []string{mysqlVariable + "=x", redisVariable + "=x"}, "no-such-command-here")
	_, code := c.finish(t)
	if code != exitHarness || !strings.Contains(c.stderr.String(), "no-such-command-here") {
		t.Errorf("exit code %d\n%s", code, c.stderr.String())
	}
}

func TestSweepSparesTheLiving(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	folder := func(name string, lock bool) string {
		path := filepath.Join(parent, name)
		err := os.Mkdir(path, 0o700)
		if err != nil {
			t.Fatal(err)
		}
		if lock {
			file, err := lockFolder(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
		}
		return path
	}
	alive := folder(folderPrefix+"1", true)
	young := folder(folderPrefix+"2", false)
	logs := folder(keptPrefix+"3", false)
	dead := folder(folderPrefix+"4", false)
	err := os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	sweep(parent)
	for _, path := range []string{alive, young, logs} {
		_, err = os.Stat(path)
		if err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	_, err = os.Stat(dead)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the dead harness's folder stayed: %v", err)
	}
}

// The harness and the daemons must agree on what is a socket that can be bound.
func TestFolderLeavesRoomForSockets(t *testing.T) {
	t.Parallel()
	set := &services{}
	err := set.makeFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer set.stop(false)
	listener, err := net.Listen("unix", filepath.Join(set.folder, "m.sock"))
	if err != nil {
		t.Fatal(err)
	}
	err = listener.Close()
	if err != nil {
		t.Fatal(err)
	}
	_, err = daemon.Find("sh")
	if err != nil {
		t.Errorf("find sh: %v", err)
	}
}

// A MinIO that does not start ends the run before the command, with the end of
// its log.
func TestMinIOThatDoesNotStart(t *testing.T) {
	t.Parallel()
	c := prepare(t, nil, "sh", "-c", "echo started")
	broken := filepath.Join(t.TempDir(), "minio")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho what went wrong\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.Args = slices.Insert(c.Args, 1, "-minio", broken)
	output, code := c.finish(t)
	message := c.stderr.String()
	if code != exitHarness || output != "" || !strings.Contains(message, "what went wrong") || !strings.Contains(message, s3Variable) {
		t.Errorf("exit code %d, output %q\n%s", code, output, message)
	}
	if names := c.leftovers(t); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
	c = prepare(t, []string{s3Variable + "=http://elsewhere"}, "sh", "-c", "echo $"+s3Variable)
	c.Args = slices.Insert(c.Args, 1, "-minio", broken)
	if output, code = c.finish(t); code != 0 || output != "http://elsewhere\n" {
		t.Errorf("a service from elsewhere: exit code %d, %q\n%s", code, output, c.stderr.String())
	}
}
