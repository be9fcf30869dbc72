// Package observetest has what tests need to see a log.
package observetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
)

// Log is a log that many goroutines write and a test reads.
type Log struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{} // closed and renewed by each write
}

// Write adds to the log.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
	return l.text.Write(p)
}

// Await waits until the text was written, or the context ends.
func (l *Log) Await(ctx context.Context, text string) error {
	for {
		found, more := l.look(text)
		if found {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("the log has no %q: %w", text, ctx.Err())
		}
	}
}

func (l *Log) look(text string) (bool, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(chan struct{})
	}
	return bytes.Contains(l.text.Bytes(), []byte(text)), l.written
}

// String gives all that was written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
