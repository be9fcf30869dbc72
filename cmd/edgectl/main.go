// Command edgectl is the command line of Edge Workers: it makes, submits,
// deploys, calls and inspects a department's Worker. docs/edgectl.md describes
// it, exit codes included.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], systemConsole())
	stop()
	os.Exit(code)
}

// console is everything of the outside that commands use, so that a test can
// run one in process.
type console struct {
	in     io.Reader
	out    io.Writer // results
	err    io.Writer // progress and errors
	live   bool      // err is a terminal: progress is redrawn
	getenv func(string) string
	now    func() time.Time
	pause  func(context.Context, time.Duration) error // nil: a timer
}

func systemConsole() console {
	return console{in: os.Stdin, out: os.Stdout, err: os.Stderr, live: isTerminal(os.Stderr), getenv: os.Getenv, now: time.Now}
}

func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
