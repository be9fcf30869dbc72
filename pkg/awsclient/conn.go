package awsclient

import (
	"context"
	"net"
	"time"
)

// idleConn ends an exchange on which nothing moved for idle. Each write moves
// both deadlines, because net/http waits in a read for the whole time that it
// sends: a read deadline alone would end a slow but healthy upload.
type idleConn struct {
	net.Conn
	idle time.Duration
}

// writeChunk bounds what has to leave within one idle period.
const writeChunk = 16 << 10 // bytes

// Read implements net.Conn.
func (c *idleConn) Read(p []byte) (int, error) {
	err := c.SetReadDeadline(time.Now().Add(c.idle))
	if err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write implements net.Conn.
func (c *idleConn) Write(p []byte) (int, error) {
	written := 0
	for {
		err := c.SetDeadline(time.Now().Add(c.idle))
		if err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+writeChunk)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// SendBuffer bounds, in bytes, what the system takes off our hands before the
// service has it. net/http believes that to be sent and starts to wait for the
// reply: with a buffer of megabytes, as systems grow them, the end of a slow
// but healthy upload would still be on its way when the wait is over.
const SendBuffer = 256 << 10

// dial opens a bounded connection.
func (w Wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Connect)
	defer cancel()
	conn, err := w.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if buffered, ok := conn.(interface{ SetWriteBuffer(bytes int) error }); ok {
		err = buffered.SetWriteBuffer(SendBuffer)
		if err != nil {
			_ = conn.Close() // it was never used
			return nil, err
		}
	}
	return &idleConn{Conn: conn, idle: w.Silence}, nil
}
