package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// AuditQuery chooses facts. Its zero fields choose nothing; Limit 0 leaves the
// page's size to the API.
type AuditQuery struct {
	Company          bool // those of all of the company's departments
	Action, Resource string
	Since, Until     string // RFC 3339
	Cursor           string
	Limit            int
}

// Audit gives one page of audit facts, newest first.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (gen.AuditPage, error) {
	query := url.Values{}
	for name, value := range map[string]string{"action": q.Action, "resource": q.Resource, "since": q.Since, "until": q.Until, "cursor": q.Cursor} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	of := "worker"
	if q.Company {
		of = "company"
	}
	return fetch[gen.AuditPage](ctx, c, call{method: http.MethodGet, path: []string{of, "audit"}, query: query, repeatable: true})
}
