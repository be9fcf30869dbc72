package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/teamsync/edge-workers/test/simulate/model"
)

// table is a Markdown table in the making. Its first row is the heading.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// String aligns the columns, so that the table reads well in a terminal too.
func (t *table) String() string {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var out strings.Builder
	line := func(cells []string, left, pad string) {
		for i, cell := range cells {
			fmt.Fprintf(&out, "| %s%s%s ", left, strings.Repeat(pad, widths[i]-len([]rune(cell))-len(left)), cell)
		}
		out.WriteString("|\n")
	}
	line(t.rows[0], "", " ")
	rule := make([]string, len(widths))
	for i, w := range widths {
		rule[i] = strings.Repeat("-", w-1) + ":"
	}
	line(rule, "", "-")
	for _, row := range t.rows[1:] {
		line(row, "", " ")
	}
	return out.String()
}

// seconds says how long in the unit that a reader would choose.
func seconds(s float64) string {
	switch {
	case s < 0.05:
		return "0 s"
	case s < 10:
		return fmt.Sprintf("%.1f s", s)
	case s < 600:
		return fmt.Sprintf("%.0f s", s)
	case s < 6*3600:
		return fmt.Sprintf("%.0f min", s/60)
	}
	return fmt.Sprintf("%.0f h", s/3600)
}

func share(part, whole float64) string { return fmt.Sprintf("%.0f %%", 100*part/whole) }

// count groups the digits by three.
func count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func waits(r *model.Result) []string {
	return []string{
		seconds(model.Percentile(r.Queue, 0.5)), seconds(model.Percentile(r.Queue, 0.95)),
		seconds(model.Percentile(r.Queue, 0.99)), seconds(model.Percentile(r.Queue, 1)),
	}
}

func deployerTable(all []*model.Result) string {
	var t table
	t.add("deployers", "grace", "busy", "of it on stamps", "wait p50", "p95", "p99", "longest", "whole p50", "whole p99", "most waiting", "messages each", "req/s, busiest", "SQL/s", "SQL/s, busiest")
	for _, r := range all {
		w := waits(r)
		t.add(strconv.Itoa(r.Params.Deployers), seconds(r.Params.Grace), share(r.Utilisation(), 1), share(r.StampSeconds, r.BusySeconds), w[0], w[1], w[2], w[3],
			seconds(model.Percentile(r.Total, 0.5)), seconds(model.Percentile(r.Total, 0.99)), count(slices.Max(r.Waiting)),
			fmt.Sprintf("%.2f", float64(r.Messages)/float64(r.Arrived-r.Refused)), fmt.Sprintf("%.0f", model.Busiest(r.RequestsByMinute)),
			fmt.Sprintf("%.0f", float64(r.Statements)/r.Lasted), fmt.Sprintf("%.0f", model.Busiest(r.DatabaseByMinute)))
	}
	return t.String()
}

// budgetOf is what the tokens may send in a second, in the long run.
func budgetOf(tokens int) float64 { return float64(tokens) * model.TokenRequests / model.TokenWindow }

func tokenTable(all []*model.Result) string {
	var t table
	t.add("tokens", "deployers", "shared pace", "budget req/s", "asked req/s", "busiest", "answers 429", "completed", "failed", "uncertain", "409s", "wait p50", "p95", "longest")
	for _, r := range all {
		pace := "none"
		if r.Params.Pace > 0 {
			pace = share(r.Params.Pace, 1)
		}
		w := waits(r)
		t.add(strconv.Itoa(r.Params.Tokens), strconv.Itoa(r.Params.Deployers), pace, fmt.Sprintf("%.0f", budgetOf(r.Params.Tokens)), fmt.Sprintf("%.1f", float64(r.Requests)/r.Lasted),
			fmt.Sprintf("%.0f", model.Busiest(r.RequestsByMinute)), count(r.Limited),
			count(r.Completed), count(r.Failed), count(r.Uncertain), count(r.Refused), w[0], w[1], w[3])
	}
	return t.String()
}

func faultTable(all []*model.Result) string {
	var t table
	t.add("messages lost", "runs that die", "reconcilers", "lost", "died", "published again", "completed", "failed", "uncertain", "wait p99", "wait p99.9", "longest")
	for _, r := range all {
		t.add(fmt.Sprintf("%.2f %%", 100*r.Params.Loss), fmt.Sprintf("%.2f %%", 100*r.Params.Crash), strconv.Itoa(r.Params.Reconcilers),
			count(r.Lost), count(r.Crashes), count(r.Republished), count(r.Completed), count(r.Failed), count(r.Uncertain),
			seconds(model.Percentile(r.Queue, 0.99)), seconds(model.Percentile(r.Queue, 0.999)), seconds(model.Percentile(r.Queue, 1)))
	}
	return t.String()
}

// growth is arithmetic: what so many departments leave in a year when each
// deploys as often as in the scenarios.
func growth() string {
	p := model.Defaults()
	var t table
	t.add("departments", "deployments an hour", "in a year", "outbox rows", "outbox", "Redis", "SQL/s", "commits/s", "provider req/s", "tokens, mean", "tokens, busiest hour", "deployers busy, busiest hour")
	for _, departments := range []int{1_000, 100_000, 1_000_000} {
		hourly := p.Rate * float64(departments) / float64(p.Departments)
		yearly := hourly * 24 * 365
		c := model.OneDeployment()
		requests := hourly / 3600 * model.RequestsPerDeployment
		t.add(count(departments), count(int(hourly)), count(int(yearly)), count(2*int(yearly)),
			two(yearly*(model.DeployRowBytes+model.CleanupRowBytes)/1e9)+" GB", two(hourly*24*7*model.RedisBytes/1e9)+" GB",
			two(hourly/3600*float64(c.Statements)), two(hourly/3600*float64(c.Commits)),
			two(requests), tokens(requests), tokens(requests*(1+p.Swing)), two(hourly/3600*(1+p.Swing)*p.MeanRun()))
	}
	return t.String()
}

// two gives a number with two digits at least.
func two(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2g", x)
}

func tokens(requests float64) string { return fmt.Sprintf("%.0f", math.Ceil(requests/budgetOf(1))) }
