package httpapi

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

func (a *API) getAccessPolicy(c echo.Context) error {
	policy, err := a.p.Live.AccessPolicy(c.Request().Context(), by(c))
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, policyView(policy))
}

func (a *API) putAccessPolicy(c echo.Context) error {
	var base int64
	var mode string
	var networks []string
	err := object(c, map[string]any{"base_revision": &base, "mode": &mode, "ip_allowlist": &networks})
	if err != nil {
		return err
	}
	policy, err := a.p.Live.ReplaceAccessPolicy(c.Request().Context(), by(c), base, mode, networks)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, policyView(policy))
}

func (a *API) rotateAccessKey(c echo.Context) error {
	base, err := baseRevision(c)
	if err != nil {
		return err
	}
	made, err := a.p.Live.RotateKey(c.Request().Context(), by(c), base)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.AccessPolicyKey{APIKey: made.Key, Policy: policyView(made.Policy)})
}

func (a *API) revokeAccessKey(c echo.Context) error {
	base, err := baseRevision(c)
	if err != nil {
		return err
	}
	policy, revoked, err := a.p.Live.RevokeKey(c.Request().Context(), by(c), base)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, gen.AccessPolicyRevocation{Revoked: revoked, Policy: policyView(policy)})
}

func policyView(p control.AccessPolicy) gen.AccessPolicy {
	return gen.AccessPolicy{
		Mode: gen.AccessMode(p.Mode), IPAllowlist: p.IPAllowlist, APIKeyConfigured: p.APIKeyConfigured, APIKeyLastFour: p.APIKeyLastFour,
		Revision: p.Revision, UpdatedAt: p.UpdatedAt,
	}
}
