package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/teamsync/edge-workers/pkg/outbox"
)

// Spread is a distribution of durations in seconds.
type Spread struct {
	Least, Most float64 // between them, all alike
	Mean        float64 // exponential, added to the above
}

func (s Spread) draw(r *rand.Rand) float64 {
	d := s.Least + (s.Most-s.Least)*r.Float64()
	if s.Mean > 0 {
		d += s.Mean * r.ExpFloat64()
	}
	return d
}

// Average is the distribution's mean in seconds.
func (s Spread) Average() float64 { return (s.Least+s.Most)/2 + s.Mean }

// Params is a system under a load. Times are seconds.
type Params struct {
	Seed uint64

	// The load.
	Departments int
	Rate        float64 // deployments an hour, the mean over a day
	Swing       float64 // how far the busiest and the quietest hour are from the mean, 0 to 1
	Hours       float64 // of arrivals, with the busiest one in their middle; the run goes on until all have ended
	Burst       int     // deployments that come on top within the minute after the middle

	// The replicas.
	Deployers   int
	Reconcilers int
	// Tokens are the provider's API tokens, each with a budget of its own; the
	// deployers are dealt out to them. 0: a provider without a limit, such as
	// an edge host.
	Tokens int
	// Pace lets the deployers of a token share its budget before they take a
	// lease, up to that part of it; 0: each finds out by a refusal, as the
	// product does.
	Pace float64

	// One deployment.
	// Look is what every delivery costs, also one that finds nothing to do.
	Look                                   float64
	Before, Put, Read, Ready, Probe, After Spread

	// What goes wrong.
	Loss  float64 // probability that a publication is lost
	Crash float64 // probability that a run's deployer dies in the middle of it

	// Grace is how long a pending row waits before a sweep takes its message for
	// lost. The product's is 300 s and not a setting; others show what it does.
	Grace float64

	Redelivery float64 // from a refused or abandoned delivery to the next one
	Restart    float64 // from a deployer's death to its next delivery
	Republish  float64 // what a sweep needs for one row
}

// Defaults is a million departments that deploy 10,000 times an hour in the mean
// of a day, in the ten hours around the busiest one, and 2,000 times more in
// one minute.
//
// Where the times come from: Look, Before and After are the control plane's own
// share. It is 7.5 ms where all is on one machine (`go test -bench Deployment
// ./test/bench`), and taken as 5, 50 and 50 ms for a database and a store across
// a network. Put, Read, Ready and
// Probe are assumptions about the cloud provider, which nobody has measured
// here: 0.5 to 2 s for an upload, which is validated before it is answered, 0.1
// to 0.3 s for a read and a probe, and 2 s in the mean until the edge that the
// probe reaches runs the new release.
func Defaults() Params {
	return Params{
		Seed: 1, Departments: 1_000_000, Rate: 10_000, Swing: 0.6, Hours: 10, Burst: 2_000,
		Deployers: 48, Reconcilers: 2,
		Look: 0.005, Before: fixed(50 * time.Millisecond), After: fixed(50 * time.Millisecond),
		Put: Spread{Least: 0.5, Most: 2}, Read: Spread{Least: 0.1, Most: 0.3}, Ready: Spread{Mean: 2}, Probe: Spread{Least: 0.1, Most: 0.3},
		Loss: 0.0005, Crash: 0.0002, Grace: recoveryGrace,
		Redelivery: 10, Restart: 30, Republish: 0.02,
	}
}

func fixed(d time.Duration) Spread { return Spread{Least: d.Seconds(), Most: d.Seconds()} }

// The product's own constants, from its code.
var (
	leaseTTL      = outbox.LeaseTTL.Seconds()
	heartbeat     = outbox.HeartbeatEvery.Seconds()
	recoveryGrace = outbox.RecoveryGrace.Seconds()
	cooldown      = outbox.RecoveryCooldown.Seconds()
)

// Constants that the packages they belong to keep to themselves.
const (
	sweepBatch       = outbox.RecoveryBatch
	sweepEvery       = 60.0  // reconcile.roundEvery
	sweepBudget      = 20.0  // reconcile.laneBudget
	maxAttempts      = 2     // deploy.maxAttempts
	maxDeliveries    = 5     // of the dead-letter policy (S1-270)
	readyDeadline    = 600.0 // deploy.readinessDeadline
	readBackPatience = 600.0 // deploy.readBackPatience
	burstSeconds     = 60.0
	day              = 24 * 3600.0
)

// What Cloudflare documents for one token ("Rate limits", developers.cloudflare.com/fundamentals/api/reference/limits).
const (
	TokenRequests = 1200
	TokenWindow   = 300.0 // seconds
	tokenBlock    = 300.0 // seconds during which a token that sent too much gets nothing but 429
	// RequestsPerDeployment is one PUT and two GETs; test/cloudflow counts them.
	RequestsPerDeployment = 3
)

// probePauses are the readiness gate's (S2-179); the last one repeats.
var probePauses = []float64{1, 2, 4, 5}

// check refuses what cannot be run.
func (p Params) check() error {
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{p.Departments < 1, "departments: at least 1"},
		{!(p.Rate >= 0 && p.Rate <= 1e6), "rate: 0 to 1,000,000 an hour"},
		{!(p.Swing >= 0 && p.Swing <= 1), "swing: 0 to 1"},
		{p.Burst < 0 || p.Burst > 1e6, "burst: 0 to 1,000,000"},
		{!(p.Hours > 0 && p.Hours <= 24*31), "hours: more than 0, at most 744"},
		{p.Deployers < 1 || p.Deployers > 1e5, "deployers: 1 to 100,000"},
		{p.Reconcilers < 1 || p.Reconcilers > 1e3, "reconcilers: 1 to 1,000: without one a lost message is never found again"},
		{p.Tokens < 0 || p.Tokens > p.Deployers, "tokens: 0 for no limit, at most one for each deployer"},
		{!(p.Pace >= 0 && p.Pace <= 1), "pace: 0 to 1"},
		{!(p.Grace > 0), "grace: more than 0 s"},
		{!(p.Loss >= 0 && p.Loss <= 0.5), "loss: 0 to 0.5"},
		{!(p.Crash >= 0 && p.Crash <= 0.5), "crash: 0 to 0.5"},
		{p.Pace > 0 && int(TokenRequests*p.Pace) < RequestsPerDeployment, "pace: leaves less than one deployment in five minutes"},
	} {
		if c.wrong {
			return errors.New(c.text)
		}
	}
	if p.Rate*p.Hours+float64(p.Burst) > 5e6 {
		return fmt.Errorf("%.0f deployments are more than 5,000,000: fewer hours or a lower rate", p.Rate*p.Hours+float64(p.Burst))
	}
	return nil
}

func (p Params) middle() float64 { return p.Hours * 3600 / 2 }

// arrivals gives the times of a Poisson process whose rate swings over a day
// with its peak in the middle, and of the burst, in order.
func (p Params) arrivals(r *rand.Rand, each func(at float64)) {
	end := p.Hours * 3600
	peak := p.Rate / 3600 * (1 + p.Swing)
	burst := p.burstTimes(r)
	emitUntil := func(at float64) {
		for len(burst) > 0 && burst[0] <= at {
			each(burst[0])
			burst = burst[1:]
		}
	}
	for at := 0.0; peak > 0; {
		at += r.ExpFloat64() / peak
		if at >= end {
			break
		}
		// Thinning: of the peak's arrivals as many stay as the hour has.
		now := p.Rate / 3600 * (1 + p.Swing*math.Cos(2*math.Pi*(at-p.middle())/day))
		if r.Float64()*peak >= now {
			continue
		}
		emitUntil(at)
		each(at)
	}
	emitUntil(math.Inf(1))
}

// burstTimes are uniform in their minute, and in order: as many exponential
// gaps and one more, scaled to it.
func (p Params) burstTimes(r *rand.Rand) []float64 {
	times := make([]float64, p.Burst)
	at := 0.0
	for i := range times {
		at += r.ExpFloat64()
		times[i] = at
	}
	whole := at + r.ExpFloat64()
	for i := range times {
		times[i] = p.middle() + times[i]/whole*burstSeconds
	}
	return times
}

// MeanRun is how long a deployer works on one deployment in the mean, in
// seconds, when nothing fails.
func (p Params) MeanRun() float64 {
	const draws = 100_000
	r := rand.New(rand.NewPCG(p.Seed, 3)) // #nosec G404 -- a simulation
	sum := 0.0
	for range draws {
		ready, probe := p.Ready.draw(r), p.Probe.draw(r)
		spent := p.Read.draw(r) + p.Read.draw(r)
		for n := 0; spent < ready && spent < readyDeadline; n++ {
			spent += probe + probePauses[min(n, len(probePauses)-1)]
		}
		sum += spent + probe
	}
	return p.Look + p.Before.Average() + p.Put.Average() + p.After.Average() + sum/draws
}
