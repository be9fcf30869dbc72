package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder/npm/npmtest"
	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/database/databasetest"
	"github.com/teamsync/edge-workers/pkg/project/projecttest"
	"github.com/teamsync/edge-workers/test/plane"
)

// A client that asks for it is told how many packages are there, in interim
// answers with the request's id and without an effect on the last answer. A
// client that does not ask gets the one answer alone.
func TestSubmissionTellsItsProgress(t *testing.T) {
	t.Parallel()
	registry := npmtest.New(t)
	x := npmtest.Make("x", "1.0.0", map[string]string{"index.js": "export default 1"})
	registry.Add(x)
	a := newAPI(t, databasetest.SQLite(t), nil).buildingFrom(registry.URL, 0)
	server := httptest.NewServer(a.echo)
	t.Cleanup(server.Close)
	project := plane.Project("one")
	maps.Copy(project, npmtest.Project(x))
	project["src/index.js"] = "import x from 'x';\nexport default { 'echo.say': () => ({ said: x }) };\n"
	archive := projecttest.Archive(t, project)

	api, err := client.New(client.Params{BaseURL: server.URL, Token: a.manager()})
	a.must(err)
	var told []string
	made, err := api.SubmitVersion(t.Context(), archive, func(done, total int) { told = append(told, fmt.Sprintf("%d/%d", done, total)) })
	if err != nil || made.Revision != 1 || !slices.Equal(told, []string{"1/1"}) {
		t.Errorf("revision %d, told %v, %v", made.Revision, told, err)
	}
	told = nil
	_, err = api.SubmitVersion(t.Context(), projecttest.Archive(t, plane.Project("none")), func(done, total int) { told = append(told, fmt.Sprintf("%d/%d", done, total)) })
	if err != nil || len(told) != 0 {
		t.Errorf("without packages: told %v, %v", told, err)
	}

	for asked, want := range map[string]int{"interim": 1, "": 0, "yes": 0} {
		var interim []textproto.MIMEHeader
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			if code != http.StatusProcessing || header.Get("X-Edge-Workers-Progress") != "packages;done=1;total=1" || header.Get("X-Request-Id") == "" {
				t.Errorf("%d %v", code, header)
			}
			interim = append(interim, header)
			return nil
		}})
		code, header := a.post(ctx, server.URL+"/worker/versions", archive, asked)
		if len(interim) != want || code != http.StatusCreated || header.Get("X-Edge-Workers-Progress") != "" {
			t.Errorf("asked %q: %d interim answers, then %d %v", asked, len(interim), code, header)
		}
	}
}

func (a *api) post(ctx context.Context, url string, archive []byte, progress string) (int, http.Header) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(archive))
	a.must(err)
	request.Header.Set("Content-Type", "application/gzip")
	request.Header.Set("Authorization", "Bearer "+a.manager())
	if progress != "" {
		request.Header.Set("X-Edge-Workers-Progress", progress)
	}
	response, err := http.DefaultClient.Do(request)
	a.must(err)
	a.must(response.Body.Close())
	return response.StatusCode, response.Header
}
