package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// echo answers every request with itself and counts them.
func echo(t *testing.T) (func(context.Context) (net.Conn, error), *atomic.Int64) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	served := &atomic.Int64{}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buffer := make([]byte, 64)
				for {
					n, err := c.Read(buffer)
					if err != nil {
						return
					}
					served.Add(1)
					_, err = c.Write(buffer[:n])
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	return func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", listener.Addr().String())
	}, served
}

func ask(t *testing.T, w *Wire, text string) (string, error) {
	t.Helper()
	c, err := w.Dial(t.Context())
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = io.WriteString(c, text)
	if err != nil {
		return "", err
	}
	buffer := make([]byte, 64)
	n, err := c.Read(buffer)
	return string(buffer[:n]), err
}

func TestWire(t *testing.T) {
	t.Parallel()
	cases := []struct {
		how    string
		served int64 // requests that reached the server
		again  bool  // the next request is answered
	}{
		{CutBefore, 0, true},
		{CutAfter, 1, true},
		{Down, 1, false},
	}
	for _, c := range cases {
		t.Run(c.how, func(t *testing.T) {
			t.Parallel()
			dial, served := echo(t)
			w := New(dial, func(b []byte) bool { return string(b) == "commit" }, nil)
			if got, err := ask(t, w, "select"); err != nil || got != "select" {
				t.Fatalf("unarmed: %q, %v", got, err)
			}
			if err := w.Arm(c.how); err != nil {
				t.Fatal(err)
			}
			if got, err := ask(t, w, "select"); err != nil || got != "select" {
				t.Fatalf("another request: %q, %v", got, err)
			}
			before := served.Load()
			if got, err := ask(t, w, "commit"); !errors.Is(err, errCut) {
				t.Fatalf("the request: %q, %v", got, err)
			}
			if n := served.Load() - before; n != c.served {
				t.Errorf("the server got %d requests, want %d", n, c.served)
			}
			if _, err := ask(t, w, "commit"); (err == nil) != c.again {
				t.Errorf("the next request: %v", err)
			}
		})
	}
}

// TestFreeze stops with the request unsent, and sends it afterwards.
func TestFreeze(t *testing.T) {
	t.Parallel()
	dial, served := echo(t)
	atStop := int64(-1)
	w := New(dial, func([]byte) bool { return true }, func(uint32) error { atStop = served.Load(); return nil })
	if err := w.Arm(Freeze); err != nil {
		t.Fatal(err)
	}
	got, err := ask(t, w, "commit")
	if err != nil || got != "commit" || atStop != 0 {
		t.Fatalf("%q, %v; requests at the stop: %d", got, err, atStop)
	}
}

// TestGreeting reads the connection's number as MariaDB sends it.
func TestGreeting(t *testing.T) {
	t.Parallel()
	packet := append([]byte{0x5a, 0, 0, 0, 10}, "5.5.5-10.11.19-MariaDB\x00\x39\x05\x00\x00rest"...)
	if got := greeting(packet); got != 1337 {
		t.Errorf("got %d", got)
	}
	for _, short := range [][]byte{nil, {1, 2}, packet[:8], packet[:29]} {
		if got := greeting(short); got != 0 {
			t.Errorf("a short packet gave %d", got)
		}
	}
}

// TestCommit matches the command and not a text that mentions it.
func TestCommit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"\x07\x00\x00\x00\x03COMMIT": true, "\x09\x00\x00\x00\x03SELECT 1": false, "\x11\x00\x00\x00\x03SELECT 'COMMIT'": false, "": false} {
		if Commit([]byte(text)) != want {
			t.Errorf("%q", text)
		}
	}
}
