// Command simulate shows how deployments fare under load: a discrete-event
// simulation of deployers, sweeps and the provider's budget, from assumptions
// that docs/scaling.md states. It needs nothing installed and talks to nobody.
//
// Without flags it runs the scenarios of that document. With flags it runs one
// system and draws its queue.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/teamsync/edge-workers/test/simulate/model"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	p := model.Defaults()
	docs := flags.String("write", "", "`folder` with scaling.md, whose tables and picture are written anew")
	flags.Uint64Var(&p.Seed, "seed", p.Seed, "seed of all random numbers")
	flags.IntVar(&p.Departments, "departments", p.Departments, "departments, of which each has one deployment on its way at most")
	flags.Float64Var(&p.Rate, "rate", p.Rate, "deployments an hour, in the mean of a day")
	flags.Float64Var(&p.Swing, "swing", p.Swing, "how far the busiest hour is above the mean, 0 to 1")
	flags.Float64Var(&p.Hours, "hours", p.Hours, "hours of arrivals; the busiest one is in their middle")
	flags.IntVar(&p.Burst, "burst", p.Burst, "deployments that come on top in one minute of the busiest hour")
	flags.IntVar(&p.Deployers, "deployers", p.Deployers, "deployer replicas")
	flags.IntVar(&p.Reconcilers, "reconcilers", p.Reconcilers, "reconciler replicas")
	flags.IntVar(&p.Tokens, "tokens", p.Tokens, "API tokens of the provider, each with a budget of its own; 0: no limit, as on an edge host")
	flags.Float64Var(&p.Pace, "pace", p.Pace, "part of its budget up to which a token's deployers wait for each other; 0: they do not, as today")
	flags.Float64Var(&p.Grace, "grace", p.Grace, "seconds after which a sweep takes a waiting row's message for lost; the product's 300 are no setting")
	flags.Float64Var(&p.Loss, "loss", p.Loss, "probability that a message is lost")
	flags.Float64Var(&p.Crash, "crash", p.Crash, "probability that a deployer dies in a run")
	flags.Float64Var(&p.Put.Least, "put-least", p.Put.Least, "shortest upload, in seconds")
	flags.Float64Var(&p.Put.Most, "put-most", p.Put.Most, "longest upload, in seconds")
	flags.Float64Var(&p.Ready.Mean, "ready", p.Ready.Mean, "mean time from an upload to the first answer of the release, in seconds")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) { // it was printed
		return nil
	}
	if err != nil {
		return err
	}
	single := false
	flags.Visit(func(f *flag.Flag) { single = single || f.Name != "write" })
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case single && *docs != "":
		return fmt.Errorf("-write takes the document's own scenarios and no other flag")
	case single:
		return one(p, out)
	case *docs != "":
		return write(*docs)
	}
	return all(out)
}

// all prints the scenarios of the document.
func all(out io.Writer) error {
	parts, err := generate()
	if err != nil {
		return err
	}
	for _, part := range parts.tables {
		_, err = fmt.Fprintf(out, "%s\n\n%s\n", part.title, part.text)
		if err != nil {
			return err
		}
	}
	return nil
}

// one runs one system and prints all that is known of it.
func one(p model.Params, out io.Writer) error {
	r, err := model.Run(p)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, summary(r))
	return err
}
