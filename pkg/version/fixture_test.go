package version_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/pkg/version"
	"github.com/teamsync/edge-workers/test/plane"
)

func each(t *testing.T, run func(t *testing.T, p *plane.Plane)) {
	t.Helper()
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, plane.New(t, db)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var errLost = errors.New("connection reset")

// submission is an upload of the plane's tenant.
func submission(t *testing.T, p *plane.Plane, text string) version.Submission {
	t.Helper()
	return version.Submission{Tenant: p.Tenant, Actor: p.Actor, Archive: bytes.NewReader(projecttest.Archive(t, plane.Project(text)))}
}

// over returns a submitter whose store is the backend.
func over(t *testing.T, p *plane.Plane, backend artifact.Backend) *version.Submitter {
	t.Helper()
	return p.SubmitterOn(artifact.NewFenced(backend))
}

// hooked is a backend that asks before and tells after each PUT.
type hooked struct {
	artifact.Backend
	mu     sync.Mutex
	before func(n int, key string) error
	after  func(n int, key string) error
	puts   []string
	gets   []string
}

func (h *hooked) Put(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.puts = append(h.puts, key)
	if h.before != nil {
		err := h.before(len(h.puts), key)
		if err != nil {
			return err
		}
	}
	err := h.Backend.Put(context.WithoutCancel(ctx), key, content, attributes)
	if err == nil && h.after != nil {
		err = h.after(len(h.puts), key)
	}
	return err
}

func (h *hooked) Get(ctx context.Context, key string) (artifact.Info, io.ReadCloser, error) {
	h.mu.Lock()
	h.gets = append(h.gets, key)
	h.mu.Unlock()
	return h.Backend.Get(ctx, key)
}

// intents lists the tenant's cleanup intents.
func intents(t *testing.T, p *plane.Plane) []models.Outbox {
	t.Helper()
	var rows []models.Outbox
	must(t, p.Tenant.Own(p.DB.Read(context.WithoutCancel(t.Context()))).Where("operation = 'artifact_cleanup'").Order("created_at, id").Find(&rows).Error)
	return rows
}

// versions lists the tenant's versions.
func versions(t *testing.T, p *plane.Plane) []models.Version {
	t.Helper()
	var rows []models.Version
	must(t, p.Tenant.Own(p.DB.Read(context.WithoutCancel(t.Context()))).Order("revision").Find(&rows).Error)
	return rows
}

// stored reads an object past the fence; nil when there is none.
func stored(t *testing.T, p *plane.Plane, key string) []byte {
	t.Helper()
	_, body, err := p.Backend.Get(context.WithoutCancel(t.Context()), key)
	if errors.Is(err, artifact.ErrNotFound) {
		return nil
	}
	must(t, err)
	defer func() { _ = body.Close() }()
	content, err := io.ReadAll(body)
	must(t, err)
	return content
}
