package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
)

func (a *API) getWorker(c echo.Context) error {
	worker, err := version.WorkerOf(a.p.DB.Read(c.Request().Context()), tenant(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, workerView(worker))
}

var errSubmissionType = fault.New(fault.UnsupportedType, "A submission is application/gzip, or multipart/form-data with the field project")

// submitTimeout is the time for a submission's answer: 90 s for packages, 30 s
// for the build, 180 s for the store.
const submitTimeout = 5 * time.Minute

func (a *API) submitVersion(c echo.Context) error {
	archive, err := submitted(c)
	if err != nil {
		return err
	}
	err = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(submitTimeout))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("extend the time for the answer: %w", err)
	}
	told := newProgress(c)
	made, err := a.p.Submitter.Submit(c.Request().Context(), version.Submission{
		Tenant: tenant(c), Actor: actor(c), Archive: archive, Progress: told.packages,
	})
	told.end()
	if err != nil {
		return err
	}
	view, err := versionView(made)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, view)
}

// submitted gives the archive's stream: the body itself, or the form's first
// part project.
func submitted(c echo.Context) (io.Reader, error) {
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	switch {
	case err != nil:
		return nil, errSubmissionType.Because(err)
	case media == "application/gzip":
		return c.Request().Body, nil
	case media != echo.MIMEMultipartForm:
		return nil, errSubmissionType
	}
	form, err := c.Request().MultipartReader()
	if err != nil {
		return nil, errSubmissionType.Because(err)
	}
	for {
		part, err := form.NextPart()
		var tooLarge *http.MaxBytesError
		switch {
		case errors.Is(err, io.EOF):
			return nil, fault.Refuse(fault.Problem{Type: "missing", Loc: []any{"body", "project"}, Msg: errRequired})
		case errors.As(err, &tooLarge):
			return nil, err
		case err != nil:
			return nil, fault.New(fault.Malformed, "The form could not be read").Because(err)
		case part.FormName() == "project":
			return sent{part}, nil
		}
	}
}

func (a *API) listVersions(c echo.Context) error {
	limit, err := pageLimit(c, version.MaxPage)
	if err != nil {
		return err
	}
	page, err := version.List(c.Request().Context(), a.p.DB, tenant(c), c.QueryParam("cursor"), limit)
	if err != nil {
		return err
	}
	out := gen.VersionPage{Items: []gen.Version{}, NextCursor: orNull(page.Next)}
	for _, v := range page.Items {
		view, err := versionView(v)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, view)
	}
	return c.JSON(http.StatusOK, out)
}

func (a *API) getVersion(c echo.Context) error {
	id, err := knownID(c.Param("version_id"), version.ErrNoVersion)
	if err != nil {
		return err
	}
	v, err := version.Of(a.p.DB.Read(c.Request().Context()), tenant(c), id)
	if err != nil {
		return err
	}
	view, err := versionView(v)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}

func (a *API) getVersionSource(c echo.Context) error {
	id, err := knownID(c.Param("version_id"), version.ErrNoVersion)
	if err != nil {
		return err
	}
	v, archive, err := version.Source(c.Request().Context(), a.p.DB, a.p.Store, tenant(c), id)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set(echo.HeaderContentDisposition, fmt.Sprintf(`attachment; filename="source-r%d.tar.gz"`, v.Revision))
	header.Set("Digest", "sha-256="+v.ProjectDigest)
	return c.Blob(http.StatusOK, "application/gzip", archive)
}

// createDeployment takes the object of PUT /worker/operation-settings with the
// version (S2-089, S2-090). A body without it has no settings digest (S2-084),
// so null stands for nothing and is refused.
func (a *API) createDeployment(c echo.Context) error {
	request := admission.Request{Tenant: tenant(c), Actor: actor(c)}
	var wanted json.RawMessage
	err := objectOr(c, map[string]any{"version_id": &request.VersionID, "base_revision": &request.BaseRevision},
		map[string]any{"operation_settings": &wanted})
	if err != nil {
		return err
	}
	if wanted != nil {
		read, err := settings.ReadRequest(wanted, "body", "operation_settings")
		if err != nil {
			return err
		}
		request.Settings = &read
	}
	view, err := a.p.Desk.Deploy(c.Request().Context(), request)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, view)
}

func (a *API) getDeployment(c echo.Context) error {
	id, err := knownID(c.Param("ticket_id"), ticket.ErrNotFound)
	if err != nil {
		return err
	}
	view, err := a.p.Mirror.View(c.Request().Context(), a.p.DB, tenant(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}
