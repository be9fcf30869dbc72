//go:build e2e

package fleet

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/plane"
	"github.com/teamsync/edge-workers/transports"
	"github.com/teamsync/edge-workers/transports/transporttest"
)

const (
	departments = 25
	submitters  = 4
)

// waves is how many deployments each department has, one after another: what
// EDGE_TEST_DEPLOYMENTS says, over all of them.
func waves(t *testing.T) int {
	t.Helper()
	text := os.Getenv("EDGE_TEST_DEPLOYMENTS")
	if text == "" {
		return 4
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < departments {
		t.Fatalf("EDGE_TEST_DEPLOYMENTS: %q", text)
	}
	return n / departments
}

// S1-264 to S1-267, S1-271: many deployments whose messages come doubled, late and out of
// order, with poison among them: every one ends, no release is uploaded twice,
// each end is audited once, and poison is dropped once each.
func TestManyDeployments(t *testing.T) {
	each(t, func(t *testing.T, transport string) {
		f := Start(t, Params{Transport: transport, Deployers: 2, Model: true})
		var names []string
		for i := range departments {
			names = append(names, fmt.Sprintf("d%d", i))
		}
		f.provision(names...)
		poison := f.poison()
		copies := &copier{fleet: f}
		n := waves(t)
		for wave := range n {
			f.wave(names, wave, copies)
		}
		f.counted(int64(n*departments), copies, poison)
	})
}

// poison puts messages onto the queue that can never be run, and counts them.
func (f *Fleet) poison() int {
	f.t.Helper()
	n := 0
	for _, raw := range transporttest.Poison() {
		if f.broker.Inject(raw) {
			n++
		}
	}
	return n
}

// wave deploys a version of each department and waits until all have ended.
func (f *Fleet) wave(names []string, wave int, copies *copier) {
	f.t.Helper()
	work := make(chan string, len(names))
	for _, name := range names {
		work <- name
	}
	close(work)
	var group sync.WaitGroup
	for range submitters {
		group.Go(func() {
			for name := range work {
				archive := projecttest.Archive(f.t, plane.Project(fmt.Sprintf("wave %d of %s", wave, name)))
				v, err := f.as(name).SubmitVersion(f.t.Context(), archive, nil)
				if err != nil {
					f.t.Errorf("submit: %v", err)
					continue
				}
				ticket, err := f.as(name).Deploy(f.t.Context(), v.ID, v.Revision)
				if err != nil {
					f.t.Errorf("deploy: %v", err)
					continue
				}
				copies.of(ticket.TicketID)
			}
		})
	}
	group.Wait()
	limit := time.After(patience)
	for f.open() > 0 {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			f.t.Fatalf("wave %d: %d deployments have no end\n%s", wave, f.open(), f.logs())
		}
	}
}

// open counts the deployments that have not ended.
func (f *Fleet) open() int64 { return f.count("status IN ('pending', 'leased')") }

func (f *Fleet) count(condition string) int64 {
	f.t.Helper()
	var n int64
	f.must(f.database.Read(f.t.Context()).Model(&models.Outbox{}).Where("operation = 'deploy' AND " + condition).Count(&n).Error)
	return n
}

// message is what is to be published for a deployment.
func (f *Fleet) message(ticketID string) []byte {
	f.t.Helper()
	var row models.Outbox
	f.must(f.database.Read(f.t.Context()).Where("ticket_id = ?", ticketID).Take(&row).Error)
	payload, err := outbox.DecodeDeploy(row)
	f.must(err)
	raw, err := transports.Deploy(row.ID, row.CompanyID, row.DepartmentID, payload.MessageID).Encode()
	f.must(err)
	return raw
}

// copier puts copies of messages onto the queue, of new ones and of old ones.
type copier struct {
	fleet *Fleet
	mu    sync.Mutex
	seen  [][]byte
	n     int
}

func (c *copier) of(ticketID string) {
	c.fleet.t.Helper()
	raw := c.fleet.message(ticketID)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, raw)
	for _, m := range [][]byte{raw, c.seen[rand.IntN(len(c.seen))]}[:rand.IntN(3)] {
		if c.fleet.broker.Inject(m) {
			c.n++
		}
	}
}

// counted checks the end from outside: the host's uploads, the rows, the facts.
func (f *Fleet) counted(all int64, copies *copier, poison int) {
	f.t.Helper()
	completed, uploads := f.count("status = 'completed'"), int64(0)
	for tag, n := range f.host.puts() {
		uploads += int64(n)
		if n != 1 || tag == "" {
			f.t.Errorf("release %q was uploaded %d times", tag, n)
		}
	}
	var facts int64
	f.must(f.database.Read(f.t.Context()).Model(&models.AuditLog{}).Where("action = 'deployment.completed'").Count(&facts).Error)
	f.t.Logf("%d deployments, %d completed, %d uploads, %d facts; %d copies and %d poison messages, %d in the dead-letter queue",
		f.count("1 = 1"), completed, uploads, facts, copies.n, poison, f.broker.Dead())
	if f.count("1 = 1") != all || completed != all || uploads != all || facts != all {
		f.t.Errorf("want %d of each\n%s", all, f.logs())
	}
	f.awaitMalformed(poison)
	if strings.Contains(f.logs(), transporttest.Canary) {
		f.t.Error("a log holds a message")
	}
}

var malformedLine = regexp.MustCompile(`(?m)^edge_workers_messages_total\{result="malformed",transport="[a-z]+"\} (\d+)$`)

// awaitMalformed waits until the deployers have dropped that many messages, and
// no more.
func (f *Fleet) awaitMalformed(want int) {
	f.t.Helper()
	limit := time.After(patience)
	for {
		got := 0
		for _, p := range f.deployers {
			request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, p.URL("metrics")+"/metrics", nil)
			f.must(err)
			response, err := http.DefaultClient.Do(request)
			f.must(err)
			raw, err := io.ReadAll(response.Body)
			f.must(err)
			_ = response.Body.Close()
			line := malformedLine.FindSubmatch(raw)
			if line == nil {
				f.t.Fatalf("the metrics have no such line:\n%s", raw)
			}
			n, err := strconv.Atoi(string(line[1]))
			f.must(err)
			got += n
		}
		if got >= want {
			if got > want {
				f.t.Errorf("%d messages dropped, want %d", got, want)
			}
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			f.t.Fatalf("%d messages dropped, want %d", got, want)
		}
	}
}
