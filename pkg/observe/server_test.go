package observe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// running is a server in the background.
type running struct {
	url  string
	addr net.Addr
	stop context.CancelFunc
	done chan error
}

func serve(t *testing.T, params ServerParams) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r := &running{stop: cancel, done: make(chan error, 1)}
	ready := make(chan net.Addr, 1)
	params.Name, params.Addr = "test", "127.0.0.1:0"
	params.Ready = func(addr net.Addr) { ready <- addr }
	go func() { r.done <- Serve(ctx, params) }()
	select {
	case r.addr = <-ready:
	case err := <-r.done:
		t.Fatal(err)
	}
	r.url = "http://" + r.addr.String()
	return r
}

func fetch(t *testing.T, url string) (string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestServeFinishesRequestsInFlight(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	r := serve(t, ServerParams{Grace: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		_, _ = fmt.Fprintf(w, "context: %v", r.Context().Err())
	})})
	type result struct {
		body string
		err  error
	}
	answered := make(chan result, 1)
	go func() {
		body, err := fetch(t, r.url)
		answered <- result{body, err}
	}()
	<-entered
	r.stop()
	// New connections are refused as soon as the listener is closed, which is
	// the only sign of it from outside.
	for {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr.String())
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	select {
	case err := <-r.done:
		t.Fatalf("stopped with a request in flight: %v", err)
	default:
	}
	close(release)
	got := <-answered
	if got.err != nil || got.body != "context: <nil>" {
		t.Errorf("answer %q, %v", got.body, got.err)
	}
	err := <-r.done
	if err != nil {
		t.Errorf("clean stop: %v", err)
	}
}

func TestServeCutsOffAfterTheGrace(t *testing.T) {
	t.Parallel()
	entered, ended := make(chan struct{}), make(chan error, 1)
	r := serve(t, ServerParams{Grace: time.Millisecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		ended <- r.Context().Err()
	})})
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = fetch(t, r.url)
	}()
	<-entered
	r.stop()
	err := <-r.done
	if err == nil || !strings.Contains(err.Error(), "server test: stop: requests were cut off after 1ms") {
		t.Errorf("error = %v", err)
	}
	if err = <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request's context ended by %v", err)
	}
	<-answered // whether the end of the handler or of the connection comes first is open
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	handler := http.NotFoundHandler()
	cases := []struct {
		name   string
		params ServerParams
		says   string
	}{
		{"no handler", ServerParams{Name: "x", Addr: ":0"}, "server x has no handler"},
		{"no address", ServerParams{Name: "x", Handler: handler}, "server x has no address"},
		{"address taken", ServerParams{Name: "x", Addr: taken.Addr().String(), Handler: handler}, "server x: listen on " + taken.Addr().String()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := Serve(t.Context(), c.params)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error = %v, want %q", err, c.says)
			}
		})
	}
}

// A listener that fails ends Serve with its error.
func TestServeEndsWithItsListener(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = listener.Close()
	if err != nil {
		t.Fatal(err)
	}
	err = Serve(t.Context(), ServerParams{Name: "x", Listener: listener, Handler: http.NotFoundHandler()})
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("error = %v", err)
	}
}

// A client that opens a connection and sends half a header is dropped.
func TestSlowHeaderIsCutOff(t *testing.T) {
	t.Parallel()
	r := serve(t, ServerParams{Handler: http.NotFoundHandler(), ReadHeaderTimeout: 50 * time.Millisecond})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n")
	if err != nil {
		t.Fatal(err)
	}
	// The server ends the connection: the read returns, with or without an answer before.
	_, err = io.Copy(io.Discard, conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("read: %v", err)
	}
	// The positive control: a whole header is answered, by a server whose limit
	// a slow machine does not reach.
	r = serve(t, ServerParams{Handler: http.NotFoundHandler()})
	conn, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	status, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(status, "404") {
		t.Errorf("answer %q, %v", status, err)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	t.Parallel()
	r := serve(t, ServerParams{Handler: http.NotFoundHandler()})
	for size, want := range map[int]int{maxHeaderBytes / 2: http.StatusNotFound, 2 * maxHeaderBytes: http.StatusRequestHeaderFieldsTooLarge} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// All of it at once: the server reads on for a moment after refusing.
		_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: %s\r\n\r\n", strings.Repeat("x", size))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%d bytes: status %d, want %d", size, response.StatusCode, want)
		}
	}
}
