package model

import (
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// queue is an M/M/c queue: nothing but waiting for a deployer and one
// exponential service.
func queue(seed uint64, servers int, perSecond, service, hours float64) Params {
	return Params{
		Seed: seed, Departments: math.MaxInt32 << 20, Rate: perSecond * 3600, Hours: hours, Deployers: servers, Reconcilers: 1,
		Put: Spread{Mean: service}, Grace: recoveryGrace, Redelivery: 10, Restart: 30, Republish: 0.02,
	}
}

func mustRun(t *testing.T, p Params) *Result {
	t.Helper()
	r, err := Run(p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// erlangC is the probability that an arrival finds all servers busy.
func erlangC(servers int, load float64) float64 {
	term, sum := 1.0, 1.0 // load^k / k!
	for k := 1; k < servers; k++ {
		term *= load / float64(k)
		sum += term
	}
	last := term * load / float64(servers) * float64(servers) / (float64(servers) - load)
	return last / (sum + last)
}

// The engine agrees with the theory of the M/M/c queue: the share of arrivals
// that wait, and how long (Erlang C).
func TestErlangC(t *testing.T) {
	t.Parallel()
	if c := erlangC(1, 0.5); math.Abs(c-0.5) > 1e-12 { // M/M/1: the utilisation
		t.Fatalf("Erlang C of one server: %v", c)
	}
	for _, c := range []struct {
		servers        int
		arrive, serve  float64
		share, waiting float64 // tolerances
	}{{1, 7, 0.1, 0.02, 0.06}, {4, 30, 0.1, 0.02, 0.05}, {10, 80, 0.1, 0.02, 0.05}, {32, 60, 0.4, 0.04, 0.08}} {
		r := mustRun(t, queue(7, c.servers, c.arrive, c.serve, 200_000/c.arrive/3600))
		want := erlangC(c.servers, c.arrive*c.serve)
		mean := want / (float64(c.servers)/c.serve - c.arrive)
		waited := 0
		for _, wait := range r.Queue {
			if wait > 0 {
				waited++
			}
		}
		share := float64(waited) / float64(len(r.Queue))
		if len(r.Queue) < 190_000 || r.Completed != r.Arrived {
			t.Fatalf("%d servers: %d of %d completed", c.servers, r.Completed, r.Arrived)
		}
		if math.Abs(share/want-1) > c.share || math.Abs(Mean(r.Queue)/mean-1) > c.waiting {
			t.Errorf("%d servers: %.4f wait, %.5f s; theory says %.4f, %.5f s", c.servers, share, Mean(r.Queue), want, mean)
		}
		if busy := c.arrive * c.serve / float64(c.servers); math.Abs(r.Utilisation()/busy-1) > 0.02 {
			t.Errorf("%d servers are busy %.3f of the time, want %.3f", c.servers, r.Utilisation(), busy)
		}
	}
}

// rough is a system in which everything goes wrong often.
func rough(seed uint64) Params {
	p := Defaults()
	p.Seed, p.Departments, p.Hours, p.Burst = seed, 3_000, 2, 500
	p.Deployers, p.Tokens, p.Loss, p.Crash = 30, 3, 0.05, 0.05
	return p
}

// Every arrival ends exactly once, every message that was not lost is taken
// exactly once, and the number of waiting deployments agrees with their waits
// (Little's law, which holds exactly over a run that ends empty).
func TestConservation(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		r := mustRun(t, rough(seed))
		if r.Arrived != r.Completed+r.Failed+r.Uncertain+r.Refused {
			t.Errorf("seed %d: %d arrived, %d completed, %d failed, %d uncertain, %d refused", seed, r.Arrived, r.Completed, r.Failed, r.Uncertain, r.Refused)
		}
		if r.Messages-r.Lost+r.Redelivered != r.Deliveries {
			t.Errorf("seed %d: %d messages, %d lost, %d given back, %d taken", seed, r.Messages, r.Lost, r.Redelivered, r.Deliveries)
		}
		sum := Mean(r.Queue) * float64(len(r.Queue))
		if len(r.Queue) != r.Arrived-r.Refused || math.Abs(sum/r.WaitSeconds-1) > 1e-9 {
			t.Errorf("seed %d: %d waits of %f s together, the count says %f s", seed, len(r.Queue), sum, r.WaitSeconds)
		}
		// The control: each kind of trouble was there.
		for name, n := range map[string]int{
			"failed": r.Failed, "refused": r.Refused, "lost": r.Lost, "crashed": r.Crashes, "limited": r.Limited, "dead-lettered": r.DeadLettered, "republished": r.Republished,
		} {
			if n == 0 {
				t.Errorf("seed %d: none %s", seed, name)
			}
		}
	}
}

func TestDeterminism(t *testing.T) {
	t.Parallel()
	one, two, other := mustRun(t, rough(1)), mustRun(t, rough(1)), mustRun(t, rough(2))
	if !reflect.DeepEqual(one, two) {
		t.Error("one seed gave two results")
	}
	if reflect.DeepEqual(one.Total, other.Total) {
		t.Error("two seeds gave one result")
	}
}

// No token is ever served more than its budget in five minutes, whatever is
// asked, and a token that asked for too much is refused for the whole block.
func TestBudget(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 3)) // #nosec G404 -- a test
	b := newBudget(TokenRequests, TokenWindow, tokenBlock, 0)
	var served []float64
	refused, blocked := 0, 0
	for at := 0.0; at < 6*3600; at += random.ExpFloat64() / (2 + 8*random.Float64()) {
		until := b.blockedUntil
		ok := b.send(at)
		switch {
		case ok && at < until:
			t.Fatalf("served at %.1f, blocked until %.1f", at, until)
		case ok:
			served = append(served, at)
		case at < until:
			blocked++
		default:
			refused++
		}
	}
	for i := TokenRequests; i < len(served); i++ {
		if served[i]-served[i-TokenRequests] < TokenWindow {
			t.Fatalf("%d requests within %.1f s", TokenRequests+1, served[i]-served[i-TokenRequests])
		}
	}
	if len(served) < 5*TokenRequests || refused < 3 || blocked < 100 {
		t.Errorf("served %d, refused %d, then blocked %d: the budget was not tried", len(served), refused, blocked)
	}
}

// The whole system keeps to it, and a shared pace is never refused.
func TestBudgetOfTheSystem(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Burst, p.Tokens, p.Crash = 3, 1000, 3, 0
	for _, pace := range []float64{0, 0.8} {
		p.Pace = pace
		r := mustRun(t, p)
		most := 0
		for i := range r.TakenByMinute {
			sum := 0
			for _, n := range r.TakenByMinute[i:min(i+int(TokenWindow/minute), len(r.TakenByMinute))] {
				sum += n
			}
			most = max(most, sum)
		}
		if most > p.Tokens*TokenRequests || most < p.Tokens*TokenRequests/2 {
			t.Errorf("pace %.1f: %d requests in five minutes with %d tokens", pace, most, p.Tokens)
		}
		if (pace == 0) != (r.Limited > 0) || (pace == 0) != (r.Failed+r.Uncertain > 0) {
			t.Errorf("pace %.1f: %d answers 429, %d failed, %d uncertain", pace, r.Limited, r.Failed, r.Uncertain)
		}
	}
}

// More deployers never make any deployment wait longer, where nothing is lost.
func TestMonotony(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Burst, p.Loss, p.Crash, p.Departments = 2, 200, 0, 0, math.MaxInt32<<20
	var before *Result
	var means []float64
	for _, n := range []int{24, 28, 32, 40, 64, 128} {
		p.Deployers = n
		r := mustRun(t, p)
		if r.Republished != 0 {
			t.Fatalf("%d deployers: the sweep took part", n)
		}
		if before != nil {
			for i, wait := range r.Queue { // both sorted: the longest against the longest, and so on
				if wait > before.Queue[i]+1e-9 {
					t.Fatalf("%d deployers: wait %d is %f s, with fewer it was %f s", n, i, wait, before.Queue[i])
				}
			}
		}
		before = r
		means = append(means, Mean(r.Queue))
	}
	if means[0] < 1 || means[len(means)-1] > means[0]/100 {
		t.Errorf("mean waits: %v", means)
	}
}

// S2-236: a lost message is found by the sweep, after 300 s and within the
// grace, a round and the cool-down; nothing else takes that long.
func TestLostMessages(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Burst, p.Swing, p.Rate, p.Crash, p.Loss = 4, 0, 0, 3_000, 0, 0.01
	r := mustRun(t, p)
	late := 0
	for _, wait := range r.Queue {
		switch {
		case wait > recoveryGrace:
			late++
		case wait > 1:
			t.Fatalf("a wait of %.1f s", wait)
		}
	}
	if late < 50 || r.Republished != r.Lost || r.Completed != r.Arrived-r.Refused {
		t.Errorf("%d waited for the sweep, %d messages lost, %d of %d completed", late, r.Lost, r.Completed, r.Arrived)
	}
	bound := recoveryGrace + sweepEvery + cooldown + 5 // some seconds for the rows of a round
	if p99 := Percentile(r.Queue[len(r.Queue)-late:], 0.9); p99 > bound {
		t.Errorf("nine of ten lost messages were found within %.0f s, want %.0f s", p99, bound)
	}
}

// S2-237: what a dead deployer left is taken over when its lease has ended;
// after the upload by reading only, so it ends completed or uncertain.
func TestCrashes(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Burst, p.Swing, p.Rate, p.Loss, p.Crash = 4, 0, 0, 3_000, 0, 0.02
	r := mustRun(t, p)
	late := 0
	for _, total := range r.Total {
		if total > leaseTTL {
			late++
		}
	}
	if r.Crashes < 100 || late < r.Crashes*8/10 || r.Completed+r.Uncertain+r.Failed != r.Arrived-r.Refused {
		t.Errorf("%d crashes, %d took longer than a lease, %d completed, %d uncertain, %d failed", r.Crashes, late, r.Completed, r.Uncertain, r.Failed)
	}
	if longest := Percentile(r.Total, 0.999); longest > 3*(leaseTTL+sweepEvery) {
		t.Errorf("0.999 of all completed within %.0f s", longest)
	}
}

// A backlog that outlives the grace is published again and again; what comes
// twice is put away at once, and the stamps hold deployers up: the same system
// with sweeps that leave it alone is done sooner.
func TestBacklog(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Loss, p.Crash, p.Deployers, p.Departments = 4, 0, 0, 24, math.MaxInt32<<20
	with := mustRun(t, p)
	p.Grace = 24 * 3600
	without := mustRun(t, p)
	if with.Republished < with.Arrived || with.StampSeconds == 0 || without.Republished != 0 || without.StampSeconds != 0 {
		t.Errorf("published again %d and %d times, %.0f and %.0f s on stamps", with.Republished, without.Republished, with.StampSeconds, without.StampSeconds)
	}
	if with.DeadLettered != 0 || with.Completed != with.Arrived || without.Completed != with.Completed {
		t.Errorf("%d of %d completed, %d messages put aside", with.Completed, with.Arrived, with.DeadLettered)
	}
	if Mean(with.Queue) < 1.5*Mean(without.Queue) || with.Lasted < without.Lasted {
		t.Errorf("mean waits %.0f and %.0f s, done after %.0f and %.0f s", Mean(with.Queue), Mean(without.Queue), with.Lasted, without.Lasted)
	}
}

// S2-195: a release that does not answer in time leaves its deployment
// uncertain, as often as the distribution of its time says.
func TestNotReady(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Rate, p.Burst, p.Deployers, p.Tokens, p.Loss, p.Crash, p.Ready = 10, 200, 0, 400, 0, 0, 0, Spread{Mean: 300}
	r := mustRun(t, p)
	got, want := float64(r.Uncertain)/float64(r.Uncertain+r.Completed), math.Exp(-readyDeadline/300)
	if math.Abs(got-want) > 0.03 || r.Arrived != r.Completed+r.Uncertain+r.Refused {
		t.Errorf("%.3f of %d uncertain, not %.3f", got, r.Arrived, want)
	}
}

// S2-204, S2-205: where no process dies, a deployment fails at its second
// refusal and never takes a third lease. A refused read leaves none uncertain.
func TestRefusedTwice(t *testing.T) {
	t.Parallel()
	p := Defaults()
	p.Hours, p.Tokens, p.Loss, p.Crash = 3, 2, 0, 0
	r := mustRun(t, p)
	if r.Failed == 0 || r.Limited == 0 || r.Uncertain != 0 || r.Exhausted != 0 {
		t.Errorf("%d failed, %d uncertain, %d took a third lease, %d requests refused", r.Failed, r.Uncertain, r.Exhausted, r.Limited)
	}
	p.Tokens, p.Crash = 0, 0.4 // the control: deaths use leases up
	if r := mustRun(t, p); r.Exhausted == 0 || r.Exhausted != r.Failed {
		t.Errorf("%d failed, %d of them for their attempts", r.Failed, r.Exhausted)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	random := rand.New(rand.NewPCG(5, 5)) // #nosec G404 -- a test
	var ran []float64
	for range 1000 {
		c.at(math.Floor(100*random.Float64()), func() {
			ran = append(ran, c.now)
			if len(ran) < 3000 {
				c.after(random.Float64(), func() { ran = append(ran, c.now) })
			}
		})
	}
	order := ""
	for _, name := range []string{"a", "b", "c"} {
		c.at(50, func() { order += name })
	}
	c.run()
	if len(ran) != 2000 || !slices.IsSorted(ran) || order != "abc" {
		t.Errorf("%d events, sorted: %t, of one time: %s", len(ran), slices.IsSorted(ran), order)
	}
}

// The constants that the product keeps to itself are still those.
func TestConstants(t *testing.T) {
	t.Parallel()
	for file, lines := range map[string][]string{
		"pkg/reconcile/runner.go":         {"roundEvery = 60 * time.Second", "laneBudget = 20 * time.Second"},
		"pkg/deploy/task.go":              {"const maxAttempts = 2\n"},
		"pkg/deploy/readback.go":          {"readBackPatience = 600 * time.Second"},
		"pkg/deploy/readiness.go":         {"readinessDeadline = 600 * time.Second", "{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}"},
		"pkg/provider/cloudflare/gate.go": {"defaultBlock = 5 * time.Minute"},
	} {
		text, err := os.ReadFile("../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s has no %q: compare it with the simulation", file, line)
			}
		}
	}
}

func TestWrongParams(t *testing.T) {
	t.Parallel()
	_, err := Run(Defaults()) // the control; it takes a second
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Params){
		"departments": func(p *Params) { p.Departments = 0 }, "rate": func(p *Params) { p.Rate = math.NaN() },
		"swing": func(p *Params) { p.Swing = 1.1 }, "burst": func(p *Params) { p.Burst = -1 }, "hours": func(p *Params) { p.Hours = 0 },
		"deployers": func(p *Params) { p.Deployers = 0 }, "reconcilers": func(p *Params) { p.Reconcilers = 0 }, "tokens": func(p *Params) { p.Tokens = 49 },
		"pace": func(p *Params) { p.Pace = 0.001 }, "grace": func(p *Params) { p.Grace = 0 }, "loss": func(p *Params) { p.Loss = 0.6 }, "crash": func(p *Params) { p.Crash = -1 },
		"more than 5,000,000": func(p *Params) { p.Rate, p.Hours = 1e6, 24 },
	} {
		p := Defaults()
		change(&p)
		_, err := Run(p)
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
