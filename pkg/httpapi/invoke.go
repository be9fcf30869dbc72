package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
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
	in, err := a.p.Gateway.Direct(c.Request().Context(), of, c.Param("operation_id"), body, a.caller(c))
	if err != nil {
		return err
	}
	return a.send(c, in)
}

// callRouted is ANY /w/{script_name}/{operation path}, with a token, an API
// key, both or neither.
func (a *API) callRouted(c echo.Context) error {
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return err
	}
	path, err := operationPath(c)
	if err != nil {
		return err
	}
	in, methods, err := a.p.Gateway.Routed(c.Request().Context(), gateway.Call{
		ScriptName: c.Param("script_name"), Method: c.Request().Method, Path: path,
		Query: c.Request().URL.RawQuery, Header: c.Request().Header, Body: body, Caller: a.caller(c),
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

// send passes the Worker's answer on while it comes.
func (a *API) send(c echo.Context, in gateway.Invocation) error {
	answer, err := a.p.Gateway.Send(c.Request().Context(), in)
	var limited *gateway.LimitedError
	if errors.As(err, &limited) {
		seconds := int64((limited.Wait + time.Second - 1) / time.Second)
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.FormatInt(seconds, 10))
	}
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	header := c.Response().Header()
	if answer.Challenge != "" {
		header.Set(echo.HeaderWWWAuthenticate, answer.Challenge)
	}
	if answer.Status == http.StatusNoContent {
		return c.NoContent(answer.Status)
	}
	header.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	if answer.Length >= 0 {
		header.Set(echo.HeaderContentLength, strconv.FormatInt(answer.Length, 10))
	}
	c.Response().WriteHeader(answer.Status)
	err = relay(c.Response(), answer)
	if err != nil {
		a.p.Log.WarnContext(c.Request().Context(), "the answer of a Worker broke off", "error", err)
		panic(http.ErrAbortHandler) // else the client would take it for the whole answer
	}
	return nil
}

// relay copies the answer. What comes piece by piece is sent piece by piece.
func relay(out *echo.Response, answer gateway.Answer) error {
	var to io.Writer = out
	if answer.Length < 0 {
		to = flushing{out}
	}
	_, err := io.Copy(to, answer.Body)
	return err
}

// flushing sends what is written at once.
type flushing struct{ *echo.Response }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Response.Write(p)
	f.Flush()
	return n, err
}

// caller is who calls: a member of some company, or nobody, each with the key
// and the address that the call came with.
func (a *API) caller(c echo.Context) gateway.Caller {
	out := gateway.Caller{
		RequestID: RequestID(c.Request().Context()), APIKeySHA256: gateway.KeyDigest(c.Request().Header), ClientAddress: a.p.Edge.Address(c.Request()),
	}
	p, signedIn := auth.FromContext(c.Request().Context())
	if !signedIn {
		return out.Anonymous()
	}
	out.Kind, out.Subject, out.CompanyID, out.DepartmentID = "member", p.Subject, p.CompanyID, p.DepartmentID
	out.Roles = make([]string, 0, len(p.Roles))
	for _, r := range p.Roles {
		out.Roles = append(out.Roles, string(r))
	}
	return out
}
