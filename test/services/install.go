package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/teamsync/edge-workers/test/services/daemon"
)

// recipe tells how a server gets onto a machine. apt lists sets of package
// names in order of preference: the core packages of Debian and Ubuntu bring
// the programs without a service that would run beside the tests, but not
// every release has them.
type recipe struct {
	title string
	apt   [][]string
	brew  string
}

// installer runs package managers; tests replace the machine that it sees.
type installer struct {
	root    bool
	has     func(program string) bool // a package manager or sudo, in PATH
	finds   func(program string) bool // a server's program, wherever it may be
	execute func(ctx context.Context, arguments ...string) error
}

func systemInstaller() installer {
	return installer{
		root: os.Geteuid() == 0,
		has: func(program string) bool {
			_, err := exec.LookPath(program)
			return err == nil
		},
		finds: func(program string) bool {
			_, err := daemon.Find(program)
			return err == nil
		},
		execute: func(ctx context.Context, arguments ...string) error {
			fmt.Fprintln(os.Stderr, "test services:", strings.Join(arguments, " "))
			command := exec.CommandContext(ctx, arguments[0], arguments[1:]...) // #nosec G204 -- fixed package manager calls
			// sudo may ask for a password; progress belongs to the error stream.
			command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stderr, os.Stderr
			return command.Run()
		},
	}
}

// ensure installs the wanted servers that are missing. Its error names the
// command to run where it could not do it by itself.
func ensure(ctx context.Context, wanted []server, system installer) error {
	wanted = slices.DeleteFunc(slices.Clone(wanted), system.complete)
	if len(wanted) == 0 {
		return nil
	}
	var apt bool
	switch {
	case system.has("apt-get"):
		apt = true
		err := system.apt(ctx, "update", "-q")
		if err != nil {
			return wanted[0].refusal("could not be installed", apt, err)
		}
	case !system.has("brew"):
		return wanted[0].refusal("is not installed, and there is neither apt-get nor brew", false, nil)
	}
	for _, one := range wanted {
		err := system.install(ctx, one.recipe, apt)
		if err != nil {
			return one.refusal("could not be installed", apt, err)
		}
		if !system.complete(one) {
			return one.refusal("was installed, but not all of its programs can be found", apt, nil)
		}
	}
	return nil
}

// complete tells whether all programs of a server are on the machine.
func (i installer) complete(wanted server) bool {
	return !slices.ContainsFunc(wanted.programs, func(program string) bool { return !i.finds(program) })
}

func (i installer) install(ctx context.Context, wanted recipe, apt bool) error {
	if !apt {
		return i.execute(ctx, "brew", "install", wanted.brew)
	}
	var err error
	for _, packages := range wanted.apt {
		err = i.apt(ctx, append([]string{"install", "-y", "-q", "--no-install-recommends"}, packages...)...)
		if err == nil {
			return nil
		}
	}
	return err
}

// apt runs apt-get as root, without questions; another apt-get that holds the
// lock is waited for.
func (i installer) apt(ctx context.Context, arguments ...string) error {
	// env, because sudo drops the variables of its caller.
	command := []string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"}
	if !i.root {
		if !i.has("sudo") {
			return errors.New("apt-get needs root, and there is no sudo")
		}
		command = append([]string{"sudo"}, command...)
	}
	command = append(command, arguments...)
	err := i.execute(ctx, command...)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// refusal is the error that tells a person what to do.
func (s server) refusal(what string, apt bool, cause error) error {
	advice := "install it (needed programs: " + strings.Join(s.programs, ", ") + ")"
	if apt {
		advice = "run: sudo apt-get install " + strings.Join(s.recipe.apt[len(s.recipe.apt)-1], " ")
	}
	text := fmt.Sprintf("%s %s; %s, or set %s to the address of a server to test against", s.recipe.title, what, advice, s.variable)
	if cause == nil {
		return errors.New(text)
	}
	return fmt.Errorf("%s: %w", text, cause)
}
