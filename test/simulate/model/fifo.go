package model

// fifo is a queue that gives back the room of what left it.
type fifo[T any] struct {
	items []T
	head  int
}

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) first() T { return f.items[f.head] }

func (f *fifo[T]) push(item T) { f.items = append(f.items, item) }

func (f *fifo[T]) pop() (T, bool) {
	var none T
	if f.len() == 0 {
		return none, false
	}
	item := f.items[f.head]
	f.items[f.head] = none
	f.head++
	if f.head > 1024 && f.head*2 > len(f.items) {
		f.items = append(f.items[:0], f.items[f.head:]...)
		f.head = 0
	}
	return item, true
}
