package s3store

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/awsclient"
)

func valid() Options {
	return Options{
		Endpoint: "https://store.example", Bucket: "edge-artifacts", Region: "auto", PathStyle: true,
		Credentials: NewCredentials(keyID, secret),
	}
}

// S0-24: equal options share a client, and a change of any one part is another.
func TestOneClientForEachCombination(t *testing.T) {
	t.Parallel()
	clients := newCache(maxClients, func(o Options) *client { return newClient(o, production) })
	first := clients.get(valid())
	same := valid()
	same.Credentials = NewCredentials(strings.Clone(keyID), strings.Clone(secret))
	if clients.get(same) != first {
		t.Error("equal options have two clients")
	}
	seen := map[*client]string{first: "the first"}
	for name, change := range map[string]func(*Options){
		"endpoint":        func(o *Options) { o.Endpoint = "http://store.example" },
		"bucket":          func(o *Options) { o.Bucket = "other" },
		"region":          func(o *Options) { o.Region = "us-east-1" },
		"options":         func(o *Options) { o.PathStyle = false },
		"key id":          func(o *Options) { o.Credentials = NewCredentials("other", secret) },
		"secret":          func(o *Options) { o.Credentials = NewCredentials(keyID, "other") },
		"boundary of two": func(o *Options) { o.Credentials = NewCredentials(keyID+secret[:1], secret[1:]) },
	} {
		o := valid()
		change(&o)
		got := clients.get(o)
		if other, ok := seen[got]; ok {
			t.Errorf("%s: the client of %s", name, other)
		}
		seen[got] = name
		if clients.get(o) != got || clients.get(valid()) != first {
			t.Errorf("%s: not kept", name)
		}
	}
}

// S0-25: once in a process, however many ask at once, and for every store that
// is opened.
func TestClientIsBuiltOnce(t *testing.T) {
	t.Parallel()
	var built atomic.Int32
	clients := newCache(maxClients, func(o Options) *client {
		built.Add(1)
		return newClient(o, production)
	})
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() { clients.get(valid()) })
	}
	group.Wait()
	if built.Load() != 1 {
		t.Errorf("built %d times", built.Load())
	}
	o := valid()
	o.Bucket = "built-once-in-the-process"
	one, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Open(o)
	if err != nil || one.api != two.api {
		t.Errorf("two stores of a process have two clients, %v", err)
	}
	if process.max != maxClients || maxClients != 8 || one.limits != production {
		t.Errorf("the process keeps %d clients with limits %+v", process.max, one.limits)
	}
}

// S0-26: at most eight, and the one that was used longest ago goes.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	clients := newCache(maxClients, func(o Options) *client { return newClient(o, production) })
	number := func(i int) Options {
		o := valid()
		o.Bucket = fmt.Sprintf("bucket-%d", i)
		return o
	}
	kept := map[int]*client{}
	for i := range 8 {
		kept[i] = clients.get(number(i))
	}
	clients.get(number(0)) // now 1 is the oldest
	for i := 8; i < 20; i++ {
		clients.get(number(i))
		if len(clients.entries) != 8 {
			t.Fatalf("%d clients are kept", len(clients.entries))
		}
		if i == 8 && (clients.get(number(0)) != kept[0] || clients.get(number(2)) != kept[2]) {
			t.Error("a client that is in use was dropped")
		}
	}
	if clients.get(number(1)) == kept[1] {
		t.Error("the oldest client was kept")
	}
}

// A store goes on when its client has left the cache.
func TestDroppedClientServesOn(t *testing.T) {
	t.Parallel()
	server := artifacttest.StartS3(t, onPrem)
	clients := newCache(1, func(o Options) *client { return newClient(o, production) })
	store, err := open(optionsFor(server), clients, production)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clients.get(optionsFor(server)).transport.CloseIdleConnections() })
	one := newSample(t, artifact.Project, []byte("content"))
	if err := one.put(t, store); err != nil {
		t.Fatal(err)
	}
	clients.get(valid())
	if _, err := one.read(t, store); err != nil {
		t.Errorf("after its client was dropped: %v", err)
	}
}

// The pair shows in no form, and not in the cache either.
func TestCredentialsAreHidden(t *testing.T) {
	t.Parallel()
	store, err := Open(valid())
	if err != nil {
		t.Fatal(err)
	}
	clients := newCache(1, func(Options) *client { return nil })
	clients.get(valid())
	for _, value := range []any{valid(), new(valid()), valid().Credentials, store, store.credentials, clients.entries} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
			text := fmt.Sprintf(verb, value)
			for _, hidden := range []string{secret, fmt.Sprintf("%x", secret)} {
				if strings.Contains(text, hidden) {
					t.Errorf("%T with %s shows the secret", value, verb)
				}
			}
		}
	}
	text, err := valid().Credentials.MarshalText()
	if err != nil || string(text) != redacted {
		t.Errorf("%s, %v", text, err)
	}
	if again := newCache(1, nil); again.combination(valid()) == clients.entries[0].of {
		t.Error("the hash of a pair can be computed elsewhere")
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"no endpoint":        func(o *Options) { o.Endpoint = "" },
		"not a URL":          func(o *Options) { o.Endpoint = "https://%" },
		"another scheme":     func(o *Options) { o.Endpoint = "s3://store.example" },
		"userinfo":           func(o *Options) { o.Endpoint = "https://u:" + secret + "@store.example" },
		"path":               func(o *Options) { o.Endpoint += "/x" },
		"trailing slash":     func(o *Options) { o.Endpoint += "/" },
		"no bucket":          func(o *Options) { o.Bucket = "" },
		"bucket with a path": func(o *Options) { o.Bucket = "edge/artifacts" },
		"bucket of dots":     func(o *Options) { o.Bucket = "edge..artifacts" },
		"no region":          func(o *Options) { o.Region = "" },
		"no credentials":     func(o *Options) { o.Credentials = Credentials{} },
		"no key id":          func(o *Options) { o.Credentials = NewCredentials("", secret) },
		"no secret":          func(o *Options) { o.Credentials = NewCredentials(keyID, "") },
		"key id of a scope":  func(o *Options) { o.Credentials = NewCredentials("a/b", secret) },
		"secret of lines":    func(o *Options) { o.Credentials = NewCredentials(keyID, secret+"\n") },
	} {
		o := valid()
		change(&o)
		store, err := Open(o)
		if err == nil || store != nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(valid()); err != nil {
		t.Error(err)
	}
}

// buffered notes the size of its send buffer.
type buffered struct {
	net.Conn
	size int
	fail error
}

func (b *buffered) SetWriteBuffer(bytes int) error { b.size = bytes; return b.fail }

// What the system takes off our hands must drain within the wait for a reply,
// at the least speed at which the largest object can be sent at all.
func TestSendBuffer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer far.Close()
	conn := &buffered{Conn: near}
	dial := newTransport(&Network{Dial: conn.dial}, production).DialContext
	opened, err := dial(t.Context(), "tcp", "x")
	if err != nil || conn.size != awsclient.SendBuffer {
		t.Fatalf("buffer of %d bytes, %v", conn.size, err)
	}
	const kernel = 2 // Linux keeps twice what it is asked for
	if perSecond := artifact.MaxBundleSize / int64(callTimeout.Seconds()); kernel*awsclient.SendBuffer/int64(readTimeout.Seconds()) > perSecond {
		t.Error("the buffer drains slower than a call may be")
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	conn.fail = net.ErrClosed
	if _, err = dial(t.Context(), "tcp", "x"); err == nil {
		t.Error("an unbounded buffer is accepted")
	}
}

func (b *buffered) dial(context.Context, string, string) (net.Conn, error) { return b, nil }
