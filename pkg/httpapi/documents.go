package httpapi

import (
	_ "embed" // for the page
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/project"
)

//go:embed docs.html
var docsPage []byte

func (a *API) getManifestSchema(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/schema+json", project.ManifestSchema())
}

func (a *API) getDocument(c echo.Context) error {
	return c.Blob(http.StatusOK, echo.MIMEApplicationJSON, gen.Document())
}

// getDocumentPage serves a page that renders /openapi.json with nothing but
// its own script: no outside host is asked for anything.
func (a *API) getDocumentPage(c echo.Context) error {
	c.Response().Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'")
	return c.HTMLBlob(http.StatusOK, docsPage)
}
