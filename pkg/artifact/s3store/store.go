// Package s3store is the artifact backend on an S3-compatible service: R2 in
// the cloud and the kit's own service on-prem (S0-04, S0-14).
//
// Every call ends in bounded time, whatever the service does, and an object is
// never replaced: a write is conditional, and what it met is read back and
// compared instead of trusted.
package s3store

import (
	"context"
	"io"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/teamsync/edge-workers/pkg/artifact"
)

// Store is the backend on one bucket. Its errors are those of the port; all
// that is not definite is ErrUnavailable. No error has a credential in it.
type Store struct {
	api         *s3.Client
	bucket      string
	credentials Credentials
	limits      limits
}

var _ artifact.Backend = (*Store)(nil)

// Open gives the store of these options, on this process's client for them. It
// asks nobody: the error says that the options cannot be right.
func Open(o Options) (*Store, error) { return open(o, process, production) }

func open(o Options, clients *cache, l limits) (*Store, error) {
	err := o.check()
	if err != nil {
		return nil, err
	}
	return &Store{api: clients.get(o).api, bucket: o.Bucket, credentials: o.Credentials, limits: l}, nil
}

// Get implements artifact.Backend. A body that breaks off is resumed.
func (s *Store) Get(ctx context.Context, key string) (artifact.Info, io.ReadCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.call)
	info, body, err := s.get(ctx, key)
	if err != nil {
		cancel()
		return artifact.Info{}, nil, err
	}
	body.cancel = cancel
	return info, body, nil
}

func (s *Store) get(ctx context.Context, key string) (artifact.Info, *body, error) {
	err := ctx.Err()
	if err != nil {
		return artifact.Info{}, nil, err
	}
	out, err := s.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if missing(err) {
		return artifact.Info{}, nil, artifact.ErrNotFound
	}
	if err != nil {
		return artifact.Info{}, nil, s.failure("GetObject", err)
	}
	info := describe(out.ContentLength, out.ContentType, out.Metadata)
	return info, &body{
		store: s, ctx: ctx, key: key, open: out.Body, etag: aws.ToString(out.ETag),
		size: info.Size, resumes: s.limits.attempts - 1, cancel: func() {},
	}, nil
}

func describe(length *int64, contentType *string, metadata map[string]string) artifact.Info {
	info := artifact.Info{Size: -1, Attributes: artifact.Attributes{ContentType: aws.ToString(contentType), Metadata: maps.Clone(metadata)}}
	if length != nil {
		info.Size = *length
	}
	return info
}

// Stat implements artifact.Backend.
func (s *Store) Stat(ctx context.Context, key string) (artifact.Info, error) {
	err := ctx.Err()
	if err != nil {
		return artifact.Info{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.call)
	defer cancel()
	out, err := s.api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if missing(err) {
		// The answer has no body, and so does not tell a missing object from a
		// missing bucket.
		info, body, err := s.get(ctx, key)
		if err != nil {
			return artifact.Info{}, err
		}
		return info, body.Close()
	}
	if err != nil {
		return artifact.Info{}, s.failure("HeadObject", err)
	}
	return describe(out.ContentLength, out.ContentType, out.Metadata), nil
}

// Delete implements artifact.Backend.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.call)
	defer cancel()
	_, err = s.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: &key})
	if err == nil || missing(err) {
		return nil
	}
	return s.failure("DeleteObject", err)
}
