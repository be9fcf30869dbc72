package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func (a *API) putCompany(c echo.Context) error {
	id, err := pathID(c, "company_id")
	if err != nil {
		return err
	}
	view := gen.Company{ID: id}
	err = object(c, map[string]any{"name": &view.Name})
	if err != nil {
		return err
	}
	err = a.p.Directory.PutCompany(c.Request().Context(), actor(c), id, view.Name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}

func (a *API) deleteCompany(c echo.Context) error {
	id, err := pathID(c, "company_id")
	if err != nil {
		return err
	}
	err = a.p.Directory.DeleteCompany(c.Request().Context(), actor(c), id)
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (a *API) putDepartment(c echo.Context) error {
	id, err := pathID(c, "department_id")
	if err != nil {
		return err
	}
	view := gen.Department{ID: id}
	err = object(c, map[string]any{"company_id": &view.CompanyID, "name": &view.Name})
	if err != nil {
		return err
	}
	if !auth.ValidID(view.CompanyID) {
		return fault.Refuse(fault.Problem{Type: "id_invalid", Loc: []any{"body", "company_id"}, Msg: "an id has 1 to 64 letters, digits, '_' or '-'"})
	}
	of := models.Tenant{CompanyID: view.CompanyID, DepartmentID: id}
	err = a.p.Directory.PutDepartment(c.Request().Context(), actor(c), of, view.Name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, view)
}

func (a *API) deleteDepartment(c echo.Context) error {
	id, err := pathID(c, "department_id")
	if err != nil {
		return err
	}
	err = a.p.Directory.DeleteDepartment(c.Request().Context(), actor(c), id)
	if err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
