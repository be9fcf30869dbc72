package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/settings"
)

func (a *API) listSecrets(c echo.Context) error {
	list, err := a.p.Live.Secrets(c.Request().Context(), by(c))
	if err != nil {
		return err
	}
	out := gen.SecretList{Secrets: []gen.Secret{}}
	for _, s := range list {
		out.Secrets = append(out.Secrets, secretView(s))
	}
	return c.JSON(http.StatusOK, out)
}

func (a *API) putSecret(c echo.Context) error {
	var value string
	err := object(c, map[string]any{"value": &value})
	if err != nil {
		return err
	}
	secret, err := a.p.Live.PutSecret(c.Request().Context(), by(c), c.Param("name"), value)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, secretView(secret))
}

func (a *API) deleteSecret(c echo.Context) error {
	name := c.Param("name")
	deleted, err := a.p.Live.DeleteSecret(c.Request().Context(), by(c), name)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.SecretDeletion{Name: name, Deleted: deleted})
}

func secretView(s settings.Secret) gen.Secret {
	return gen.Secret{Name: s.Name, Sha256: s.SHA256, UpdatedAt: s.UpdatedAt}
}
