// Package process is what the mains of the servers share: the command line, the
// check of the settings, and the exit codes.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/teamsync/edge-workers/pkg/observe"
)

// The exit codes. A process that was stopped and ended cleanly exits with 0.
const (
	ExitFailed = 1 // it could not start, or failed
	ExitUsage  = 2 // the command line or the settings are wrong
)

// Exit is the error with which Run ends the process with a code of its own. It
// has been explained in the log.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Server is a program that serves until it is stopped. S is its settings.
type Server[S any] struct {
	// Name is the program's, and About what its version line says besides.
	Name, About string
	// Args, when set, takes what follows the flags; else nothing may.
	Args *[]string
	// Load reads the settings from the environment.
	Load func(environment map[string]string) (S, error)
	// Run serves until ctx ends and writes the log to errs.
	Run func(ctx context.Context, settings S, errs io.Writer) error
}

// Start reads the command line and the settings and runs the server. It gives
// the exit code.
func (s Server[S]) Start(ctx context.Context, args []string, environment map[string]string, out, errs io.Writer) int {
	flags := flag.NewFlagSet(s.Name, flag.ContinueOnError)
	flags.SetOutput(errs)
	check := flags.Bool("check-config", false, "check the settings and exit")
	version := flags.Bool("version", false, "print the version and exit")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil || (flags.NArg() > 0 && s.Args == nil):
		_, _ = fmt.Fprintf(errs, "%s: it takes no arguments but its flags; see %s -help\n", s.Name, s.Name)
		return ExitUsage
	case *version:
		_, _ = fmt.Fprintln(out, s.Name, observe.Version()+s.About)
		return 0
	}
	if s.Args != nil {
		*s.Args = flags.Args()
	}
	settings, err := s.Load(environment)
	if err != nil {
		_, _ = fmt.Fprintf(errs, "%s: %v\n", s.Name, err)
		return ExitUsage
	}
	if *check {
		_, _ = fmt.Fprintf(out, "%s: the settings are valid\n", s.Name)
		return 0
	}
	err = s.Run(ctx, settings, errs)
	var exit Exit
	if errors.As(err, &exit) {
		return int(exit)
	}
	if err != nil {
		_, _ = fmt.Fprintf(errs, "%s: %v\n", s.Name, err)
		return ExitFailed
	}
	return 0
}
