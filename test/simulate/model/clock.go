package model

// clock runs events in the order of their times, and events of the same time
// in the order in which they were set: one seed gives one run. Times are
// seconds since the start.
type clock struct {
	now    float64
	serial int64
	events []event
}

type event struct {
	at     float64
	serial int64
	do     func()
	dead   *bool // when it is set by then, nothing is done; nil: never
}

func (e *event) before(other *event) bool {
	return e.at < other.at || (e.at == other.at && e.serial < other.serial)
}

// at sets an event; one in the past happens now.
func (c *clock) at(when float64, do func()) {
	c.unless(nil, when, do)
}

// unless is at for what has died by then if *dead.
func (c *clock) unless(dead *bool, when float64, do func()) {
	c.serial++
	c.push(event{max(when, c.now), c.serial, do, dead})
}

func (c *clock) after(seconds float64, do func()) { c.at(c.now+seconds, do) }

// run takes events until there are none.
func (c *clock) run() {
	for len(c.events) > 0 {
		next := c.pop()
		c.now = next.at
		if next.dead == nil || !*next.dead {
			next.do()
		}
	}
}

// push and pop are a binary heap in which the moving event is written once.
// container/heap would box each event, which costs as much as the rest of the
// run.
func (c *clock) push(e event) {
	c.events = append(c.events, e)
	i := len(c.events) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&c.events[parent]) {
			break
		}
		c.events[i] = c.events[parent]
		i = parent
	}
	c.events[i] = e
}

func (c *clock) pop() event {
	first, last := c.events[0], len(c.events)-1
	moving := c.events[last]
	c.events[last] = event{} // its closure may go
	c.events = c.events[:last]
	i := 0
	for {
		least := 2*i + 1
		if least >= last {
			break
		}
		if right := least + 1; right < last && c.events[right].before(&c.events[least]) {
			least = right
		}
		if !c.events[least].before(&moving) {
			break
		}
		c.events[i] = c.events[least]
		i = least
	}
	if last > 0 {
		c.events[i] = moving
	}
	return first
}
