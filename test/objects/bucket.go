// Package objects tests what is stored against a real S3 service: MinIO, which
// `make test-s3` builds and starts. Tests that need it have the build tag s3.
//
// NewBucket makes an empty bucket of a test's own. A whole system of setup runs
// on it with Environment and Network, and any part of one with Store. List says
// what is in the bucket, apart from the store under test.
package objects

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/uuid"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
)

// variable holds the service's address with a key pair that may make buckets:
// http://KEY:SECRET@HOST:PORT.
const variable = "EDGE_TEST_S3_URL"

// region is that of the on-prem service (S0-18).
const region = "us-east-1"

// callTimeout bounds what this package asks by itself.
const callTimeout = 30 * time.Second

// TB is the part of testing.TB that NewBucket needs; a program that runs what
// tests run has one of its own.
type TB interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
}

// Bucket is an empty bucket of one test.
type Bucket struct {
	Name     string
	Endpoint string
	key      string
	secret   string
	api      *s3.Client
}

// Available reports whether there is a service.
func Available() bool { return os.Getenv(variable) != "" }

// NewBucket makes a bucket. It ends the test where there is no service.
func NewBucket(t TB) *Bucket {
	t.Helper()
	address, err := url.Parse(os.Getenv(variable))
	if err != nil || address.User == nil {
		t.Fatalf("%s is not http://KEY:SECRET@HOST:PORT: run `make test-s3`", variable)
	}
	secret, _ := address.User.Password()
	b := &Bucket{
		Name: "edge-test-" + uuid.NewString(), Endpoint: address.Scheme + "://" + address.Host,
		key: address.User.Username(), secret: secret,
	}
	b.api = s3.New(s3.Options{
		BaseEndpoint: &b.Endpoint, Region: region, UsePathStyle: true,
		HTTPClient: &http.Client{Timeout: callTimeout},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: b.key, SecretAccessKey: b.secret}, nil
		}),
	})
	_, err = b.api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &b.Name})
	if err != nil {
		t.Fatalf("make a bucket: %v", err)
	}
	return b
}

// Options open a store on the bucket as the on-prem kit does.
func (b *Bucket) Options() s3store.Options {
	return s3store.Options{
		Endpoint: b.Endpoint, Bucket: b.Name, Region: region, PathStyle: true,
		Credentials: s3store.NewCredentials(b.key, b.secret),
	}
}

// Store opens the bucket as a process does.
func (b *Bucket) Store(t testing.TB) artifact.Store {
	t.Helper()
	backend, err := s3store.Open(b.Options())
	if err != nil {
		t.Fatal(err)
	}
	return artifact.NewFenced(backend)
}

// Environment are the variables of a process on-prem that keep its artifacts in
// this bucket, at the kit's fixed origin: Network leads there. A process of its
// own, which has no Network, must be built for another origin
// (pkg/config.artifactsOrigin) and given that as its endpoint.
func (b *Bucket) Environment() map[string]string {
	return map[string]string{
		"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL": "http://" + kit, "EDGE_WORKERS_ARTIFACTS_BUCKET": b.Name,
		"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID": b.key, "EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY": b.secret,
	}
}

// kit is where the on-prem kit has its artifact service.
const kit = "edge-workers-artifacts:9000"

// Network leads from the kit's address to the service, for
// setup.Params.Network. Nothing else can be reached.
func (b *Bucket) Network() *s3store.Network {
	return &s3store.Network{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != kit {
			return nil, fmt.Errorf("%s is not the artifact service", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(b.Endpoint, "http://"))
	}}
}

// List gives the keys of all objects in the bucket.
func (b *Bucket) List(t testing.TB) []string {
	t.Helper()
	var keys []string
	pages := s3.NewListObjectsV2Paginator(b.api, &s3.ListObjectsV2Input{Bucket: &b.Name})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatalf("list the bucket: %v", err)
		}
		for _, object := range page.Contents {
			keys = append(keys, aws.ToString(object.Key))
		}
	}
	return keys
}

// Tags gives the tags of an object, which no object may have (S0-43).
func (b *Bucket) Tags(t testing.TB, key string) string {
	t.Helper()
	out, err := b.api.GetObjectTagging(t.Context(), &s3.GetObjectTaggingInput{Bucket: &b.Name, Key: &key})
	if err != nil {
		t.Fatalf("read the tags: %v", err)
	}
	var tags []string
	for _, tag := range out.TagSet {
		tags = append(tags, fmt.Sprintf("%s=%s", aws.ToString(tag.Key), aws.ToString(tag.Value)))
	}
	return strings.Join(tags, ",")
}
