package config

import (
	"strings"
	"testing"
)

func TestNPMSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ registry, folder, want string }{
		{"https://registry.npmjs.org", "", ""},
		{"http://npm.internal:4873/repository/npm/", "/var/cache/npm", ""},
		{"ftp://npm.internal", "", "EDGE_WORKERS_NPM_REGISTRY"},
		{"npm.internal", "", "EDGE_WORKERS_NPM_REGISTRY"},
		{"https://user:hunter2@npm.internal", "", "EDGE_WORKERS_NPM_REGISTRY"},
		{"https://npm.internal?x", "", "EDGE_WORKERS_NPM_REGISTRY"},
		{"https://", "", "EDGE_WORKERS_NPM_REGISTRY"},
		{"https://npm.internal", "cache", "EDGE_WORKERS_NPM_CACHE_DIR"},
	} {
		err := NPM{Registry: c.registry, CacheDir: c.folder}.check()
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
