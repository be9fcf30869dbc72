package scriptapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// metadata is the metadata part: always the full desired state (S2-157 to
// S2-163).
type metadata struct {
	MainModule         string                     `json:"main_module"`
	CompatibilityDate  string                     `json:"compatibility_date"`
	CompatibilityFlags []string                   `json:"compatibility_flags"`
	Bindings           []provider.Binding         `json:"bindings"`
	Exports            map[string]provider.Export `json:"exports"`
	Tags               []string                   `json:"tags"`
}

// Ack is what an acknowledged upload tells. It is no settlement (S2-164).
type Ack struct {
	ID   string `json:"id"`
	ETag string `json:"etag"`
}

// ErrRelease says that a release was not complete; nothing was sent.
var ErrRelease = errors.New("release is not complete")

// Put uploads the release (S2-156). Errors are *Failure, or ErrRelease.
func (c *Client) Put(ctx context.Context, release provider.Release) (Ack, error) {
	if len(release.Bundle) == 0 || release.CompatibilityDate == "" || canonical.SHA256(release.Bundle) != release.BundleDigest {
		return Ack{}, ErrRelease
	}
	contentType, body, err := encodeUpload(release)
	if err != nil {
		return Ack{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.scripts+url.PathEscape(release.ScriptName), io.NopCloser(body))
	if err != nil {
		return Ack{}, fmt.Errorf("%w: %w", ErrRelease, err)
	}
	req.ContentLength = int64(body.Len())
	req.Header.Set("Content-Type", contentType)
	got, err := c.call(ctx, c.p.UploadTimeout, req)
	if err != nil {
		return Ack{}, err
	}
	var ack Ack
	if err := result(got, &ack); err != nil {
		return Ack{}, err
	}
	if ack.ID == "" && ack.ETag == "" {
		return Ack{}, got.malformed(errors.New("the result has neither id nor etag"))
	}
	return ack, nil
}

func encodeUpload(release provider.Release) (string, *bytes.Buffer, error) {
	tag, err := release.Tag()
	if err != nil {
		return "", nil, err
	}
	raw, err := json.Marshal(metadata{
		MainModule: provider.MainModule, CompatibilityDate: release.CompatibilityDate, CompatibilityFlags: []string{},
		Bindings: provider.Bindings(), Exports: provider.Exports(), Tags: []string{tag},
	})
	if err != nil {
		return "", nil, fmt.Errorf("encode metadata: %w", err)
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	err = errors.Join(
		writePart(w, `form-data; name="metadata"`, "application/json", raw),
		writePart(w, fmt.Sprintf(`form-data; name=%q; filename=%q`, provider.MainModule, provider.MainModule), "application/javascript+module", release.Bundle),
		w.Close(),
	)
	if err != nil {
		return "", nil, fmt.Errorf("encode upload: %w", err)
	}
	return w.FormDataContentType(), &body, nil
}

func writePart(w *multipart.Writer, disposition, contentType string, data []byte) error {
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}, "Content-Type": {contentType}})
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	return err
}
