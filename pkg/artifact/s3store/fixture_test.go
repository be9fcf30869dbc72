package s3store

import (
	"bytes"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

const (
	keyID  = "KEY-ID-OF-THE-TEST"
	secret = "secret/of+the/test"
)

// cloud is what R2 is like, onPrem what an internal service over http is like.
var (
	cloud  = artifacttest.S3Params{Bucket: "edge-artifacts", Region: "auto", AccessKeyID: keyID, SecretAccessKey: secret, R2: true}
	onPrem = artifacttest.S3Params{Bucket: "edge-artifacts", Region: "us-east-1", AccessKeyID: keyID, SecretAccessKey: secret, Plain: true}
)

func optionsFor(s *artifacttest.S3Server) Options {
	return Options{
		Endpoint: s.URL(), Bucket: s.Bucket, Region: s.Region, PathStyle: true,
		Credentials: NewCredentials(s.AccessKeyID, s.SecretAccessKey), Network: &Network{RootCAs: s.RootCAs()},
	}
}

// hasty are the production limits with hardly a pause before a retry.
func hasty() limits {
	l := production
	l.backoff = time.Millisecond
	return l
}

// openOn opens a store with a client of its own.
func openOn(t testing.TB, o Options, l limits) *Store {
	t.Helper()
	clients := newCache(maxClients, func(o Options) *client { return newClient(o, l) })
	s, err := open(o, clients, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clients.get(o).transport.CloseIdleConnections() })
	return s
}

// newStore starts a service and opens a store on it.
func newStore(t testing.TB, p artifacttest.S3Params) (*Store, *artifacttest.S3Server) {
	t.Helper()
	server := artifacttest.StartS3(t, p)
	return openOn(t, optionsFor(server), hasty()), server
}

// sample is one object with all that goes with it.
type sample struct {
	artifact.Object
	key        string
	attributes artifact.Attributes
}

func newSample(t testing.TB, kind artifact.Kind, content []byte) sample {
	t.Helper()
	object := artifacttest.NewObject(kind, "artifact-1", content)
	key, err := object.Key()
	if err != nil {
		t.Fatal(err)
	}
	return sample{object, key, artifact.Attributes{
		ContentType: kind.ContentType(), Metadata: map[string]string{artifact.MetadataDigest: object.Digest},
	}}
}

func (s sample) put(t testing.TB, store *Store) error {
	t.Helper()
	return store.Put(t.Context(), s.key, s.Content, s.attributes)
}

// stored is the sample as the service would hold it.
func (s sample) stored() artifacttest.S3Object {
	return artifacttest.S3Object{Content: s.Content, ContentType: s.attributes.ContentType, Metadata: s.attributes.Metadata}
}

// read reads the sample through the fence.
func (s sample) read(t testing.TB, store *Store) ([]byte, error) {
	t.Helper()
	return artifact.NewFenced(store).Get(t.Context(), s.Tenant, s.Kind, s.key, 0)
}

// wantStored fails unless the service holds exactly this sample.
func (s sample) wantStored(t testing.TB, server interface {
	Objects() map[string]artifacttest.S3Object
}) {
	t.Helper()
	objects := server.Objects()
	if len(objects) != 1 || !bytes.Equal(objects[s.key].Content, s.Content) {
		t.Errorf("the service holds %d objects, the sample is whole: %v", len(objects), bytes.Equal(objects[s.key].Content, s.Content))
	}
}
