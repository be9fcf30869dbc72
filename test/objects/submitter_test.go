package objects

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/faults/sample"
)

// submitterVariable makes the test binary a process that submits projects
// until it is killed. It holds its submission as JSON.
const submitterVariable = "EDGE_OBJECTS_SUBMITTER"

// namespace is the dispatch namespace of the tests' environment.
const namespace = "objects-test"

// submission is what such a process works on.
type submission struct {
	DSN    string
	Store  place
	Tenant models.Tenant
}

// place is a bucket and the keys to it.
type place struct{ Endpoint, Bucket, Key, Secret string }

func (p place) open(network *s3store.Network) (artifact.Store, error) {
	backend, err := s3store.Open(s3store.Options{
		Endpoint: p.Endpoint, Bucket: p.Bucket, Region: region, PathStyle: true, Credentials: s3store.NewCredentials(p.Key, p.Secret), Network: network,
	})
	if err != nil {
		return nil, err
	}
	return artifact.NewFenced(backend), nil
}

func TestMain(m *testing.M) {
	text := os.Getenv(submitterVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var s submission
	err := json.Unmarshal([]byte(text), &s)
	if err == nil {
		err = s.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, "submitter:", err)
	os.Exit(1)
}

// run submits one project after the other. After the second it says how long
// that one took. It never ends well: whoever started it kills it.
func (s submission) run(ctx context.Context) error {
	submitter, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	for n := 0; err == nil; n++ {
		began := time.Now()
		var archive []byte
		archive, err = sample.Archive(fmt.Sprintf("%d of %d", n, os.Getpid()))
		if err != nil {
			return err
		}
		_, err = submitter.Submit(ctx, version.Submission{Tenant: s.Tenant, Actor: owner, Archive: bytes.NewReader(archive)})
		if errors.Is(err, outbox.ErrNotAdoptable) { // a sweep was faster: the test takes the grace away
			err = nil
		}
		if n == 1 && err == nil {
			_, err = fmt.Println(time.Since(began).Microseconds())
		}
	}
	return err
}

var owner = audit.Actor{Type: "user", ID: "user:owner", Method: "bearer_jwt"}

func (s submission) open(ctx context.Context, network *s3store.Network) (*version.Submitter, error) {
	db, err := database.Open(ctx, database.Params{URL: s.DSN})
	if err != nil {
		return nil, err
	}
	store, err := s.Store.open(network)
	if err != nil {
		return nil, err
	}
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	build, err := builder.New(builder.Params{PublicKeys: []ed25519.PublicKey{public}})
	if err != nil {
		return nil, err
	}
	return version.NewSubmitter(version.Params{
		DB: db, Outbox: outbox.New(db, outbox.CloudScope(namespace)), Builder: build, Store: store,
		Provider: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
}
