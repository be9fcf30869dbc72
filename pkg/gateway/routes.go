package gateway

import (
	"slices"
	"strings"
	"sync"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/project"
	"github.com/teamsync/edge-workers/pkg/version"
)

// operation is one entry of a version's manifest, ready to be matched.
type operation struct {
	id, method string
	segments   []string
}

// routes are the operations of one version.
type routes []operation

// byID reports whether the version has the operation.
func (r routes) byID(id string) bool {
	return slices.ContainsFunc(r, func(o operation) bool { return o.id == id })
}

// match finds the operation of a method and path: its id and its path
// parameters. When only the method differs it gives the methods of the path.
func (r routes) match(method, path string) (string, map[string]string, []string) {
	var methods []string
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for _, o := range r {
		values, ok := o.fit(segments)
		if !ok {
			continue
		}
		if o.method == method {
			return o.id, values, nil
		}
		methods = append(methods, o.method)
	}
	return "", nil, methods
}

func (o operation) fit(segments []string) (map[string]string, bool) {
	if len(segments) != len(o.segments) {
		return nil, false
	}
	values := map[string]string{}
	for i, pattern := range o.segments {
		name, parameter := project.Parameter(pattern)
		switch {
		case parameter && segments[i] != "":
			values[name] = segments[i]
		case parameter || pattern != segments[i]:
			return nil, false
		}
	}
	return values, true
}

// routeCache keeps the routes of versions, which never change. Its bound is
// far above the versions that are live at once in one process's traffic; when
// it is full it starts anew.
type routeCache struct {
	mu   sync.Mutex
	held map[string]routes
}

const maxCachedVersions = 10_000

func (c *routeCache) get(versionID string) (routes, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.held[versionID]
	return known, ok
}

// add parses a version's manifest and keeps its routes.
func (c *routeCache) add(v models.Version) (routes, error) {
	parsed, err := parseRoutes(v)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil || len(c.held) >= maxCachedVersions {
		c.held = map[string]routes{}
	}
	c.held[v.ID] = parsed
	return parsed, nil
}

func parseRoutes(v models.Version) (routes, error) {
	manifest, err := version.Manifest(v)
	if err != nil {
		return nil, err
	}
	out := make(routes, 0, len(manifest.Operations))
	for _, o := range manifest.Operations {
		out = append(out, operation{id: o.ID, method: o.Method, segments: strings.Split(strings.Trim(o.Path, "/"), "/")})
	}
	return out, nil
}
