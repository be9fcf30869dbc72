package s3store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/teamsync/edge-workers/pkg/artifact"
)

// Put implements artifact.Backend. The write is conditional on there being no
// object (S0-52) and carries exactly the given metadata (S0-42) and no tags
// (S0-43).
//
// A refused condition does not say whose object is there: it may be this very
// one, of an attempt whose answer was lost. So it is read back, as it is after
// every write that may have been carried out.
func (s *Store) Put(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	err := ctx.Err()
	if err != nil {
		return err
	}
	err = s.create(ctx, key, content, attributes)
	if err == nil {
		return nil
	}
	written := s.failure("PutObject", err)
	if !taken(err) && !unknown(err) {
		return written
	}
	same, err := s.holds(ctx, key, content, attributes)
	switch {
	case err != nil:
		return fmt.Errorf("%w; read back: %w", written, opaque{err})
	case !same:
		return artifact.ErrExists
	}
	return nil
}

func (s *Store) create(ctx context.Context, key string, content []byte, attributes artifact.Attributes) error {
	ctx, cancel := context.WithTimeout(ctx, s.limits.call)
	defer cancel()
	_, err := s.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, Body: bytes.NewReader(content), ContentLength: aws.Int64(int64(len(content))),
		ContentType: &attributes.ContentType, Metadata: attributes.Metadata, IfNoneMatch: aws.String("*"),
	})
	return err
}

// holds tells whether the object under the key is the given one. The recorded
// digest is compared too, but proves nothing by itself: whoever wrote another
// content may have written it.
func (s *Store) holds(ctx context.Context, key string, content []byte, attributes artifact.Attributes) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limits.settle)
	defer cancel()
	info, body, err := s.get(ctx, key)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }() // it was read, or is of no interest
	if (info.Size >= 0 && info.Size != int64(len(content))) ||
		info.ContentType != attributes.ContentType || !maps.Equal(info.Metadata, attributes.Metadata) {
		return false, nil
	}
	stored, err := io.ReadAll(io.LimitReader(body, int64(len(content))+1))
	if err != nil {
		return false, err
	}
	return bytes.Equal(stored, content), nil
}

// opaque hides the class of an error and keeps its text: an object that is not
// found after a write of unknown outcome may still appear.
type opaque struct{ error }

// Unwrap hides what is inside.
func (opaque) Unwrap() error { return nil }
