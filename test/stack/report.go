package main

import (
	"fmt"
	"io"
	"time"

	"github.com/teamsync/edge-workers/pkg/devkit"
	"github.com/teamsync/edge-workers/test/fleet"
)

// say prints. That nobody can read it is no reason to stop.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

// stepper tells what is done and how long it took.
func stepper(out io.Writer) func(name string, do func()) {
	return func(name string, do func()) {
		began, how := time.Now(), "failed after"
		say(out, "  %-26s", name)
		defer func() { say(out, "%s %.1f s\n", how, time.Since(began).Seconds()) }() // also when do ends the goroutine
		do()
		how = ""
	}
}

// describe says where everything is, as edgectl dev does (D2).
func describe(f *fleet.Fleet) (devkit.Ready, error) {
	return devkit.Describe(f.URL(), f.Programs()[0].URL("metrics"), f.KeyFile())
}

// announce tells people what is running, how to sign in and what to try.
func announce(out io.Writer, f *fleet.Fleet, r devkit.Ready, folder string) {
	say(out, "\nEdge Workers is up.\n\n  API and gateway   %[1]s\n  API reference     %[1]s/docs\n  Company           %[2]s\n  Department        %[3]s\n\n",
		r.APIURL, r.CompanyID, r.DepartmentID)
	say(out, "  program        process  metrics\n")
	for _, p := range f.Programs() {
		say(out, "  %-14s %7d  %s/metrics\n", p.Name, p.PID(), p.URL("metrics"))
	}
	say(out, `
  Manager token
    %[1]s
  Company admin token
    %[2]s
  Platform admin token
    %[3]s

Try it in another terminal, in this folder:

  bin/edgectl deploy examples/orders --wait --dev-data %[4]s
  bin/edgectl invoke orders.create --dev-data %[4]s --input '{"customer": "Ada", "lines": [{"sku": "DS-001", "quantity": 3}]}'

Stop with Ctrl-C; then all of it is removed.
`, r.ManagerToken, r.CompanyAdminToken, r.PlatformAdminToken, folder)
}
