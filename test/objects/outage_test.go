package objects

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/faults/sample"
)

// line is a way to the store that can be cut.
type line struct {
	down    atomic.Bool
	refused atomic.Int64
}

func (l *line) network() *s3store.Network {
	return &s3store.Network{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if l.down.Load() {
			l.refused.Add(1)
			return nil, errors.New("connection refused")
		}
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return cuttable{conn, l}, nil
	}}
}

// cuttable is a connection that ends with its line.
type cuttable struct {
	net.Conn
	line *line
}

func (c cuttable) Write(p []byte) (int, error) {
	if c.line.down.Load() {
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	return c.Conn.Write(p)
}

// S0-20, S0-29, S0-62, S0-85 to S0-89: the store is out of reach for an hour.
// Submissions answer 503 after a bounded number of attempts, no intent is lost
// or settled meanwhile, and afterwards everything drains.
func TestAnHourWithoutTheStore(t *testing.T) {
	t.Parallel()
	w, way := newWorld(t), &line{}
	submitter, err := w.submission.open(t.Context(), way.network())
	w.ok(err)
	store, err := w.submission.Store.open(way.network())
	w.ok(err)
	submit := func() error {
		archive, err := sample.Archive(uuid.NewString())
		w.ok(err)
		_, err = submitter.Submit(t.Context(), version.Submission{Tenant: w.submission.Tenant, Actor: owner, Archive: bytes.NewReader(archive)})
		return err
	}
	w.ok(submit())
	const before = outbox.CleanupBatch + 5 // more than one batch
	for range before {
		w.abandon(store)
	}
	w.ok(w.passTime())
	stored := len(w.list())

	way.down.Store(true)
	cleaner, open := w.cleanerOn(store), before
	for minute := range 60 {
		if minute%10 == 0 {
			tries := way.refused.Load()
			err := submit()
			if !errors.Is(err, version.ErrNoStorage) || way.refused.Load()-tries > 2*(3+3) { // two objects, three attempts to write and three to read back
				t.Fatalf("minute %d: %v after %d attempts", minute, err, way.refused.Load()-tries)
			}
			open++
		}
		tries := way.refused.Load()
		_, err := cleaner.RunOnce(t.Context(), time.Minute)
		if asked := way.refused.Load() - tries; asked > 3 || (err == nil) != (asked == 0) {
			t.Errorf("minute %d: %d attempts, %v", minute, asked, err)
		}
		if got := len(w.intents(models.OutboxPending)); got != open {
			t.Fatalf("minute %d: %d intents are open, want %d", minute, got, open)
		}
		w.minutePasses()
	}
	if got := len(w.list()); got != stored {
		t.Errorf("%d objects, %d before the outage", got, stored)
	}
	w.covered()

	way.down.Store(false)
	w.ok(submit())
	minutes := 0
	for ; len(w.intents(models.OutboxPending)) > 0 && minutes <= 61; minutes++ { // no pause is longer than an hour
		_, err := cleaner.RunOnce(t.Context(), time.Minute)
		w.ok(err)
		w.minutePasses()
	}
	w.settled()
	if n := len(w.versions()); n != 2 || minutes > 61 {
		t.Errorf("%d versions; drained after %d minutes", n, minutes)
	}
	t.Logf("%d intents over an hour without the store, %d refused connections; drained %d minutes after its end", open, way.refused.Load(), minutes)
}

// abandon stores the objects of a submission that never landed.
func (w *world) abandon(store artifact.Store) {
	w.Helper()
	in := outbox.CleanupIntent{Tenant: w.submission.Tenant, ArtifactID: uuid.NewString(), CreatedBy: owner.ID}
	for kind, item := range map[artifact.Kind]*outbox.CleanupItem{artifact.Project: &in.Project, artifact.Bundle: &in.Bundle} {
		object := artifacttest.NewObject(kind, in.ArtifactID, []byte(in.ArtifactID))
		object.Tenant = artifact.Tenant(w.submission.Tenant)
		key, err := object.Key()
		w.ok(err)
		*item = outbox.CleanupItem{Kind: string(kind), ObjectKey: key, Digest: object.Digest}
		w.ok(store.Put(w.Context(), object))
	}
	w.ok(w.outbox.CreateCleanupIntent(w.Context(), in))
}

// minutePasses moves what the database holds back by a minute.
func (w *world) minutePasses() {
	w.Helper()
	w.ok(w.db.Read(w.Context()).Exec(`UPDATE edge_worker_outbox SET created_at = created_at - INTERVAL 1 MINUTE,
		next_attempt_at = next_attempt_at - INTERVAL 1 MINUTE WHERE operation = 'artifact_cleanup' AND status = 'pending'`).Error)
}
