// Package model is a discrete-event simulation of the control plane's
// deployments: the outbox rows and their messages, deployers that take one
// message at a time, the recovery sweeps, and a provider with a budget for each
// API token. It follows pkg/deploy, pkg/outbox and pkg/reconcile step by step
// where time or the database is spent, and leaves out what takes neither.
package model

import "math/rand/v2"

// ending is how a deployment ended.
type ending uint8

const (
	open ending = iota
	completed
	failed    // refused for the rate limit twice, or out of attempts
	uncertain // the provider could not be read, or shows no upload: a person must repair it
	refused   // 409: the department has another one on its way
)

// deployment is an outbox row, and what the provider holds of it.
type deployment struct {
	department int

	accepted, leased, ended float64
	end                     ending

	// The row. due is next_attempt_at and touched updated_at; 0 is NULL.
	pending    bool
	fenced     bool
	attempts   int
	due        float64
	touched    float64
	leaseUntil float64

	// The provider. visible is when a probe sees the release.
	applied bool
	visible float64

	// What each step takes, drawn with the arrival so that the same arrivals
	// are equally long under any number of replicas.
	before, put, readA, readB, ready, probe, after float64
	lost                                           bool
}

// deployer is one process: it holds one message at a time.
type deployer struct {
	token  *budget
	openAt float64 // its own gate: until when it knows its token to be blocked
	since  float64 // when it took its message
}

// system is a running simulation.
type system struct {
	clock
	p      Params
	faults *rand.Rand

	busy    map[int]bool // departments with a deployment on its way
	queue   fifo[message]
	idle    fifo[*deployer]
	fresh   fifo[mark] // pending rows without a mark, oldest first
	stamped fifo[mark] // pending rows with a mark, in its order
	orphans []*deployment
	open    int // deployments that have not ended
	arrived bool

	waiting int // accepted and never leased
	changed float64
	result  *Result
}

// message points at a row. tries are the deliveries that were given back.
type message struct {
	d     *deployment
	tries int
}

// mark is a row as a list of the sweeps knew it; the row may have moved on.
type mark struct {
	d  *deployment
	at float64
}

// Run simulates p to the end of its last deployment.
func Run(p Params) (*Result, error) {
	err := p.check()
	if err != nil {
		return nil, err
	}
	s := &system{p: p, faults: rand.New(rand.NewPCG(p.Seed, 2)), busy: map[int]bool{}, result: newResult(p)} // #nosec G404 -- a simulation
	var tokens []*budget
	for range p.Tokens {
		tokens = append(tokens, newBudget(TokenRequests, TokenWindow, tokenBlock, p.Pace))
	}
	for i := range p.Deployers {
		d := &deployer{}
		if p.Tokens > 0 {
			d.token = tokens[i%p.Tokens]
		}
		s.idle.push(d)
	}
	for i := range p.Reconcilers {
		s.at(sweepEvery*(float64(i)+s.faults.Float64())/float64(p.Reconcilers), s.round)
	}
	s.arrive()
	s.run()
	s.result.finish(s.now)
	return s.result, nil
}

// arrive draws all arrivals. Only the next one is an event at a time, so that
// the events stay few.
func (s *system) arrive() {
	random := rand.New(rand.NewPCG(s.p.Seed, 1)) // #nosec G404 -- a simulation
	var all fifo[*deployment]
	s.p.arrivals(random, func(at float64) {
		all.push(&deployment{
			department: random.IntN(s.p.Departments), accepted: at, pending: true, touched: at,
			before: s.p.Before.draw(random), put: s.p.Put.draw(random), readA: s.p.Read.draw(random), readB: s.p.Read.draw(random),
			ready: s.p.Ready.draw(random), probe: s.p.Probe.draw(random), after: s.p.After.draw(random), lost: random.Float64() < s.p.Loss,
		})
	})
	var next func()
	next = func() {
		d, _ := all.pop()
		s.admit(d)
		s.arrived = all.len() == 0
		if !s.arrived {
			s.at(all.first().accepted, next)
		}
	}
	s.arrived = all.len() == 0
	if !s.arrived {
		s.at(all.first().accepted, next)
	}
}

// admit commits the row and publishes its message, unless the department has a
// deployment on its way (S2-035).
func (s *system) admit(d *deployment) {
	s.result.Arrived++
	if s.busy[d.department] {
		d.end = refused
		s.result.Refused++
		return
	}
	s.busy[d.department] = true
	s.open++
	s.wait(1)
	s.result.statements(s.now, costAdmission)
	s.fresh.push(mark{d, d.touched})
	s.publish(d, d.lost)
}

func (s *system) publish(d *deployment, lost bool) {
	s.result.Messages++
	if lost {
		s.result.Lost++
		return
	}
	s.enqueue(message{d: d})
}

func (s *system) enqueue(m message) {
	s.queue.push(m)
	s.deliver()
}

// deliver gives waiting messages to idle deployers.
func (s *system) deliver() {
	for s.queue.len() > 0 && s.idle.len() > 0 {
		m, _ := s.queue.pop()
		who, _ := s.idle.pop()
		who.since = s.now
		s.take(who, m)
	}
}

// release ends a deployer's delivery; it takes its next message.
func (s *system) release(who *deployer) {
	s.result.busy(who.since, s.now)
	s.rest(who)
}

func (s *system) rest(who *deployer) {
	s.idle.push(who)
	s.deliver()
}

// redeliver gives a message back. The transport delivers it again later, or puts
// it aside when that was the last try: then the sweep finds the row.
func (s *system) redeliver(m message) {
	m.tries++
	if m.tries >= maxDeliveries {
		s.result.DeadLettered++
		return
	}
	s.result.Redelivered++
	s.after(s.p.Redelivery, func() { s.enqueue(m) })
}

// finish ends a deployment once and for all.
func (s *system) finish(d *deployment, how ending) {
	if d.end != open {
		panic("a deployment ended twice")
	}
	d.end, d.ended = how, s.now
	s.open--
	if how != uncertain { // its Worker takes no other deployment until a person has repaired it
		delete(s.busy, d.department)
	}
	s.result.end(d)
}

// wait counts the deployments that wait for their first lease.
func (s *system) wait(change int) {
	s.result.WaitSeconds += float64(s.waiting) * (s.now - s.changed)
	s.changed = s.now
	s.waiting += change
	s.result.queued(s.now, s.waiting)
}
