package scriptapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// Host makes one call without a body to a path that only the edge host has and
// decodes the result. The error is a *Failure.
func (c *Client) Host(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.p.Origin, "/")+"/edge-host/v1/"+path, nil)
	if err != nil {
		return fmt.Errorf("edge host request: %w", err)
	}
	got, err := c.call(ctx, c.p.ReadTimeout, req)
	if err != nil {
		return err
	}
	return result(got, into)
}
