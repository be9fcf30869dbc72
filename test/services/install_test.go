package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// machine is a computer with some package managers, on which installing works
// or not.
type machine struct {
	root     bool
	managers []string
	refuses  string // a word of the calls that fail
	missing  bool   // programs are still missing after an installation
	calls    []string
}

func (m *machine) installer() installer {
	installed := false
	return installer{
		root:  m.root,
		has:   func(program string) bool { return slices.Contains(m.managers, program) },
		finds: func(string) bool { return installed && !m.missing },
		execute: func(_ context.Context, arguments ...string) error {
			call := strings.Join(arguments, " ")
			m.calls = append(m.calls, call)
			if m.refuses != "" && strings.Contains(call, m.refuses) {
				return errors.New("refused")
			}
			installed = installed || strings.Contains(call, "install")
			return nil
		},
	}
}

const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "

func TestEnsureInstallsWhatIsMissing(t *testing.T) {
	t.Parallel()
	install := "install -y -q --no-install-recommends "
	cases := []struct {
		name    string
		machine machine
		calls   []string
	}{
		{"root on Debian", machine{root: true, managers: []string{"apt-get"}}, []string{
			apt + "update -q", apt + install + "mariadb-server-core mariadb-client-core", apt + install + "redis-server",
		}},
		{"user with sudo on Debian", machine{managers: []string{"apt-get", "sudo"}}, []string{
			"sudo " + apt + "update -q", "sudo " + apt + install + "mariadb-server-core mariadb-client-core", "sudo " + apt + install + "redis-server",
		}},
		{"a release without the core packages", machine{root: true, managers: []string{"apt-get"}, refuses: "mariadb-server-core"}, []string{
			apt + "update -q", apt + install + "mariadb-server-core mariadb-client-core", apt + install + "mariadb-server", apt + install + "redis-server",
		}},
		{"macOS", machine{managers: []string{"brew"}}, []string{"brew install mariadb", "brew install redis"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := ensure(t.Context(), servers, c.machine.installer())
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(c.machine.calls, c.calls) {
				t.Errorf("calls:\n%s\nwant:\n%s", strings.Join(c.machine.calls, "\n"), strings.Join(c.calls, "\n"))
			}
		})
	}
}

func TestEnsureRefusesWithAdvice(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		machine machine
		says    []string
	}{
		{"no package manager", machine{}, []string{"MariaDB is not installed", "mariadbd, mariadb-install-db"}},
		{"no sudo", machine{managers: []string{"apt-get"}}, []string{"no sudo", "sudo apt-get install mariadb-server"}},
		{"update refused", machine{root: true, managers: []string{"apt-get"}, refuses: "update"}, []string{"apt-get", "refused"}},
		{"install refused", machine{root: true, managers: []string{"apt-get"}, refuses: "install -y"}, []string{"sudo apt-get install mariadb-server"}},
		{"brew refused", machine{managers: []string{"brew"}, refuses: "brew"}, []string{"refused"}},
		{"installed but not to be found", machine{root: true, managers: []string{"apt-get"}, missing: true}, []string{"not all of its programs"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := ensure(t.Context(), servers, c.machine.installer())
			if err == nil {
				t.Fatal("no error")
			}
			for _, text := range append(c.says, "set "+mysqlVariable) {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
		})
	}
}

func TestEnsureLeavesACompleteMachineAlone(t *testing.T) {
	t.Parallel()
	m := machine{root: true, managers: []string{"apt-get"}}
	system := m.installer()
	err := system.execute(t.Context(), "install") // the positive control: a call is seen
	if err != nil || len(m.calls) != 1 {
		t.Fatalf("calls = %q, %v", m.calls, err)
	}
	err = ensure(t.Context(), servers, system)
	if err != nil || len(m.calls) != 1 {
		t.Errorf("calls = %q, %v", m.calls, err)
	}
}
