package s3store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

// pipes is a network in memory, so that time in a bubble stands still while
// something moves on it. It has no buffers: a write waits for its reader.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	ended chan struct{}
	dials int
	away  bool // nobody answers a connection
	mute  bool // nobody serves the other end
	drips sync.WaitGroup
	drip  bool // but somebody sends the beginning of a header there, without end
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	p.dials++
	if p.away {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	near, far := net.Pipe()
	if p.mute {
		p.drips.Go(func() { p.listen(far) })
		return near, nil
	}
	p.conns <- far
	return near, nil
}

// listen takes whatever comes and says nothing, or not much once it was asked:
// what is said before is no answer.
func (p *pipes) listen(conn net.Conn) {
	_, err := conn.Read(make([]byte, 1))
	var talk sync.WaitGroup
	if err == nil && p.drip {
		talk.Go(func() { dripHeader(conn) })
	}
	_, _ = io.Copy(io.Discard, conn)
	talk.Wait()
}

func dripHeader(conn net.Conn) {
	_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nX: ")
	for err == nil {
		time.Sleep(readTimeout / 4)
		_, err = io.WriteString(conn, "x")
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.ended) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

// bubble runs a test in virtual time: a store with the limits of production on
// a service that is reached over pipes.
func bubble(t *testing.T, wrap func(http.Handler) http.Handler, scheme string, test func(t *testing.T, store *Store, service *artifacttest.S3, network *pipes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		service, network := artifacttest.NewS3(onPrem), newPipes()
		var handler http.Handler = service
		if wrap != nil {
			handler = wrap(service)
		}
		var running sync.WaitGroup // nothing may be left of a bubble
		server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Done()
			handler.ServeHTTP(w, r)
		})}
		running.Go(func() { _ = server.Serve(network) })
		o := Options{
			Endpoint: scheme + "://artifacts:9000", Bucket: onPrem.Bucket, Region: onPrem.Region, PathStyle: true,
			Credentials: NewCredentials(keyID, secret), Network: &Network{Dial: network.dial},
		}
		clients := newCache(1, func(o Options) *client { return newClient(o, production) })
		store, err := open(o, clients, production)
		if err != nil {
			t.Fatal(err)
		}
		test(t, store, service, network)
		clients.get(o).transport.CloseIdleConnections()
		service.End()
		_ = server.Close()
		running.Wait()
		network.drips.Wait()
	})
}

// The limits are those of the specification, and no call outlasts the bound
// that follows from them (S0-27, S0-28, S0-29, S0-31).
func TestLimits(t *testing.T) {
	t.Parallel()
	if connectTimeout != 5*time.Second || readTimeout != 20*time.Second || maxAttempts != 3 {
		t.Errorf("connect %s, read %s, %d attempts", connectTimeout, readTimeout, maxAttempts)
	}
	attempt := connectTimeout + connectTimeout + readTimeout // connect, TLS, silence
	const asked = 5 * time.Second                            // what a service may add to a pause
	if rest := callTimeout - maxAttempts*attempt - (maxAttempts-1)*(maxBackoff+asked); rest < 0 {
		t.Errorf("a call ends %s before its attempts do", -rest)
	}
	// A submission has 3 minutes for its uploads and its commit.
	if MaxDuration != callTimeout+settleTimeout || MaxDuration > 150*time.Second {
		t.Errorf("a call takes up to %s", MaxDuration)
	}
	longest, err := newClient(valid(), production).api.Options().Retryer.RetryDelay(60, errors.New("x"))
	if err != nil || longest > maxBackoff {
		t.Errorf("a pause of %s, %v", longest, err)
	}
	if idleTimeout := newTransport(nil, production).IdleConnTimeout; idleTimeout == 0 || idleTimeout >= readTimeout {
		t.Error("a waiting connection would end as a failed request")
	}
}

// backoffs is the longest that the two pauses between three attempts take.
const backoffs = (maxAttempts - 1) * maxBackoff

// S0-27, S0-28, S0-31: whatever stops moving, a call ends in bounded time; the
// same call on a service that answers succeeds.
func TestStalls(t *testing.T) {
	t.Parallel()
	mute := func(_ *artifacttest.S3, n *pipes) { n.mute = true }
	script := func(method string, do artifacttest.Action) func(*artifacttest.S3, *pipes) {
		return func(s *artifacttest.S3, _ *pipes) {
			s.Script(artifacttest.Fault{Method: method, Do: do, Bytes: 1000}.Times(20)...)
		}
	}
	drip := func(_ *artifacttest.S3, n *pipes) { n.mute, n.drip = true, true }
	const put, get, remove = http.MethodPut, http.MethodGet, http.MethodDelete
	cases := map[string]struct {
		method, scheme string
		stall          func(*artifacttest.S3, *pipes)
		each           time.Duration // one attempt
		dials          int
	}{
		"connect":                  {remove, "http", func(_ *artifacttest.S3, n *pipes) { n.away = true }, connectTimeout, 3},
		"TLS":                      {remove, "https", mute, connectTimeout, 3},
		"accepted and silent":      {remove, "http", mute, readTimeout, 3},
		"headers that do not end":  {remove, "http", drip, readTimeout, 3},
		"no reply to a delete":     {remove, "http", script(remove, artifacttest.StallReply), readTimeout, 3},
		"no reply to a get":        {get, "http", script(get, artifacttest.StallReply), readTimeout, 3},
		"a get's body stops":       {get, "http", script(get, artifacttest.StallBody), readTimeout, 3},
		"no reply to a put":        {put, "http", script(put, artifacttest.StallReply), readTimeout, 4},
		"a put's body is not read": {put, "http", script(put, artifacttest.StallRequest), readTimeout, 4},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, c.scheme, func(t *testing.T, store *Store, service *artifacttest.S3, network *pipes) {
				one := newSample(t, artifact.Bundle, bytes.Repeat([]byte("x"), 300_000))
				if c.method != put {
					service.Keep(one.key, one.stored())
				}
				c.stall(service, network)
				began := time.Now()
				err := call(t, store, one, c.method)
				took := time.Since(began)
				applied := name == "no reply to a put" // the read back finds it
				if applied != (err == nil) || (err != nil && !errors.Is(err, artifact.ErrUnavailable)) {
					t.Errorf("%v", err)
				}
				if took < 3*c.each || took > 3*c.each+backoffs {
					t.Errorf("took %s, want 3 × %s and the pauses", took, c.each)
				}
				if network.dials != c.dials {
					t.Errorf("%d connections, want %d", network.dials, c.dials)
				}
			})
		})
	}
	for _, method := range []string{put, get, remove} { // the positive control
		bubble(t, nil, "http", func(t *testing.T, store *Store, service *artifacttest.S3, _ *pipes) {
			one := newSample(t, artifact.Bundle, bytes.Repeat([]byte("x"), 300_000))
			if method != put {
				service.Keep(one.key, one.stored())
			}
			began := time.Now()
			if err := call(t, store, one, method); err != nil || time.Since(began) != 0 {
				t.Errorf("%s of a healthy service: %v after %s", method, err, time.Since(began))
			}
		})
	}
}

// slowly reads a request's body, and sends a reply, in small steps.
type slowly struct {
	next http.Handler
	step time.Duration
	size int
}

func (s slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body bytes.Buffer
	for {
		_, err := io.CopyN(&body, r.Body, int64(s.size))
		if err != nil {
			break
		}
		time.Sleep(s.step)
	}
	r.Body = io.NopCloser(&body)
	s.next.ServeHTTP(dripping{w, s}, r)
}

type dripping struct {
	http.ResponseWriter
	slowly
}

func (d dripping) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		n, err := d.ResponseWriter.Write(p[sent:min(len(p), sent+d.size)])
		sent += n
		if err == nil {
			err = http.NewResponseController(d.ResponseWriter).Flush()
		}
		if err != nil {
			return sent, err
		}
		time.Sleep(d.step)
	}
	return sent, nil
}

// S0-31: an exchange that moves, however slowly, is left alone, for several
// times as long as a silence may last.
func TestSlowButHealthy(t *testing.T) {
	t.Parallel()
	wrap := func(h http.Handler) http.Handler { return slowly{h, 8 * time.Second, 10_000} }
	bubble(t, wrap, "http", func(t *testing.T, store *Store, service *artifacttest.S3, _ *pipes) {
		one := newSample(t, artifact.Bundle, pattern(120_000))
		began := time.Now()
		if err := one.put(t, store); err != nil {
			t.Fatalf("slow put: %v", err)
		}
		if took := time.Since(began); took < 4*readTimeout || took > callTimeout {
			t.Errorf("the put took %s, which shows nothing", took)
		}
		one.wantStored(t, service)
		began = time.Now()
		got, err := one.read(t, store)
		if took := time.Since(began); err != nil || !bytes.Equal(got, one.Content) || took < 4*readTimeout {
			t.Errorf("slow get: %d bytes, %v after %s", len(got), err, took)
		}
		if n := len(service.Requests("")); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// S0-31: a peer that never stops and never ends is cut off by the deadline of
// the call.
func TestDrip(t *testing.T) {
	t.Parallel()
	wrap := func(h http.Handler) http.Handler { return slowly{h, 15 * time.Second, 1} }
	bubble(t, wrap, "http", func(t *testing.T, store *Store, service *artifacttest.S3, _ *pipes) {
		one := newSample(t, artifact.Bundle, pattern(100_000))
		service.Keep(one.key, one.stored())
		began := time.Now()
		_, err := one.read(t, store)
		if took := time.Since(began); !errors.Is(err, artifact.ErrUnavailable) || took != callTimeout {
			t.Errorf("a dripping get: %v after %s, want %s", err, took, callTimeout)
		}
		began = time.Now()
		err = one.put(t, store)
		if took := time.Since(began); !errors.Is(err, artifact.ErrUnavailable) || took > MaxDuration {
			t.Errorf("a dripping put: %v after %s, want at most %s", err, took, MaxDuration)
		}
	})
}

// S0-31: so is an upload that moves too slowly ever to end in time.
func TestEndlessUpload(t *testing.T) {
	t.Parallel()
	wrap := func(h http.Handler) http.Handler { return slowly{h, 15 * time.Second, 16 << 10} }
	bubble(t, wrap, "http", func(t *testing.T, store *Store, service *artifacttest.S3, _ *pipes) {
		one := newSample(t, artifact.Bundle, pattern(300_000))
		began := time.Now()
		err := one.put(t, store)
		if took := time.Since(began); !errors.Is(err, artifact.ErrUnavailable) || took < callTimeout || took > MaxDuration {
			t.Errorf("%v after %s, want %s", err, took, callTimeout)
		}
		if n := len(service.Requests(http.MethodGet)); n != 1 { // it was read back, within its own bound
			t.Errorf("%d reads", n)
		}
	})
}

// The caller's own end is the caller's error, at once.
func TestCallerGivesUp(t *testing.T) {
	t.Parallel()
	bubble(t, nil, "http", func(t *testing.T, store *Store, _ *artifacttest.S3, network *pipes) {
		network.mute = true
		one := newSample(t, artifact.Bundle, []byte("content"))
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		began := time.Now()
		err := store.Put(ctx, one.key, one.Content, one.attributes)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, artifact.ErrUnavailable) || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// A connection that waits for its next request is closed before its silence
// counts, so that the request is not the one that finds out.
func TestWaitingConnection(t *testing.T) {
	t.Parallel()
	bubble(t, nil, "http", func(t *testing.T, store *Store, service *artifacttest.S3, network *pipes) {
		one := newSample(t, artifact.Bundle, []byte("content"))
		if err := one.put(t, store); err != nil {
			t.Fatal(err)
		}
		for _, pause := range []time.Duration{0, readTimeout / 4, readTimeout * 3 / 4, readTimeout, time.Hour} {
			time.Sleep(pause)
			if _, err := one.read(t, store); err != nil {
				t.Errorf("after %s: %v", pause, err)
			}
		}
		gets := len(service.Requests(http.MethodGet))
		if gets != 5 || network.dials != 4 { // the first two came on the connection of the put
			t.Errorf("%d gets on %d connections, want 5 on 4", gets, network.dials)
		}
	})
}

// S0-30: pauses that a service asks for are bounded too.
func TestServiceAsksForALongPause(t *testing.T) {
	t.Parallel()
	wrap := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Retry-After", "86400000")
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	}
	bubble(t, wrap, "http", func(t *testing.T, store *Store, _ *artifacttest.S3, _ *pipes) {
		began := time.Now()
		err := store.Delete(t.Context(), "key")
		if took := time.Since(began); !errors.Is(err, artifact.ErrUnavailable) || !strings.Contains(err.Error(), "503") || took > backoffs+2*5*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}
