package httpapi

import (
	"encoding/base64"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/maintenance"
)

// needKeeper refuses the routes of the gates where there is no edge host.
func (a *API) needKeeper(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if a.p.Maintenance == nil {
			return maintenance.ErrNotSupported
		}
		return next(c)
	}
}

func (a *API) getMaintenance(c echo.Context) error {
	return answerMaintenance(c, true)(a.p.Maintenance.Status(c.Request().Context()))
}

func (a *API) beginFence(c echo.Context) error {
	status, confirmed, err := a.p.Maintenance.BeginFence(c.Request().Context(), actor(c))
	return answerMaintenance(c, confirmed)(status, err)
}

func (a *API) endFence(c echo.Context) error {
	status, confirmed, err := a.p.Maintenance.EndFence(c.Request().Context(), actor(c))
	return answerMaintenance(c, confirmed)(status, err)
}

func (a *API) beginRestore(c echo.Context) error {
	return answerMaintenance(c, true)(a.p.Maintenance.BeginRestore(c.Request().Context(), actor(c)))
}

func (a *API) endRestore(c echo.Context) error {
	return answerMaintenance(c, true)(a.p.Maintenance.EndRestore(c.Request().Context(), actor(c)))
}

func (a *API) beginResync(c echo.Context) error {
	return answerMaintenance(c, true)(a.p.Maintenance.BeginResync(c.Request().Context(), actor(c)))
}

func (a *API) endResync(c echo.Context) error {
	return answerMaintenance(c, true)(a.p.Maintenance.EndResync(c.Request().Context(), actor(c)))
}

// answerMaintenance answers the state that stands now: 200, or 202 while the
// edge host has not confirmed it.
func answerMaintenance(c echo.Context, confirmed bool) func(maintenance.Status, error) error {
	return func(s maintenance.Status, err error) error {
		if err != nil {
			return err
		}
		status := http.StatusOK
		if !confirmed {
			status = http.StatusAccepted
		}
		return c.JSON(status, gen.Maintenance{
			Scope: s.Scope, Gate: gen.MaintenanceGate(s.Gate), ResyncActive: s.Resyncing, ResyncEpoch: s.ResyncEpoch,
			RestorePending: s.RestorePending, FenceID: orNull(s.FenceID), FenceEnding: s.FenceEnding,
		})
	}
}

func (a *API) listDifferences(c echo.Context) error {
	after, err := base64.RawURLEncoding.DecodeString(c.QueryParam("cursor"))
	if err != nil || (len(after) > 0 && !auth.ValidID(string(after))) {
		return fault.Refuse(fault.Problem{Type: "cursor_invalid", Loc: []any{"query", "cursor"}, Msg: "cursor is not one that this list has given"})
	}
	page, err := a.p.Maintenance.Differences(c.Request().Context(), string(after))
	if err != nil {
		return err
	}
	out := gen.MaintenanceDifferencePage{
		Items: []gen.MaintenanceDifference{}, Checked: page.Checked, NextCursor: orNull(base64.RawURLEncoding.EncodeToString([]byte(page.Next))),
	}
	for _, d := range page.Items {
		result := gen.Differs
		if d.Unreadable {
			result = gen.Unreadable
		}
		out.Items = append(out.Items, gen.MaintenanceDifference{
			CompanyID: d.Tenant.CompanyID, DepartmentID: d.Tenant.DepartmentID, WorkerID: d.WorkerID, ScriptName: d.ScriptName,
			VersionID: d.VersionID, Result: result, Detail: d.Detail,
		})
	}
	return c.JSON(http.StatusOK, out)
}
