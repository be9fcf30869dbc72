package gateway

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"gorm.io/gorm"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/version"
)

// Invocation is one call that may be sent to its Worker, which decides about
// the caller.
type Invocation struct {
	worker    target
	Operation string
	Input     []byte
	Caller    Caller
	// stranger is a caller who signed in elsewhere: to them a Worker that does
	// not let them in does not exist (D4).
	stranger bool
	// problem is what is wrong with the input. It is told only to a caller whom
	// the Worker lets in.
	problem error
	// wait gives how long calls with a key are refused; nil without a key.
	wait <-chan time.Duration
}

// target is the live release of an active Worker.
type target struct {
	ScriptName   string
	CompanyID    string
	DepartmentID string
	VersionID    string
	Generation   string
}

// find reads the one active Worker for which the condition holds, with its
// current version. Anything but an active Worker is the same 404 as none at all
// (S2-187). It is read anew for each call.
func (g *Gateway) find(ctx context.Context, condition string, values ...any) (target, routes, error) {
	of, err := g.read(ctx, condition, append(values, models.WorkerActive)...)
	if err != nil {
		return target{}, nil, err
	}
	table, err := g.routesOf(ctx, of)
	return of, table, err
}

// read is one read by a unique key, bounded by the time limits of the database's
// connections. To watch the caller's context beside would take as long as the
// read itself.
func (g *Gateway) read(ctx context.Context, condition string, values ...any) (target, error) {
	ctx = context.WithoutCancel(ctx)
	rows, err := g.p.DB.Read(ctx).Session(&gorm.Session{PrepareStmt: true}).Raw(
		`SELECT w.script_name, w.company_id, w.department_id, v.id, v.release_generation
		FROM edge_workers w
		JOIN edge_worker_versions v ON v.id = w.current_version_id AND v.worker_id = w.id
			AND v.company_id = w.company_id AND v.department_id = w.department_id
		WHERE `+condition+` AND w.status = ?`, values...).Rows()
	if err != nil {
		return target{}, fmt.Errorf("read the Worker: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return target{}, cmp.Or(rows.Err(), error(version.ErrNoWorker))
	}
	var of target
	err = rows.Scan(&of.ScriptName, &of.CompanyID, &of.DepartmentID, &of.VersionID, &of.Generation)
	if err != nil {
		return target{}, fmt.Errorf("read the Worker: %w", err)
	}
	return of, nil
}

// routesOf gives the routes of a version, which never change.
func (g *Gateway) routesOf(ctx context.Context, of target) (routes, error) {
	table, cached := g.cache.get(of.VersionID)
	if cached {
		return table, nil
	}
	tenant := models.Tenant{CompanyID: of.CompanyID, DepartmentID: of.DepartmentID}
	current, err := version.Of(g.p.DB.Read(ctx).Select("id", "manifest"), tenant, of.VersionID)
	if err != nil {
		return nil, fmt.Errorf("read the current version: %w", err)
	}
	return g.cache.add(current)
}

// Direct admits a call by operation id for a member's own department.
func (g *Gateway) Direct(ctx context.Context, tenant models.Tenant, operationID string, input []byte, caller Caller) (Invocation, error) {
	worker, table, err := g.find(ctx, "w.company_id = ? AND w.department_id = ?", tenant.CompanyID, tenant.DepartmentID)
	if err != nil {
		return Invocation{}, err
	}
	if !caller.memberOf(worker.CompanyID) {
		return Invocation{}, version.ErrNoWorker
	}
	if !table.byID(operationID) {
		return Invocation{}, errNoOperation
	}
	body, err := compose(input, "", nil)
	if err != nil {
		return Invocation{}, err
	}
	return Invocation{worker: worker, Operation: operationID, Input: body, Caller: caller}, nil
}

// Call is a request at /w/{script_name}/{path}.
type Call struct {
	ScriptName string
	Method     string
	Path       string // without the script name, unescaped
	Query      string // as it was sent
	Header     http.Header
	Body       []byte
	Caller     Caller
}

// Routed prepares a call by method and path. Members of the Worker's company
// stay what they are; everyone else is anonymous, with or without a key, and
// whether that is enough is the Worker's to say (D11). When the path has
// operations of other methods only, their methods come with the error.
func (g *Gateway) Routed(ctx context.Context, in Call) (Invocation, []string, error) {
	if !models.IsScriptName(in.ScriptName) {
		return Invocation{}, nil, version.ErrNoWorker
	}
	wait := g.askFailures(ctx, in)
	worker, table, err := g.find(ctx, "w.script_name = ?", in.ScriptName)
	if err != nil {
		return Invocation{}, nil, err
	}
	member := in.Caller.memberOf(worker.CompanyID)
	out := Invocation{worker: worker, Caller: in.Caller, wait: wait, stranger: !member && in.Caller.Kind == kindMember}
	if !member {
		out.Caller = in.Caller.Anonymous()
	}
	id, params, methods := table.match(in.Method, in.Path)
	switch {
	case id == "" && out.stranger:
		return Invocation{}, nil, version.ErrNoWorker
	case id == "":
		return Invocation{}, methods, errNoOperation
	}
	out.Operation = id
	out.Input, out.problem = inputOf(in, params)
	if member && out.problem != nil {
		return Invocation{}, nil, out.problem
	}
	return out, nil, nil
}

// askFailures asks Redis about a presented key while the Worker is looked for.
func (g *Gateway) askFailures(ctx context.Context, in Call) <-chan time.Duration {
	if in.Caller.APIKeySHA256 == "" {
		return nil
	}
	wait := make(chan time.Duration, 1) // nobody need read it
	go func() { wait <- g.p.Failures.Wait(ctx, in.ScriptName, in.Caller.ClientAddress) }()
	return wait
}

// inputOf makes the operation's input of a call.
func inputOf(in Call, params map[string]string) ([]byte, error) {
	err := checkMediaType(in.Header, in.Body)
	if err != nil {
		return nil, err
	}
	input, err := compose(in.Body, in.Query, params)
	if err != nil {
		return nil, err
	}
	if len(input) > MaxInput {
		return nil, fault.New(fault.TooLarge, "Request body is too large")
	}
	return input, nil
}
