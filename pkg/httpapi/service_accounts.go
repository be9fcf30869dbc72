package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/settings"
)

func (a *API) listServiceAccounts(c echo.Context) error {
	list, err := a.p.Live.Accounts(c.Request().Context(), by(c))
	if err != nil {
		return err
	}
	out := gen.ServiceAccountList{ServiceAccounts: []gen.ServiceAccount{}}
	for _, account := range list {
		out.ServiceAccounts = append(out.ServiceAccounts, accountView(account))
	}
	return c.JSON(http.StatusOK, out)
}

func (a *API) putCredentials(c echo.Context) error {
	var username, password string
	err := object(c, map[string]any{"username": &username, "password": &password})
	if err != nil {
		return err
	}
	account, err := a.p.Live.PutCredentials(c.Request().Context(), by(c), c.Param("service_account_id"), username, password)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, accountView(account))
}

func (a *API) deleteCredentials(c echo.Context) error {
	id := c.Param("service_account_id")
	deleted, err := a.p.Live.DeleteCredentials(c.Request().Context(), by(c), id)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.ServiceAccountDeletion{ServiceAccountID: id, Deleted: deleted})
}

// accountView leaves the password's digest out: its salt is not kept, so it
// would tell nobody anything.
func accountView(account settings.Account) gen.ServiceAccount {
	return gen.ServiceAccount{ServiceAccountID: account.ID, Username: account.Username, UpdatedAt: account.UpdatedAt}
}
