package scriptapi

import (
	"context"
	"strings"
)

// Namespace is what the cloud provider tells about a dispatch namespace. The
// edge host has no such call.
type Namespace struct {
	Name string `json:"namespace_name"`
	// Trusted is nil when the provider did not tell.
	Trusted *bool `json:"trusted_workers"`
}

// Namespace reads the client's own dispatch namespace in one attempt. The
// error is a *Failure, or wraps provider.ErrNotFound.
func (c *Client) Namespace(ctx context.Context) (Namespace, error) {
	var got Namespace
	err := c.read(ctx, strings.TrimSuffix(c.scripts, "/scripts/"), &got)
	return got, err
}
