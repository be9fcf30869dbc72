// Package artifacttest holds the conformance suite of the artifact port and
// the backends that tests use.
package artifacttest

import (
	"bytes"
	"context"
	"io"
	"maps"
	"sync"

	"github.com/teamsync/edge-workers/pkg/artifact"
)

// Call is one request that reached a backend.
type Call struct {
	Method string // "put", "get", "stat" or "delete"
	Key    string
}

// Counting records each call that reaches the backend behind it, so that a
// test can show that the fence let none through. Fail, when set, is returned
// instead of calling the backend.
type Counting struct {
	artifact.Backend
	mu    sync.Mutex
	calls []Call
	fail  error
}

// Count wraps a backend.
func Count(backend artifact.Backend) *Counting { return &Counting{Backend: backend} }

// Calls gives the calls so far.
func (c *Counting) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Call(nil), c.calls...)
}

// Count gives how often a method was called.
func (c *Counting) Count(method string) int {
	n := 0
	for _, call := range c.Calls() {
		if call.Method == method {
			n++
		}
	}
	return n
}

// FailWith makes each later call fail with err; nil lets them through again.
func (c *Counting) FailWith(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = err
}

func (c *Counting) record(method, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, Call{Method: method, Key: key})
	return c.fail
}

// Put implements artifact.Backend.
func (c *Counting) Put(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	if err := c.record("put", key); err != nil {
		return err
	}
	return c.Backend.Put(ctx, key, content, attributes)
}

// Get implements artifact.Backend.
func (c *Counting) Get(ctx context.Context, key string) (artifact.Info, io.ReadCloser, error) {
	if err := c.record("get", key); err != nil {
		return artifact.Info{}, nil, err
	}
	return c.Backend.Get(ctx, key)
}

// Stat implements artifact.Backend.
func (c *Counting) Stat(ctx context.Context, key string) (artifact.Info, error) {
	if err := c.record("stat", key); err != nil {
		return artifact.Info{}, err
	}
	return c.Backend.Stat(ctx, key)
}

// Delete implements artifact.Backend.
func (c *Counting) Delete(ctx context.Context, key string) error {
	if err := c.record("delete", key); err != nil {
		return err
	}
	return c.Backend.Delete(ctx, key)
}

// Memory is a backend in memory. It passes the conformance suite.
type Memory struct {
	mu      sync.Mutex
	objects map[string]memoryObject
}

type memoryObject struct {
	content    []byte
	attributes artifact.Attributes
}

// NewMemory makes an empty backend.
func NewMemory() *Memory { return &Memory{objects: map[string]memoryObject{}} }

// Corrupt replaces a stored object's content behind the port's back.
func (m *Memory) Corrupt(key string, content []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	object := m.objects[key]
	object.content = bytes.Clone(content)
	m.objects[key] = object
}

// Keys gives the stored keys in no particular order.
func (m *Memory) Keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := make([]string, 0, len(m.objects))
	for key := range m.objects {
		keys = append(keys, key)
	}
	return keys
}

// Put implements artifact.Backend.
func (m *Memory) Put(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stored, ok := m.objects[key]
	if !ok {
		attributes.Metadata = maps.Clone(attributes.Metadata)
		m.objects[key] = memoryObject{content: bytes.Clone(content), attributes: attributes}
		return nil
	}
	if !bytes.Equal(stored.content, content) || stored.attributes.ContentType != attributes.ContentType ||
		!maps.Equal(stored.attributes.Metadata, attributes.Metadata) {
		return artifact.ErrExists
	}
	return nil
}

// Get implements artifact.Backend.
func (m *Memory) Get(ctx context.Context, key string) (artifact.Info, io.ReadCloser, error) {
	info, err := m.Stat(ctx, key)
	if err != nil {
		return artifact.Info{}, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return info, io.NopCloser(bytes.NewReader(m.objects[key].content)), nil
}

// Stat implements artifact.Backend.
func (m *Memory) Stat(ctx context.Context, key string) (artifact.Info, error) {
	if err := ctx.Err(); err != nil {
		return artifact.Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	object, ok := m.objects[key]
	if !ok {
		return artifact.Info{}, artifact.ErrNotFound
	}
	attributes := object.attributes
	attributes.Metadata = maps.Clone(attributes.Metadata)
	return artifact.Info{Size: int64(len(object.content)), Attributes: attributes}, nil
}

// Delete implements artifact.Backend.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}
