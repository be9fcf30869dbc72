//go:build s3

package objects

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/setup"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t testing.TB) artifact.Backend {
		store, err := s3store.Open(NewBucket(t).Options())
		if err != nil {
			t.Fatal(err)
		}
		return store
	})
}

// S0-14, S0-32, S0-43, S0-52: a real service keeps what the store sent, under
// the key that was meant, without tags.
func TestRealObjects(t *testing.T) {
	t.Parallel()
	bucket := NewBucket(t)
	object := artifacttest.NewObject(artifact.Bundle, "artifact-1", []byte("content"))
	key, err := object.Key()
	if err == nil {
		err = bucket.Store(t).Put(t.Context(), object)
	}
	if err != nil {
		t.Fatal(err)
	}
	if keys := bucket.List(t); !slices.Equal(keys, []string{key}) {
		t.Errorf("keys %v", keys)
	}
	if tags := bucket.Tags(t, key); tags != "" {
		t.Errorf("tags %s", tags)
	}
}

// S0-14, S0-15, S0-17, S0-18: the settings of a process on-prem lead to the
// kit's service, which finds the requests rightly addressed and signed.
func TestSettingsLeadToTheService(t *testing.T) {
	t.Parallel()
	bucket := NewBucket(t)
	environment := bucket.Environment()
	for name, value := range map[string]string{
		"EDGE_WORKERS_PROVIDER": "onprem", "EDGE_WORKERS_DATABASE_URL": "sqlite:unused", "EDGE_WORKERS_REDIS_URL": "redis://unused",
		"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE": "unused", "EDGE_WORKERS_AUTH_LOCAL_KEY_FILE": "unused",
	} {
		environment[name] = value
	}
	settings, err := config.Load(environment, config.API)
	if err != nil {
		t.Fatal(err)
	}
	store, err := setup.OpenStore(settings, bucket.Network())
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []artifact.Kind{artifact.Project, artifact.Bundle} {
		object := artifacttest.NewObject(kind, "artifact-1", bytes.Repeat([]byte("x"), int(kind.MaxSize())))
		if err := store.Put(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		key, err := object.Key()
		if err != nil {
			t.Fatal(err)
		}
		got, err := store.Get(t.Context(), object.Tenant, kind, key, 0)
		if err != nil || !bytes.Equal(got, object.Content) || !slices.Equal(bucket.List(t), []string{key}) {
			t.Errorf("%s: %d bytes, %v; keys %v", kind, len(got), err, bucket.List(t))
		}
		if err := store.Delete(t.Context(), object.Tenant, kind, key); err != nil || len(bucket.List(t)) != 0 {
			t.Errorf("%s: delete: %v", kind, err)
		}
	}
}

// What a real service refuses is not taken for an answer about the object.
func TestRefusals(t *testing.T) {
	t.Parallel()
	object := artifacttest.NewObject(artifact.Project, "artifact-1", []byte("content"))
	key, err := object.Key()
	if err != nil {
		t.Fatal(err)
	}
	bucket := NewBucket(t)
	if err := bucket.Store(t).Put(t.Context(), object); err != nil {
		t.Fatal(err) // the control
	}
	for name, change := range map[string]func(*s3store.Options){
		"another bucket": func(o *s3store.Options) { o.Bucket += "-not-there" },
		"another secret": func(o *s3store.Options) { o.Credentials = s3store.NewCredentials(bucket.key, "another-secret") },
		"another key":    func(o *s3store.Options) { o.Credentials = s3store.NewCredentials("another-key", bucket.secret) },
	} {
		o := bucket.Options()
		change(&o)
		backend, err := s3store.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		store := artifact.NewFenced(backend)
		_, err = store.Get(t.Context(), object.Tenant, object.Kind, key, 0)
		for call, err := range map[string]error{"put": store.Put(t.Context(), object), "get": err, "delete": store.Delete(t.Context(), object.Tenant, object.Kind, key)} {
			if !errors.Is(err, artifact.ErrUnavailable) || errors.Is(err, artifact.ErrNotFound) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
	}
	got, err := bucket.Store(t).Get(t.Context(), object.Tenant, object.Kind, key, 0)
	if err != nil || !bytes.Equal(got, object.Content) {
		t.Errorf("afterwards %d bytes, %v", len(got), err)
	}
}
