package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// body is the content of one object on its way. The SDK retries a request, but
// not the body that follows it; what breaks off is asked for again from where
// it broke, of the same object, as often as a call has attempts.
type body struct {
	store   *Store
	ctx     context.Context // with the deadline of the call; a reader has no other way to get it
	key     string
	open    io.ReadCloser
	etag    string
	size    int64 // declared, in bytes; -1 when not
	read    int64
	resumes int
	cancel  context.CancelFunc
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	for {
		n, err := b.open.Read(p)
		b.read += int64(n)
		if err == nil || n > 0 {
			return n, nil // what the error was is said again by the next read
		}
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		resumed := b.resume()
		if resumed != nil {
			broken := b.store.failure("GetObject", fmt.Errorf("the body broke off after %d bytes: %w", b.read, err))
			return 0, fmt.Errorf("%w; %w", broken, resumed)
		}
	}
}

// resume opens the rest of the object. Without its length or its tag the rest
// might be another object's.
func (b *body) resume() error {
	if b.resumes == 0 || b.size < 0 || b.etag == "" {
		return errors.New("it is not resumed")
	}
	b.resumes--
	_ = b.open.Close() // it is broken
	out, err := b.store.api.GetObject(b.ctx, &s3.GetObjectInput{
		Bucket: &b.store.bucket, Key: &b.key, IfMatch: &b.etag, Range: aws.String(fmt.Sprintf("bytes=%d-", b.read)),
	})
	if err != nil {
		return b.store.failure("GetObject", err)
	}
	b.open = out.Body
	if want := fmt.Sprintf("bytes %d-%d/%d", b.read, b.size-1, b.size); aws.ToString(out.ContentRange) != want {
		return errors.New("the service sent another range than the rest")
	}
	return nil
}

// Close implements io.Closer. It ends the exchange without reading what is left.
func (b *body) Close() error {
	defer b.cancel()
	return b.open.Close()
}
