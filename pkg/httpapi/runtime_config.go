package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/settings"
)

func (a *API) getRuntimeConfig(c echo.Context) error {
	config, err := a.p.Live.RuntimeConfig(c.Request().Context(), by(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, configView(config))
}

// putRuntimeConfig passes the value's text on as it came: to read its numbers
// here would change their digits before the canonical form does.
func (a *API) putRuntimeConfig(c echo.Context) error {
	var base int64
	var value json.RawMessage
	err := object(c, map[string]any{"base_revision": &base, "value": &value})
	if err != nil {
		return err
	}
	err = plain(value)
	if err != nil {
		return fault.Refuse(fault.Problem{Type: "value_invalid", Loc: []any{"body", "value"}, Msg: "value: " + err.Error()})
	}
	config, err := a.p.Live.ReplaceRuntimeConfig(c.Request().Context(), by(c), base, value)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, configView(config))
}

func (a *API) deleteRuntimeConfig(c echo.Context) error {
	base, err := queryRevision(c)
	if err != nil {
		return err
	}
	config, err := a.p.Live.DeleteRuntimeConfig(c.Request().Context(), by(c), base)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, configView(config))
}

func configView(config settings.Config) gen.RuntimeConfig {
	return gen.RuntimeConfig{Value: config.Value, Sha256: config.SHA256, Revision: config.Revision, UpdatedAt: config.UpdatedAt}
}
