package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/settings"
)

func (a *API) getOperationSettings(c echo.Context) error {
	table, err := a.p.Live.Operations(c.Request().Context(), by(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, settingsView(table))
}

func (a *API) putOperationSettings(c echo.Context) error {
	body, err := jsonBody(c)
	if err != nil {
		return err
	}
	request, err := settings.ReadRequest(body, "body")
	if err != nil {
		return err
	}
	table, err := a.p.Live.ReplaceOperations(c.Request().Context(), by(c), request)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, settingsView(table))
}

func (a *API) rotateOperationKey(c echo.Context) error {
	base, err := baseRevision(c)
	if err != nil {
		return err
	}
	made, err := a.p.Live.RotateOperationKey(c.Request().Context(), by(c), base, c.Param("operation_id"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.OperationSettingsKey{APIKey: made.Key, Settings: settingsView(made.Table)})
}

func (a *API) revokeOperationKey(c echo.Context) error {
	base, err := baseRevision(c)
	if err != nil {
		return err
	}
	table, revoked, err := a.p.Live.RevokeOperationKey(c.Request().Context(), by(c), base, c.Param("operation_id"))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.OperationSettingsRevocation{Revoked: revoked, Settings: settingsView(table)})
}

func settingsView(table settings.Table) gen.OperationSettings {
	rows := map[string]gen.OperationSetting{}
	for id, row := range table.Operations {
		rows[id] = gen.OperationSetting{
			Access: gen.OperationAccess(row.Access), APIKeyConfigured: row.APIKeyConfigured, APIKeyLastFour: row.APIKeyLastFour,
			ServiceAccountID: row.ServiceAccountID,
		}
	}
	return gen.OperationSettings{
		Revision: table.Revision, ReleaseGeneration: table.ReleaseGeneration, DefaultServiceAccountID: table.DefaultServiceAccountID,
		Operations: rows, UpdatedAt: table.UpdatedAt,
	}
}
