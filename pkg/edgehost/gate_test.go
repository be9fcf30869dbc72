package edgehost

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/edgehost/egress"
)

// gate is a server that Workers may reach and that answers when it is told.
type gate struct {
	url     string
	policy  egress.Policy
	arrived chan struct{}
	open    chan struct{}
}

func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{arrived: make(chan struct{}, 100), open: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.arrived <- struct{}{}
		select {
		case <-g.open:
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("through the gate"))
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	g.policy = egress.Policy{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Ports: []uint16{portOf(t, server.URL)}}
	return g
}

func portOf(t *testing.T, text string) uint16 {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(port)
}

// eventually waits for a state that another goroutine reaches.
func eventually(t *testing.T, reached func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !reached() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("the expected state was not reached")
		}
	}
}
