package artifacttest

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// S3Params say what an S3Server is.
type S3Params struct {
	Bucket          string
	Region          string // what the scope of a signature must name
	AccessKeyID     string
	SecretAccessKey string
	// R2 refuses, with 501, the headers that R2 does not implement.
	R2 bool
	// Plain serves http instead of https.
	Plain bool
	// Name is the host name that the certificate is for, beside 127.0.0.1.
	Name string
}

// S3 is an S3 service with path-style addresses, as a handler. It verifies
// signatures (SigV4) by itself, without an SDK, honours conditions, keeps a
// log, and breaks what a test tells it to break.
type S3 struct {
	S3Params
	ended chan struct{}

	mu       sync.Mutex
	objects  map[string]S3Object
	requests []S3Request
	faults   []Fault
}

// NewS3 makes an empty service.
func NewS3(p S3Params) *S3 {
	return &S3{S3Params: p, ended: make(chan struct{}), objects: map[string]S3Object{}}
}

// End lets the stalled requests go.
func (s *S3) End() { close(s.ended) }

// S3Server is an S3 on a port of this machine.
type S3Server struct {
	*S3
	server *httptest.Server

	mu    sync.Mutex
	mute  int // connections that will be accepted and never served
	dials int
}

// S3Object is one stored object.
type S3Object struct {
	Content     []byte
	ContentType string
	Metadata    map[string]string
}

// S3Request is one request as it arrived.
type S3Request struct {
	Method string
	Host   string
	Path   string
	Header http.Header
	// Refused is the code with which the server itself refused the request
	// before it looked at the object: a signature, a header, a bucket.
	Refused string
}

// StartS3 starts a service that lives as long as the test.
func StartS3(t testing.TB, p S3Params) *S3Server {
	t.Helper()
	s := &S3Server{S3: NewS3(p)}
	s.server = httptest.NewUnstartedServer(s.S3)
	s.server.Listener = &listener{Listener: s.server.Listener, server: s}
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.server.TLS = certify(t, p.Name)
	if p.Plain {
		s.server.Start()
	} else {
		s.server.StartTLS()
	}
	t.Cleanup(func() {
		s.End()
		s.server.Close()
	})
	return s
}

// URL is the server's origin.
func (s *S3Server) URL() string { return s.server.URL }

// RootCAs verify the server's certificate.
func (s *S3Server) RootCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	if certificate := s.server.Certificate(); certificate != nil {
		pool.AddCert(certificate)
	}
	return pool
}

// Dial connects to the server, whatever the address.
func (s *S3Server) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, s.server.Listener.Addr().String())
}

// Requests gives the log, of one method where it is named.
func (s *S3) Requests(method string) []S3Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []S3Request
	for _, r := range s.requests {
		if method == "" || r.Method == method {
			out = append(out, r)
		}
	}
	return out
}

// Connections tells how many connections were accepted.
func (s *S3Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials
}

// Objects gives what is stored, by key.
func (s *S3) Objects() map[string]S3Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.objects)
}

// Keep stores an object behind the port's back.
func (s *S3) Keep(key string, object S3Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key] = object
}

// Script adds faults. Each is used once, by the first request that it fits.
func (s *S3) Script(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Pending gives the faults that no request has met yet.
func (s *S3) Pending() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}

// MuteConnections accepts the next n connections and never says a word on them.
func (s *S3Server) MuteConnections(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = n
}

// next takes the fault for a request out of the script.
func (s *S3) next(method string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.faults, func(f Fault) bool { return f.Method == "" || f.Method == method })
	if at < 0 {
		return Fault{}
	}
	fault := s.faults[at]
	s.faults = slices.Delete(s.faults, at, at+1)
	return fault
}

func (s *S3) log(r *http.Request, refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, S3Request{Method: r.Method, Host: r.Host, Path: r.URL.Path, Header: r.Header.Clone(), Refused: refused})
}

// stall holds a request until its caller gives up or the test ends.
func (s *S3) stall(r *http.Request) {
	select {
	case <-s.ended:
	case <-r.Context().Done():
	}
}

// unimplemented is what R2 answers 501 to.
func unimplemented(header http.Header) string {
	for name := range header {
		name = strings.ToLower(name)
		for _, prefix := range []string{
			"x-amz-sdk-checksum", "x-amz-checksum-", "x-amz-trailer", "x-amz-tagging", "x-amz-server-side-encryption",
			"x-amz-expected-bucket-owner", "x-amz-acl", "x-amz-object-lock",
		} {
			if strings.HasPrefix(name, prefix) {
				return name
			}
		}
	}
	return ""
}

// listener counts connections and mutes those that are to be mute.
type listener struct {
	net.Listener
	server *S3Server
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	l.server.dials++
	if l.server.mute == 0 {
		return conn, nil
	}
	l.server.mute--
	return muteConn{conn}, nil
}

// muteConn reads without end and says nothing.
type muteConn struct{ net.Conn }

// Read implements net.Conn.
func (c muteConn) Read([]byte) (int, error) {
	scratch := make([]byte, 4<<10)
	for {
		_, err := c.Conn.Read(scratch)
		if err != nil {
			return 0, err
		}
	}
}

// SetReadDeadline implements net.Conn: this end never gives up.
func (c muteConn) SetReadDeadline(time.Time) error { return nil }
