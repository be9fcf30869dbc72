package model

// budget is what one API token may send: so many requests in any window, and
// after one too many nothing for the block. nil has no limit.
type budget struct {
	window, block float64
	sent          []float64 // ring: when the last requests were sent
	next          int
	blockedUntil  float64
	// booked is the pace's own ring: when the last booked requests may be sent.
	booked     []float64
	nextBooked int
}

// newBudget counts requests in a window. share of them may be booked ahead.
func newBudget(requests int, window, block, share float64) *budget {
	b := &budget{window: window, block: block, sent: make([]float64, requests), booked: make([]float64, int(float64(requests)*share))}
	for i := range b.sent {
		b.sent[i] = -window
	}
	for i := range b.booked {
		b.booked[i] = -window
	}
	return b
}

// send reports whether the provider takes a request now.
func (b *budget) send(now float64) bool {
	switch {
	case b == nil:
		return true
	case now < b.blockedUntil:
		return false
	case now-b.sent[b.next] < b.window: // the oldest of a full window's requests is still in it
		b.blockedUntil = now + b.block
		return false
	}
	b.sent[b.next] = now
	b.next = (b.next + 1) % len(b.sent)
	return true
}

// book reserves n requests and returns the time from which they may be sent. It
// is the shared pace that this product does not have.
func (b *budget) book(now float64, n int) float64 {
	if b == nil || len(b.booked) == 0 {
		return now
	}
	when := now
	for range n {
		when = max(when, b.booked[b.nextBooked]+b.window)
		b.booked[b.nextBooked] = when
		b.nextBooked = (b.nextBooked + 1) % len(b.booked)
	}
	return when
}
