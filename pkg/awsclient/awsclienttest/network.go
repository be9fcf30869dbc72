// Package awsclienttest is a network in memory for tests of AWS clients in
// virtual time (testing/synctest): the time of a bubble stands still while
// something moves on it, and sockets would stop it altogether.
package awsclienttest

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Network is served by one handler. It has no buffers: a write waits for its
// reader.
type Network struct {
	conns   chan net.Conn
	once    sync.Once
	ended   chan struct{}
	server  *http.Server
	running sync.WaitGroup
}

// latency comes before each answer. Without it an answer could overtake the end
// of its request, upon which net/http ends the connection: so quick is no service.
const latency = time.Millisecond

// Serve makes a network on which handler answers, until Close.
func Serve(handler http.Handler) *Network {
	n := &Network{conns: make(chan net.Conn), ended: make(chan struct{})}
	n.server = &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.running.Add(1)
		defer n.running.Done()
		<-time.After(latency)
		handler.ServeHTTP(w, r)
	})}
	n.running.Go(func() { _ = n.server.Serve(listener{n}) })
	return n
}

// Dial opens a connection to the handler, whatever the address is.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-n.ended:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends all connections and waits for what is left: nothing may be left of
// a bubble.
func (n *Network) Close() {
	_ = n.server.Close() // of pipes
	n.once.Do(func() { close(n.ended) })
	n.running.Wait()
}

type listener struct{ n *Network }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.n.conns:
		return conn, nil
	case <-l.n.ended:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l listener) Close() error { l.n.once.Do(func() { close(l.n.ended) }); return nil }

// Addr implements net.Listener.
func (l listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// Anybody are credentials for a service that takes any.
var Anybody = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "anybody", SecretAccessKey: "anything"}, nil
})
