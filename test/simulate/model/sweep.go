package model

import "math"

// round is one round of one reconciler's deployments lane: batches of 50 for as
// long as they are full and the budget lasts (reconcile.Republisher).
func (s *system) round() {
	if s.arrived && s.open == 0 {
		return
	}
	s.batch(s.now)
}

func (s *system) batch(began float64) {
	rows := s.claim()
	s.result.statements(s.now, costClaim.plus(costStamp.times(len(rows))))
	var one func(i int)
	one = func(i int) {
		if i < len(rows) {
			s.after(s.p.Republish, func() {
				s.result.statements(s.now, costRepublish)
				s.result.Republished++
				s.publish(rows[i], s.faults.Float64() < s.p.Loss)
				one(i + 1)
			})
			return
		}
		if len(rows) == sweepBatch && s.now-began < sweepBudget {
			s.batch(began)
			return
		}
		s.after(sweepEvery, s.round)
	}
	one(0)
}

// claim takes the rows that nobody works on, in the order of
// outbox.ClaimRecoverable, and stamps them.
func (s *system) claim() []*deployment {
	var rows []*deployment
	for len(rows) < sweepBatch && s.fresh.len() > 0 && s.fresh.first().at <= s.now-s.p.Grace {
		m, _ := s.fresh.pop()
		if m.d.end == open && m.d.pending && m.d.due == 0 && m.d.touched == m.at {
			rows = append(rows, m.d)
		}
	}
	for len(rows) < sweepBatch && s.stamped.len() > 0 && s.stamped.first().at <= s.now {
		m, _ := s.stamped.pop()
		if m.d.end == open && m.d.pending && m.d.due == m.at {
			rows = append(rows, m.d)
		}
	}
	rows = s.claimDead(rows)
	for _, d := range rows {
		d.due = max(math.Floor(s.now+cooldown), d.due+1)
		if d.pending {
			s.stamped.push(mark{d, d.due})
		}
	}
	return rows
}

// claimDead adds the rows whose owner died and whose lease has ended.
func (s *system) claimDead(rows []*deployment) []*deployment {
	kept := s.orphans[:0]
	for _, d := range s.orphans {
		switch {
		case d.end != open || d.pending || d.leaseUntil > s.now+leaseTTL: // taken over by a delivery
			continue
		case len(rows) < sweepBatch && d.leaseUntil <= s.now && d.due <= s.now:
			rows = append(rows, d)
		}
		kept = append(kept, d)
	}
	s.orphans = kept
	return rows
}
