package scriptapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// Exists reads whether the script is there, in one attempt. Only the code of an
// absent script says that it is not; any other failure is an error.
func (c *Client) Exists(ctx context.Context, script string) (bool, error) {
	var got details
	err := c.get(ctx, url.PathEscape(script), &got)
	if errors.Is(err, provider.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if got.Script == nil {
		return false, errors.New("script API: the answer tells of no script")
	}
	return true, nil
}

// Delete deletes the script and its stored data in one attempt. A script that is
// not there is no error. Success says only that the provider acknowledged:
// Exists shows what became of it.
func (c *Client) Delete(ctx context.Context, script string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.scripts+url.PathEscape(script)+"?force=true", nil)
	if err != nil {
		return fmt.Errorf("script API request: %w", err)
	}
	got, err := c.call(ctx, c.p.UploadTimeout, req)
	if failure, ok := errors.AsType[*Failure](err); ok && failure.Status == http.StatusNotFound && slices.ContainsFunc(codesAbsent, failure.Has) {
		return nil
	}
	if err != nil || len(got.raw) == 0 { // the cloud provider answers without a body
		return err
	}
	answer, err := parseEnvelope(got.raw)
	if err == nil && (!*answer.Success || len(answer.Errors) > 0) {
		err = errors.New("the answer says that the call failed")
	}
	if err != nil {
		return got.malformed(err)
	}
	return nil
}
