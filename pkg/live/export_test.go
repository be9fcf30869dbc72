package live

import "time"

// SetClock replaces the desk's clock before its use.
func (d *Desk) SetClock(now func() time.Time) { d.now = now }
