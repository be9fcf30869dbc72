// Package awsclient is what our clients of AWS's services have in common:
// bounded connections, credentials, and the reading of what a call ended with.
package awsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

// Wire bounds the connections of a client. The SDK's own have no limit on a
// silent service, and its read limit ends healthy slow uploads.
type Wire struct {
	// Connect bounds the TCP connect, and again the TLS handshake.
	Connect time.Duration
	// Silence bounds the time in which nothing moves on a connection, and the
	// wait for a response's headers. An exchange that moves, however slowly,
	// goes on: only the context of a call ends it.
	Silence time.Duration
	// MaxIdle bounds the connections kept open for the next request.
	MaxIdle int
	// RootCAs replace the system's; nil but in tests.
	RootCAs *x509.CertPool
	// Dial opens a connection; nil: TCP to the service's own address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Transport gives a transport within the limits. It takes no proxy from the
// environment.
func (w Wire) Transport() *http.Transport {
	if w.Dial == nil {
		w.Dial = (&net.Dialer{}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // over HTTP/2 one silent stream would share its connection's deadlines with lively ones
	return &http.Transport{
		Proxy:                  nil, // by name, so that the environment's proxy is not used
		DialContext:            w.dial,
		TLSClientConfig:        &tls.Config{RootCAs: w.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    w.Connect,
		ResponseHeaderTimeout:  w.Silence,
		IdleConnTimeout:        w.Silence / 2, // under Silence, whose end would look like a failure of the next request
		MaxIdleConns:           w.MaxIdle,
		MaxIdleConnsPerHost:    w.MaxIdle,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a stored .tar.gz is compressed as it is
		Protocols:              protocols,
	}
}

// Client gives an HTTP client within the limits.
func (w Wire) Client() *http.Client { return ClientOf(w.Transport()) }

// ClientOf gives the HTTP client of a transport. It follows no redirect, which
// would take a signed request, and its content, elsewhere.
func ClientOf(transport *http.Transport) *http.Client {
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
