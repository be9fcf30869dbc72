package devkit

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/teamsync/edge-workers/pkg/auth"
)

// ReadyName is the ready file inside the data folder; edgectl's other commands
// look for it.
const ReadyName = "ready.json"

// tokenLifetime is the life of the printed tokens; the next start makes fresh
// ones.
const tokenLifetime = 30 * 24 * time.Hour

// Ready says where everything is, with tokens for each role (D2).
type Ready struct {
	APIURL             string `json:"api_url"`
	ConsoleURL         string `json:"console_url"`
	GatewayURL         string `json:"gateway_url"`
	MetricsURL         string `json:"metrics_url"`
	CompanyID          string `json:"company_id"`
	DepartmentID       string `json:"department_id"`
	ManagerToken       string `json:"manager_token"`
	CompanyAdminToken  string `json:"company_admin_token"`
	PlatformAdminToken string `json:"platform_admin_token"`
}

// Describe makes the tokens of a system whose API and metrics are served at two
// origins, with the key that its processes verify them with.
func Describe(api, metrics, authKeyFile string) (Ready, error) {
	r := Ready{
		APIURL: api, ConsoleURL: api + "/docs", GatewayURL: api, MetricsURL: metrics + "/metrics",
		CompanyID: CompanyID, DepartmentID: DepartmentID,
	}
	key, err := auth.LoadPrivateKey(authKeyFile)
	if err != nil {
		return Ready{}, err
	}
	issuer, err := auth.NewIssuer(key, auth.Expected{Issuer: auth.LocalIssuer, Audience: auth.LocalAudience})
	if err != nil {
		return Ready{}, err
	}
	for _, t := range []struct {
		into      *string
		principal auth.Principal
	}{
		{&r.ManagerToken, auth.Principal{Subject: "user:dev-manager", CompanyID: CompanyID, DepartmentID: DepartmentID, Roles: []auth.Role{auth.DepartmentManager}}},
		{&r.CompanyAdminToken, auth.Principal{Subject: "user:dev-company-admin", CompanyID: CompanyID, Roles: []auth.Role{auth.CompanyAdmin}}},
		{&r.PlatformAdminToken, auth.Principal{Subject: "user:dev-platform-admin", Roles: []auth.Role{auth.PlatformAdmin}}},
	} {
		*t.into, err = issuer.Issue(t.principal, tokenLifetime)
		if err != nil {
			return Ready{}, fmt.Errorf("make a developer token: %w", err)
		}
	}
	return r, nil
}

func writeReady(name string, r Ready) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return writeWhole(name, append(raw, '\n'))
}

// WriteReady writes r as one JSON object in one step, readable by its owner
// only: it holds tokens.
func WriteReady(name string, r Ready) error { return writeReady(name, r) }
