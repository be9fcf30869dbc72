// Package wire tampers with connections at the byte level: it cuts one before
// a request left or after it was answered, or stops the process with the
// request unsent. The client and the server are the real ones.
package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
)

// What may happen to the next matching request.
const (
	CutBefore = "cut-before" // the connection ends before the request left
	CutAfter  = "cut-after"  // the server has answered; the answer is lost
	Down      = "down"       // as CutAfter, and the server cannot be reached any more
	Freeze    = "freeze"     // the process stops with the request unsent
)

var errCut = &net.OpError{Op: "read", Net: "fault", Err: errors.New("connection cut by the fault matrix")}

// Wire makes connections and tampers with one request.
type Wire struct {
	dial  func(context.Context) (net.Conn, error)
	match func([]byte) bool
	stop  func(thread uint32) error

	mu    sync.Mutex
	armed string
	down  bool
}

// New returns a wire. match finds the request; stop stops the process, and is
// told the server's number of the connection, as MySQL's greeting gives it.
func New(dial func(context.Context) (net.Conn, error), match func([]byte) bool, stop func(uint32) error) *Wire {
	return &Wire{dial: dial, match: match, stop: stop}
}

// Arm tampers with the next matching request.
func (w *Wire) Arm(how string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = how
	return nil
}

// Dial makes a connection.
func (w *Wire) Dial(ctx context.Context) (net.Conn, error) {
	if w.isDown() {
		return nil, errCut
	}
	inner, err := w.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: inner, wire: w}, nil
}

func (w *Wire) isDown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down
}

// take gives what is to happen to a request, and disarms.
func (w *Wire) take(request []byte) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed == "" || !w.match(request) {
		return ""
	}
	how := w.armed
	w.armed = ""
	w.down = how == Down
	return how
}

type conn struct {
	net.Conn
	wire   *Wire
	thread uint32
	lose   bool // the next answer is lost
}

// Write sends a request, or does what the wire is armed with.
func (c *conn) Write(b []byte) (int, error) {
	how := c.wire.take(b)
	switch {
	case how == "" && c.wire.isDown(), how == CutBefore:
		_ = c.Close()
		return 0, errCut
	case how == CutAfter, how == Down:
		c.lose = true
	case how == Freeze:
		err := c.wire.stop(c.thread)
		if err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// Read reads an answer, or loses it.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lose {
		_ = c.Close()
		return 0, errCut
	}
	if c.thread == 0 && n > 0 {
		c.thread = greeting(b[:n])
	}
	return n, err
}

// greeting gives the connection's number in MySQL's first packet: after the
// header of four bytes and the protocol version follows the server's version
// with a NUL at its end, and then the number.
func greeting(packet []byte) uint32 {
	const header = 5
	if len(packet) < header {
		return 0
	}
	_, rest, found := bytes.Cut(packet[header:], []byte{0})
	if !found || len(rest) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(rest)
}

// Commit matches MySQL's COMMIT: the whole text of one command packet.
func Commit(request []byte) bool {
	const header = 5 // length, sequence, COM_QUERY
	return len(request) > header && bytes.EqualFold(request[header:], []byte("COMMIT"))
}
