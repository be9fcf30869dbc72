package model

// run is one delivery of a message to a deployer, as pkg/deploy has it.
type run struct {
	*system
	who  *deployer
	m    message
	d    *deployment // the message's
	dead bool
	over bool
	// began is when the lease was taken.
	began float64
}

// then does the next step after seconds, unless the process died.
func (r *run) then(seconds float64, do func()) { r.unless(&r.dead, r.now+seconds, do) }

// take starts a delivery. A gate that is closed holds the message and the
// deployer before the lease (deploy.awaitOpen).
func (s *system) take(who *deployer, m message) {
	d := m.d
	r := &run{system: s, who: who, m: m, d: d}
	s.result.Deliveries++
	at := max(s.now, who.openAt)
	if d.end == open && s.p.Pace > 0 && !d.fenced {
		at = max(at, who.token.book(s.now, RequestsPerDeployment))
	}
	s.at(at+s.p.Look, r.lease)
}

// lease is deploy.acquire: what another works on or is ended is given back,
// and a row that a sweep has just stamped is waited for.
func (r *run) lease() {
	switch {
	case r.d.end != open:
		r.result.statements(r.now, costEnded)
		r.leave(nil)
	case !r.d.pending && r.d.leaseUntil > r.now:
		r.result.statements(r.now, costHeld)
		r.leave(r.redeliver)
	case r.d.pending && r.d.due > r.now:
		r.result.statements(r.now, costHeld)
		r.result.StampSeconds += r.d.due - r.now
		r.at(r.d.due, r.lease)
	default:
		r.acquired()
	}
}

// acquired runs the task under the lease. Its heartbeats keep the lease up for
// as long as it lives.
func (r *run) acquired() {
	d := r.d
	if d.leased == 0 {
		d.leased = r.now
		r.wait(-1)
	}
	r.began = r.now
	d.pending, d.due, d.leaseUntil = false, 0, r.now+1e12
	r.mayCrash()
	r.result.statements(r.now, costDeployment)
	if d.fenced {
		r.then(0, func() { r.readBack(r.now + readBackPatience) }) // GET-only: an earlier run may have uploaded (S2-214)
		return
	}
	d.attempts++
	if d.attempts > maxAttempts {
		r.result.Exhausted++
		r.end(failed)
		return
	}
	r.then(d.before, r.upload)
}

// mayCrash kills the process at any moment of the run.
func (r *run) mayCrash() {
	if r.faults.Float64() >= r.p.Crash {
		return
	}
	d := r.d
	whole := d.before + d.put + d.readA + d.readB + d.ready + d.probe + d.after
	r.after(r.faults.Float64()*whole, func() {
		if r.over {
			return
		}
		r.dead = true
		r.result.Crashes++
		beats := float64(int((r.now - r.began) / heartbeat))
		d.leaseUntil = r.began + beats*heartbeat + leaseTTL
		r.orphans = append(r.orphans, d)
		r.redeliver(r.m)
		r.who.openAt = 0 // the new process knows nothing of the block
		r.result.busy(r.who.since, r.now)
		r.after(r.p.Restart, func() { r.rest(r.who) })
	})
}

// send is one request to the provider. A refusal closes this process's gate.
func (r *run) send() bool {
	ok := r.who.token.send(r.now)
	r.result.request(r.now, ok)
	if !ok {
		r.who.openAt = r.who.token.blockedUntil
	}
	return ok
}

// upload commits the fence and sends the one PUT. A refusal for the rate limit
// withdraws the fence; the second one ends the deployment (D14).
func (r *run) upload() {
	d := r.d
	d.fenced = true
	if r.send() {
		d.applied = true
		r.then(d.put, func() {
			d.visible = r.now + d.ready
			r.readBack(r.now + readBackPatience)
		})
		return
	}
	if d.attempts >= maxAttempts {
		r.end(failed)
		return
	}
	d.fenced, d.pending, d.touched = false, true, r.now
	r.fresh.push(mark{d, d.touched})
	r.leave(r.redeliver)
}

// readBack sends both reads. When one is refused both are sent again after the
// block; a block beyond the deadline leaves the deployment uncertain: nobody
// knows whether the upload stands (deploy.showRelease).
func (r *run) readBack(deadline float64) {
	again := func() { r.readBack(deadline) }
	if r.who.openAt > r.now { // cloudflare.Gate.Wait
		r.then(r.who.openAt-r.now, again)
		return
	}
	settings := r.send()
	r.then(r.d.readA, func() {
		details := r.send()
		r.then(r.d.readB, func() {
			switch shown := settings && details; {
			case !shown && r.who.openAt <= deadline:
				r.then(max(r.who.openAt-r.now, 0), again)
			case !shown || !r.d.applied:
				r.end(uncertain)
			default:
				r.ask(0, r.now+readyDeadline)
			}
		})
	})
}

// ask probes until the release answers (deploy.readiness).
func (r *run) ask(n int, deadline float64) {
	if r.now >= deadline {
		r.end(uncertain)
		return
	}
	seen := r.now >= r.d.visible
	r.then(r.d.probe, func() {
		if seen {
			r.then(r.d.after, func() { r.end(completed) })
			return
		}
		r.then(probePauses[min(n, len(probePauses)-1)], func() { r.ask(n+1, deadline) })
	})
}

// end settles the row and acknowledges the message.
func (r *run) end(how ending) {
	r.finish(r.d, how)
	r.leave(nil)
}

// leave ends the delivery; back is what becomes of the message.
func (r *run) leave(back func(message)) {
	r.over = true
	if r.began > 0 {
		r.result.beats(r.now, int((r.now-r.began)/heartbeat))
	}
	if back != nil {
		back(r.m)
	}
	r.release(r.who)
}
