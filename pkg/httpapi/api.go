package httpapi

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/audit"
	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/maintenance"
	"github.com/teamsync/edge-workers/pkg/tenancy"
	"github.com/teamsync/edge-workers/pkg/ticket"
	"github.com/teamsync/edge-workers/pkg/version"
)

// Role is one of the two halves of the API, which may run in processes of
// their own (D11).
type Role string

// The roles.
const (
	Management Role = "management"
	Gateway    Role = "gateway"
)

// Params is what the API serves from. Parts of a role that is not served may
// be nil.
type Params struct {
	Roles     []Role
	Verifier  TokenVerifier
	DB        *database.DB
	Store     artifact.Store // nil when not configured
	Submitter *version.Submitter
	Desk      *admission.Desk
	Live      *live.Desk
	Mirror    *ticket.Mirror
	Directory *tenancy.Directory
	// Maintenance keeps the gates of the edge host; nil where there is none.
	Maintenance *maintenance.Keeper
	// Gateway is nil while the provider's settings are wrong: calls are then
	// answered with 503.
	Gateway *gateway.Gateway
	// Edge says where the clients' addresses are; the zero value is the
	// connection's own.
	Edge gateway.Edge
	Log  *slog.Logger // of observe.NewLogger, which adds the request id
}

// API holds the handlers of the document's routes.
type API struct{ p Params }

// Bounds of request bodies in bytes. A submission may be a form around an
// archive of 2 MiB.
const (
	bodyLimit   = 64 << 10
	submitLimit = 2<<20 + 64<<10
	invokeLimit = gateway.MaxInput
)

// route is how one operation of the document is served.
type route struct {
	role   Role // empty: by every role
	limit  int64
	access []echo.MiddlewareFunc
	handle echo.HandlerFunc
}

// New returns the router. Its routes are those of the OpenAPI document: one
// that has no handler here, or a handler that the document does not know, is
// an error.
func New(p Params) (*echo.Echo, error) {
	if p.Verifier == nil || p.DB == nil || p.Log == nil || len(p.Roles) == 0 {
		return nil, errors.New("API: roles, verifier, database and log are required")
	}
	e := echo.New()
	Install(e, p.Log)
	documented, err := gen.Routes()
	if err != nil {
		return nil, err
	}
	table := (&API{p: p}).routes()
	served := map[string]bool{}
	for _, d := range documented {
		r, ok := table[d.OperationID]
		if !ok {
			return nil, fmt.Errorf("API: %s %s has no handler", d.Method, d.Path)
		}
		served[d.OperationID] = true
		if r.role != "" && !has(p.Roles, r.role) {
			continue
		}
		chain := append([]echo.MiddlewareFunc{LimitBody(r.limit)}, r.access...)
		e.Add(d.Method, d.Path, r.handle, chain...)
	}
	for id := range table {
		if !served[id] {
			return nil, fmt.Errorf("API: handler %s is not in the document", id)
		}
	}
	return e, nil
}

func has(roles []Role, role Role) bool {
	for _, r := range roles {
		if r == role {
			return true
		}
	}
	return false
}

func (a *API) routes() map[string]route {
	signedIn := []echo.MiddlewareFunc{Authenticate(a.p.Verifier)}
	role := func(r auth.Role) []echo.MiddlewareFunc { return append(signedIn[:1:1], RequireRole(r)) }
	manager := func(limit int64, h echo.HandlerFunc) route {
		return route{Management, limit, role(auth.DepartmentManager), h}
	}
	companyAdmin := func(h echo.HandlerFunc) route { return route{Management, bodyLimit, role(auth.CompanyAdmin), h} }
	changing := func(limit int64, h echo.HandlerFunc) route {
		return route{Management, limit, append(role(auth.DepartmentManager), answerWithin(commandTimeout)), h}
	}
	platform := func(h echo.HandlerFunc) route { return route{Management, bodyLimit, role(auth.PlatformAdmin), h} }
	gates := func(h echo.HandlerFunc) route {
		return route{Management, 0, append(role(auth.PlatformAdmin), a.needKeeper, answerWithin(commandTimeout)), h}
	}
	calls := append(signedIn[:1:1], a.needGateway)
	open := []echo.MiddlewareFunc{AuthenticateIfAny(a.p.Verifier), a.needGateway}
	invoke := route{Gateway, invokeLimit, open, a.callRouted}
	document := func(h echo.HandlerFunc) route { return route{"", 0, nil, h} }
	return map[string]route{
		"getWorker":            manager(0, a.getWorker),
		"submitVersion":        manager(submitLimit, a.submitVersion),
		"listVersions":         manager(0, a.listVersions),
		"getVersion":           manager(0, a.getVersion),
		"getVersionSource":     manager(0, a.getVersionSource),
		"createDeployment":     changing(settingsLimit, a.createDeployment),
		"getDeployment":        manager(0, a.getDeployment),
		"listAudit":            manager(0, a.listAudit),
		"getAccessPolicy":      changing(0, a.getAccessPolicy),
		"putAccessPolicy":      changing(policyLimit, a.putAccessPolicy),
		"rotateAccessKey":      changing(revisionLimit, a.rotateAccessKey),
		"revokeAccessKey":      changing(revisionLimit, a.revokeAccessKey),
		"getRuntimeConfig":     changing(0, a.getRuntimeConfig),
		"putRuntimeConfig":     changing(configLimit, a.putRuntimeConfig),
		"deleteRuntimeConfig":  changing(0, a.deleteRuntimeConfig),
		"getOperationSettings": changing(0, a.getOperationSettings),
		"putOperationSettings": changing(settingsLimit, a.putOperationSettings),
		"rotateOperationKey":   changing(revisionLimit, a.rotateOperationKey),
		"revokeOperationKey":   changing(revisionLimit, a.revokeOperationKey),
		"listSecrets":          changing(0, a.listSecrets),
		"putSecret":            changing(secretLimit, a.putSecret),
		"deleteSecret":         changing(0, a.deleteSecret),
		"listServiceAccounts":  changing(0, a.listServiceAccounts),
		"putCredentials":       changing(credentialsLimit, a.putCredentials),
		"deleteCredentials":    changing(0, a.deleteCredentials),
		"invokeOperation":      {Gateway, invokeLimit, calls, a.callDirect},
		"publicGet":            invoke,
		"publicPost":           invoke,
		"publicPut":            invoke,
		"publicPatch":          invoke,
		"publicDelete":         invoke,
		"listDepartments":      companyAdmin(a.listDepartments),
		"getDepartment":        companyAdmin(a.getDepartment),
		"repairDepartment":     companyAdmin(a.repairDepartment),
		"listCompanyAudit":     companyAdmin(a.listCompanyAudit),
		"putCompany":           platform(a.putCompany),
		"deleteCompany":        platform(a.deleteCompany),
		"putDepartment":        platform(a.putDepartment),
		"deleteDepartment":     platform(a.deleteDepartment),
		"getMaintenance":       gates(a.getMaintenance),
		"beginFence":           gates(a.beginFence),
		"endFence":             gates(a.endFence),
		"beginRestore":         gates(a.beginRestore),
		"endRestore":           gates(a.endRestore),
		"beginResync":          gates(a.beginResync),
		"endResync":            gates(a.endResync),
		"listDifferences":      gates(a.listDifferences),
		"getManifestSchema":    document(a.getManifestSchema),
		"getDocument":          document(a.getDocument),
		"getDocumentPage":      document(a.getDocumentPage),
	}
}

// principal is the verified caller; every route that calls it is behind
// Authenticate.
func principal(c echo.Context) auth.Principal {
	p, _ := auth.FromContext(c.Request().Context())
	return p
}

// tenant anchors a request on the token's two ids and on nothing else (D4).
func tenant(c echo.Context) models.Tenant {
	p := principal(c)
	return models.Tenant{CompanyID: p.CompanyID, DepartmentID: p.DepartmentID}
}

func actor(c echo.Context) audit.Actor {
	return audit.Actor{Type: "user", ID: principal(c).Subject, Method: "bearer_jwt", RequestID: RequestID(c.Request().Context())}
}
