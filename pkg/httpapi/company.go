package httpapi

import (
	"encoding/base64"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/company"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// departmentOf is a department of the caller's own company; the company id
// comes from the token alone.
func departmentOf(c echo.Context) (models.Tenant, error) {
	id, err := pathID(c, "department_id")
	if err != nil {
		return models.Tenant{}, err
	}
	return models.Tenant{CompanyID: principal(c).CompanyID, DepartmentID: id}, nil
}

func (a *API) listDepartments(c echo.Context) error {
	limit, err := pageLimit(c, company.MaxPage)
	if err != nil {
		return err
	}
	after, err := base64.RawURLEncoding.DecodeString(c.QueryParam("cursor"))
	if err != nil || (len(after) > 0 && !auth.ValidID(string(after))) {
		return fault.Refuse(fault.Problem{Type: "cursor_invalid", Loc: []any{"query", "cursor"}, Msg: "cursor is not one that this list has given"})
	}
	page, err := company.List(c.Request().Context(), a.p.DB, principal(c).CompanyID, string(after), limit)
	if err != nil {
		return err
	}
	out := gen.CompanyDepartmentPage{Items: []gen.CompanyDepartment{}, NextCursor: orNull(base64.RawURLEncoding.EncodeToString([]byte(page.Next)))}
	for _, d := range page.Items {
		out.Items = append(out.Items, departmentView(d))
	}
	return c.JSON(http.StatusOK, out)
}

func (a *API) getDepartment(c echo.Context) error {
	of, err := departmentOf(c)
	if err != nil {
		return err
	}
	d, err := company.Of(c.Request().Context(), a.p.DB, of)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, departmentView(d))
}

func departmentView(d company.Department) gen.CompanyDepartment {
	view := gen.CompanyDepartment{ID: d.ID, Name: d.Name, DeletedAt: d.DeletedAt}
	if d.Worker != nil {
		worker := workerView(*d.Worker)
		view.Worker = &worker
	}
	if d.Latest != nil {
		view.LatestDeployment = &gen.LatestDeployment{
			TicketID: d.Latest.TicketID, Status: gen.TicketStatus(d.Latest.Status), VersionID: d.Latest.VersionID,
			ErrorCode: orNull(d.Latest.LastErrorCode), AdmissionSequence: d.Latest.AdmissionSequence, CreatedAt: d.Latest.CreatedAt,
		}
	}
	return view
}

// repairDepartment takes exactly the three markers of S2-250.
func (a *API) repairDepartment(c echo.Context) error {
	of, err := departmentOf(c)
	if err != nil {
		return err
	}
	request := admission.RepairRequest{Tenant: of, Actor: actor(c)}
	var action string
	err = object(c, map[string]any{
		"action": &action, "ticket_id": &request.TicketID, "observed_worker_revision": &request.ObservedRevision,
	})
	if err != nil {
		return err
	}
	if action != admission.RepairAction {
		return fault.Refuse(fault.Problem{Type: "enum", Loc: []any{"body", "action"}, Msg: fmt.Sprintf("action must be %s", admission.RepairAction)})
	}
	_, err = company.Of(c.Request().Context(), a.p.DB, of)
	if err != nil {
		return err
	}
	view, err := a.p.Desk.Repair(c.Request().Context(), request)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusAccepted, view)
}
