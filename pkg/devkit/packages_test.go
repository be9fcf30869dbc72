package devkit

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
)

// A project with an npm package is accepted; the package comes from the registry
// that was given, once, and stays in the data folder.
func TestPackages(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	x := npmtest.Make("x", "1.0.0", map[string]string{"index.js": "export default 'is-x'"})
	registry.Add(x)
	files := map[string]string{
		"worker.json": `{"schema_version":1,"name":"n","language":"javascript","entry":"index.js",` +
			`"compatibility_date":"2026-11-01","operations":[{"id":"a","method":"GET","path":"/"}]}`,
		"index.js": "import x from 'x';\nexport default { a: () => x };\n",
	}
	maps.Copy(files, npmtest.Project(x))
	archive := projecttest.Archive(t, files)
	data := t.TempDir()
	for range 2 { // and so after a restart
		p := params(data, io.Discard)
		p.NPMRegistry = registry.URL
		ready, stop := up(t, p)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, ready.APIURL+"/worker/versions", bytes.NewReader(archive))
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+ready.ManagerToken)
		request.Header.Set("Content-Type", "application/gzip")
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		body, err := io.ReadAll(response.Body)
		must(t, err)
		must(t, response.Body.Close())
		if response.StatusCode != http.StatusCreated {
			t.Errorf("%d %s", response.StatusCode, body)
		}
		must(t, stop())
	}
	kept, err := filepath.Glob(filepath.Join(data, "npm", "*", "*.tgz"))
	if err != nil || len(kept) != 1 || registry.Requests() != 1 {
		t.Errorf("%d requests, kept %q, %v", registry.Requests(), kept, err)
	}
}
