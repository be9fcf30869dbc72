package model

import (
	"math"
	"slices"
)

// cost is what the database is asked for.
type cost struct{ statements, commits int }

func (c cost) times(n int) cost { return cost{c.statements * n, c.commits * n} }
func (c cost) plus(o cost) cost { return cost{c.statements + o.statements, c.commits + o.commits} }

// The database's share of each step, as MariaDB counts them; TestCosts measures
// them again.
var (
	costSubmission = cost{17, 2}
	costAdmission  = cost{17, 1}
	costDeployment = cost{25, 4} // from the delivery to the settlement
	costEnded      = cost{1, 0}  // a delivery that finds its row ended
	costHeld       = cost{5, 1}  // one that finds it held, or stamped just now
	costClaim      = cost{6, 1}
	costStamp      = cost{1, 0}
	costRepublish  = cost{3, 1}
	costHeartbeat  = cost{4, 1}
	costPoll       = cost{1, 0}
)

// DeployRowBytes and CleanupRowBytes are an outbox row's room with its entries
// in all indexes; TestCosts measures them again.
const (
	DeployRowBytes  = 1800
	CleanupRowBytes = 1750
)

// RedisBytes is what the mirrored status and the done mark of one deployment
// take for the seven days that they stay (ticket.mirrorTTL, claim.DoneTTL);
// TestCosts measures them again.
const RedisBytes = 550

const minute = 60.0

// Result is what a run came to. Delays are seconds.
type Result struct {
	Params Params

	Arrived, Refused             int
	Completed, Failed, Uncertain int
	// Exhausted are the failed ones whose attempts were used up by deaths.
	Exhausted int
	// Messages are publications, Redelivered what was given back to the
	// transport and came again, DeadLettered what did not, and Deliveries what
	// deployers took.
	Messages, Lost, Republished, Redelivered, DeadLettered, Deliveries, Crashes int
	// Queue is from a deployment's acceptance to its first lease, Total to its
	// completion. Both are sorted.
	Queue, Total []float64
	// BusySeconds are the deployers' during the arrivals; StampSeconds those in
	// which a deployer only waited for a row that a sweep had just stamped.
	BusySeconds, StampSeconds float64
	// WaitSeconds is the integral of the number of waiting deployments.
	WaitSeconds float64
	// Lasted is when the last deployment ended.
	Lasted float64
	// Requests went to the provider; Limited were answered 429.
	Requests, Limited   int
	Statements, Commits int

	// By the minute: the most deployments that waited; requests, and those that
	// the provider took; statements.
	Waiting          []int
	RequestsByMinute []int
	TakenByMinute    []int
	DatabaseByMinute []int
}

func newResult(p Params) *Result { return &Result{Params: p} }

// place grows a series to the minute of now and gives its place.
func place(series *[]int, now float64) *int {
	i := int(now / minute)
	for len(*series) <= i {
		*series = append(*series, 0)
	}
	return &(*series)[i]
}

func (r *Result) statements(now float64, c cost) {
	r.Statements += c.statements
	r.Commits += c.commits
	*place(&r.DatabaseByMinute, now) += c.statements
}

func (r *Result) beats(now float64, n int) { r.statements(now, costHeartbeat.times(n)) }

func (r *Result) request(now float64, ok bool) {
	r.Requests++
	*place(&r.RequestsByMinute, now)++
	if ok {
		*place(&r.TakenByMinute, now)++
	} else {
		r.Limited++
	}
}

func (r *Result) queued(now float64, waiting int) {
	held := place(&r.Waiting, now)
	*held = max(*held, waiting)
}

// busy counts a deployer's time within the hours of arrivals.
func (r *Result) busy(from, to float64) {
	end := r.Params.Hours * 3600
	r.BusySeconds += max(0, min(to, end)-min(from, end))
}

func (r *Result) end(d *deployment) {
	if d.leased > 0 {
		r.Queue = append(r.Queue, d.leased-d.accepted)
	}
	switch d.end {
	case completed:
		r.Completed++
		r.Total = append(r.Total, d.ended-d.accepted)
	case failed:
		r.Failed++
	case uncertain:
		r.Uncertain++
	case open, refused:
	}
}

func (r *Result) finish(now float64) {
	r.Lasted = now
	slices.Sort(r.Queue)
	slices.Sort(r.Total)
}

// Utilisation is the deployers' busy share of the hours of arrivals.
func (r *Result) Utilisation() float64 {
	return r.BusySeconds / (float64(r.Params.Deployers) * r.Params.Hours * 3600)
}

// Percentile gives the value below which the share of sorted values lies, 0
// when there are none.
func Percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// Mean is the arithmetic mean, 0 of nothing.
func Mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Busiest is a series' busiest minute, for each second of it.
func Busiest(series []int) float64 {
	if len(series) == 0 {
		return 0
	}
	return float64(slices.Max(series)) / minute
}

// Load is what the database bears.
type Load struct{ Statements, Commits int }

// OneDeployment is one deployment from the upload of its project to the ticket's
// end, five polls included.
func OneDeployment() Load {
	c := costSubmission.plus(costAdmission).plus(costDeployment).plus(costPoll.times(5))
	return Load{c.statements, c.commits}
}
