package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// Worker gives the department's Worker.
func (c *Client) Worker(ctx context.Context) (gen.Worker, error) {
	return fetch[gen.Worker](ctx, c, call{method: http.MethodGet, path: []string{"worker"}, repeatable: true})
}

// SubmitVersion submits an archive. It is sent once: after an *Unreachable
// without NotSent it is unknown whether there is a new version. progress, which
// may be nil, is told while npm packages are brought.
func (c *Client) SubmitVersion(ctx context.Context, archive []byte, progress Progress) (gen.Version, error) {
	return fetch[gen.Version](ctx, c, call{
		method: http.MethodPost, path: []string{"worker", "versions"}, contentType: "application/gzip", body: archive,
		timeout: submitTimeout, progress: progress,
	})
}

// Versions gives one page of versions, newest first. An empty cursor is the
// first page; limit 0 leaves the page's size to the API.
func (c *Client) Versions(ctx context.Context, cursor string, limit int) (gen.VersionPage, error) {
	query := url.Values{}
	if cursor != "" {
		query.Set("cursor", cursor)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	return fetch[gen.VersionPage](ctx, c, call{method: http.MethodGet, path: []string{"worker", "versions"}, query: query, repeatable: true})
}

// Version gives one version.
func (c *Client) Version(ctx context.Context, id string) (gen.Version, error) {
	return fetch[gen.Version](ctx, c, call{method: http.MethodGet, path: []string{"worker", "versions", segment(id)}, repeatable: true})
}

// Source gives the archive of a version as it was submitted, at most 2 MiB.
func (c *Client) Source(ctx context.Context, id string) ([]byte, error) {
	return c.do(ctx, call{method: http.MethodGet, path: []string{"worker", "versions", segment(id), "source"}, repeatable: true, max: maxSource})
}

// Deploy asks for the deployment of a version. The same arguments always give
// the same ticket, so a lost answer is asked for again.
func (c *Client) Deploy(ctx context.Context, versionID string, baseRevision int64) (gen.Ticket, error) {
	return c.DeployWith(ctx, versionID, baseRevision, nil)
}

// DeployWith is Deploy with the operation settings that the version goes live
// with; nil is none.
func (c *Client) DeployWith(ctx context.Context, versionID string, baseRevision int64, settings gen.OperationSettingsRequest) (gen.Ticket, error) {
	request := gen.DeploymentRequest{VersionID: versionID, BaseRevision: baseRevision}
	if settings != nil {
		request.OperationSettings = &settings
	}
	body, err := json.Marshal(request)
	if err != nil {
		return gen.Ticket{}, fmt.Errorf("encode the deployment: %w", err)
	}
	return fetch[gen.Ticket](ctx, c, call{
		method: http.MethodPost, path: []string{"worker", "deployments"}, contentType: "application/json", body: body, repeatable: true,
		timeout: changeTimeout,
	})
}

// Deployment gives a ticket.
func (c *Client) Deployment(ctx context.Context, ticketID string) (gen.Ticket, error) {
	return fetch[gen.Ticket](ctx, c, call{method: http.MethodGet, path: []string{"worker", "deployments", segment(ticketID)}, repeatable: true})
}

// Invoke calls an operation with JSON input and gives its JSON output. It is
// sent once.
func (c *Client) Invoke(ctx context.Context, operationID string, input []byte) ([]byte, error) {
	return c.do(ctx, call{
		method: http.MethodPost, path: []string{"worker", "invoke", segment(operationID)}, contentType: "application/json", body: input,
	})
}

// segment escapes an id as one segment of a path. Dots alone would be taken
// for a folder's name and change the path.
func segment(id string) string {
	if strings.Trim(id, ".") == "" {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}
