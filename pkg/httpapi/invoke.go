package httpapi

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/version"
)

// needGateway answers 503 while the provider's settings are wrong (S2-022).
func (a *API) needGateway(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if a.p.Gateway == nil {
			return version.ErrProviderInvalid
		}
		return next(c)
	}
}

// callDirect is POST /worker/invoke/{operation_id} for members of a
// department.
func (a *API) callDirect(c echo.Context) error {
	of := tenant(c)
	if of.DepartmentID == "" {
		return version.ErrNoWorker
	}
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	if len(body) > 0 && !saysJSON(c) {
		return errNotJSON
	}
	in, err := a.p.Gateway.Direct(c.Request().Context(), of, c.Param("operation_id"), body, caller(c))
	if err != nil {
		return err
	}
	return a.send(c, in)
}

// callRouted is ANY /w/{script_name}/{operation path}.
func (a *API) callRouted(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	path, err := operationPath(c)
	if err != nil {
		return err
	}
	query, err := url.ParseQuery(c.Request().URL.RawQuery)
	if err != nil {
		return fault.Refuse(fault.Problem{Type: "query_invalid", Loc: []any{"query"}, Msg: "the query string cannot be read"})
	}
	in, methods, err := a.p.Gateway.Routed(c.Request().Context(), gateway.Call{
		ScriptName: c.Param("script_name"), Method: c.Request().Method, Path: path,
		Query: query, Header: c.Request().Header, Body: body, Caller: caller(c),
	})
	if len(methods) > 0 {
		c.Response().Header().Set(echo.HeaderAllow, strings.Join(methods, ", "))
		return echo.ErrMethodNotAllowed
	}
	if err != nil {
		return err
	}
	return a.send(c, in)
}

// operationPath is the path below the script name, unescaped once: the router
// matches the escaped form only where the two differ.
func operationPath(c echo.Context) (string, error) {
	path := c.Param("*")
	if c.Request().URL.RawPath == "" {
		return path, nil
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return "", fault.New(fault.NotFound, "Not Found")
	}
	return path, nil
}

func (a *API) send(c echo.Context, in gateway.Invocation) error {
	answer, err := a.p.Gateway.Send(c.Request().Context(), in)
	if err != nil {
		return err
	}
	if answer.Status == http.StatusNoContent {
		return c.NoContent(answer.Status)
	}
	return c.Blob(answer.Status, echo.MIMEApplicationJSON, answer.Body)
}

func caller(c echo.Context) gateway.Caller {
	p := principal(c)
	roles := make([]string, 0, len(p.Roles))
	for _, r := range p.Roles {
		roles = append(roles, string(r))
	}
	return gateway.Caller{
		Kind: "member", Subject: p.Subject, CompanyID: p.CompanyID, DepartmentID: p.DepartmentID,
		Roles: roles, RequestID: RequestID(c.Request().Context()),
	}
}
