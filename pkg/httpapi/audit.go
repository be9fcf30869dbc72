package httpapi

import (
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func (a *API) listAudit(c echo.Context) error {
	filter, limit, err := auditQuery(c)
	if err != nil {
		return err
	}
	page, err := audit.List(c.Request().Context(), a.p.DB, tenant(c), filter, c.QueryParam("cursor"), limit)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, auditView(page))
}

func (a *API) listCompanyAudit(c echo.Context) error {
	filter, limit, err := auditQuery(c)
	if err != nil {
		return err
	}
	page, err := audit.ListCompany(c.Request().Context(), a.p.DB, principal(c).CompanyID, filter, c.QueryParam("cursor"), limit)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, auditView(page))
}

// auditQuery reads the filters of both lists.
func auditQuery(c echo.Context) (audit.Filter, int, error) {
	limit, err := pageLimit(c, audit.MaxPage)
	if err != nil {
		return audit.Filter{}, 0, err
	}
	var problems []fault.Problem
	f := audit.Filter{Action: c.QueryParam("action"), ResourceID: c.QueryParam("resource")}
	for _, p := range []struct{ name, value string }{{"action", f.Action}, {"resource", f.ResourceID}} {
		if len(p.value) > 128 || !utf8.ValidString(p.value) {
			problems = append(problems, fault.Problem{Type: "filter_invalid", Loc: []any{"query", p.name}, Msg: p.name + " must have at most 128 characters"})
		}
	}
	for _, p := range []struct {
		name string
		into *time.Time
	}{{"since", &f.Since}, {"until", &f.Until}} {
		text := c.QueryParam(p.name)
		if text == "" {
			continue
		}
		*p.into, err = time.Parse(time.RFC3339, text)
		if err != nil || p.into.Year() < 1970 || p.into.Year() > 9998 {
			problems = append(problems, fault.Problem{Type: "time_invalid", Loc: []any{"query", p.name}, Msg: p.name + " must be an RFC 3339 time"})
		}
	}
	if len(problems) > 0 {
		return audit.Filter{}, 0, fault.Refuse(problems...)
	}
	return f, limit, nil
}

func auditView(page audit.Page) gen.AuditPage {
	out := gen.AuditPage{Items: []gen.AuditFact{}, NextCursor: orNull(page.Next)}
	for _, f := range page.Items {
		out.Items = append(out.Items, gen.AuditFact{
			ID: f.ID, DepartmentID: orNull(f.DepartmentID), ActorType: f.ActorType, ActorID: f.ActorID, AuthMethod: f.AuthMethod, Action: f.Action,
			ResourceType: f.ResourceType, ResourceID: f.ResourceID, Result: f.Result, ReasonCode: orNull(f.ReasonCode),
			Digest: orNull(f.Digest), RequestID: orNull(f.RequestID), CreatedAt: f.CreatedAt,
		})
	}
	return out
}
