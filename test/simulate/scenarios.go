package main

import (
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/teamsync/edge-workers/test/simulate/model"
)

// The replica counts of the document's tables.
var (
	deployerCounts = []int{24, 32, 48, 96}
	longGrace      = 3600.0 // for the fewest deployers once more: no sweep takes what waits
	tokenCases     = []struct {
		tokens, deployers int
		pace              float64
	}{{4, 48, 0}, {6, 48, 0}, {8, 48, 0}, {6, 30, 0}, {4, 48, 0.8}, {6, 48, 0.8}}
	faultCases = []struct {
		loss, crash float64
		reconcilers int
	}{{0, 0, 1}, {0.01, 0.005, 1}, {0.1, 0.005, 1}, {0.1, 0.005, 4}}
)

// results are the runs of the document.
type results struct{ deployers, tokens, faults []*model.Result }

// runAll runs all scenarios, as many at once as there are processors.
func runAll() (results, error) {
	all := results{
		make([]*model.Result, len(deployerCounts)+1), make([]*model.Result, len(tokenCases)), make([]*model.Result, len(faultCases)),
	}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	run := func(into **model.Result, change func(*model.Params)) {
		group.Go(func() error {
			p := model.Defaults()
			change(&p)
			var err error
			*into, err = model.Run(p)
			return err
		})
	}
	for i, n := range deployerCounts {
		run(&all.deployers[i], func(p *model.Params) { p.Deployers = n })
	}
	run(&all.deployers[len(deployerCounts)], func(p *model.Params) { p.Deployers, p.Grace = deployerCounts[0], longGrace })
	for i, c := range tokenCases {
		run(&all.tokens[i], func(p *model.Params) { p.Tokens, p.Deployers, p.Pace = c.tokens, c.deployers, c.pace })
	}
	for i, c := range faultCases {
		run(&all.faults[i], func(p *model.Params) { p.Loss, p.Crash, p.Reconcilers = c.loss, c.crash, c.reconcilers })
	}
	err := group.Wait()
	return all, err
}
