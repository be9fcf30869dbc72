package npm

import (
	"container/list"
	"sync"
)

// memory keeps unpacked packages between builds, the least recently used of
// which go first. What is in it is shared: nobody writes to it.
type memory struct {
	mu    sync.Mutex
	limit int64
	used  int64
	order *list.List // of kept; the front was used last
	byKey map[string]*list.Element
}

type kept struct {
	key      string
	contents *Contents
}

func newMemory(limit int64) *memory {
	return &memory{limit: limit, order: list.New(), byKey: map[string]*list.Element{}}
}

func (m *memory) get(key string) *Contents {
	m.mu.Lock()
	defer m.mu.Unlock()
	element, ok := m.byKey[key]
	if !ok {
		return nil
	}
	m.order.MoveToFront(element)
	return element.Value.(kept).contents
}

func (m *memory) put(key string, contents *Contents) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.byKey[key]; ok || contents.cost() > m.limit {
		return
	}
	m.byKey[key] = m.order.PushFront(kept{key, contents})
	m.used += contents.cost()
	for m.used > m.limit {
		last := m.order.Back()
		dropped := m.order.Remove(last).(kept)
		delete(m.byKey, dropped.key)
		m.used -= dropped.contents.cost()
	}
}
