package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/faults/control"
	"github.com/teamsync/edge-workers/test/faults/failpoint"
	"github.com/teamsync/edge-workers/test/faults/wire"
	"github.com/teamsync/edge-workers/transports"
)

// outside speaks HTTP with the matrix's server: it is the transport, the
// release's control channel, and the way to report a hit.
type outside struct{ origin string }

const callTimeout = 10 * time.Second

var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (o outside) call(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, o.origin+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.GetBody = nil // one attempt
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: status %d", method, path, response.StatusCode)
	}
	return nil
}

// Stage stages nothing: no Worker of the matrix has operation settings.
func (o outside) Stage(context.Context, live.By, models.Worker, models.Version, *settings.TableRequest) error {
	return nil
}

func (o outside) hit(value string) error {
	return o.call(context.Background(), http.MethodPost, control.HitPath, []byte(value))
}

// freeze tells the number of the connection that stands still, and stops.
func (o outside) freeze(thread uint32) error {
	err := o.call(context.Background(), http.MethodPost, control.FrozenPath, []byte(strconv.FormatUint(uint64(thread), 10)))
	if err != nil {
		return err
	}
	return failpoint.Stop()
}

// Publish implements transports.Publisher.
func (o outside) Publish(ctx context.Context, message transports.Message) error {
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return o.call(ctx, http.MethodPost, control.PublishPath, raw)
}

// Probe implements deploy.Prober.
func (o outside) Probe(ctx context.Context, script, generation string) error {
	return o.call(ctx, http.MethodGet, control.ProbePath+script+"/"+generation, nil)
}

// PurgeSecrets implements deploy.Purger; the story has no legacy release.
func (outside) PurgeSecrets(context.Context, deploy.Purge) error {
	return errors.New("no release of the story has secrets")
}

// store is the artifact store's folder with one call that fails before or
// after it was done.
type store struct {
	*artifact.Directory
	mu    sync.Mutex
	armed string
}

var errStore = errors.New("artifact store cut off by the fault matrix")

func (s *store) arm(how string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = how
	return nil
}

func (s *store) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := s.armed
	s.armed = ""
	return how
}

// Put implements artifact.Backend.
func (s *store) Put(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	how := s.take()
	if how == wire.CutBefore {
		return errStore
	}
	err := s.Directory.Put(ctx, key, content, attributes)
	if how == wire.CutAfter {
		return errors.Join(errStore, err)
	}
	return err
}

// Get implements artifact.Backend.
func (s *store) Get(ctx context.Context, key string) (artifact.Info, io.ReadCloser, error) {
	how := s.take()
	if how == wire.CutBefore {
		return artifact.Info{}, nil, errStore
	}
	info, body, err := s.Directory.Get(ctx, key)
	if how != wire.CutAfter || err != nil {
		return info, body, err
	}
	return artifact.Info{}, nil, errors.Join(errStore, body.Close())
}

// Delete implements artifact.Backend.
func (s *store) Delete(ctx context.Context, key string) error {
	how := s.take()
	if how == wire.CutBefore {
		return errStore
	}
	err := s.Directory.Delete(ctx, key)
	if how == wire.CutAfter {
		return errors.Join(errStore, err)
	}
	return err
}
