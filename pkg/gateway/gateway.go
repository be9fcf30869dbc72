// Package gateway admits invocations and sends them, with a signed assertion,
// to where the Worker is served (D11). Admission reads the Worker's status
// from the database each time: a paused Worker is gone at once.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/database"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/version"
)

// Limits of one forwarded invocation.
const (
	connectTimeout = 5 * time.Second
	// InvokeTimeout bounds an invocation from the first byte sent to the last
	// byte of the answer.
	InvokeTimeout = 60 * time.Second
	maxOutput     = 8 << 20 // bytes of an answer
	maxIdlePerUp  = 256
)

// The refusals of the gateway.
var (
	errNoOperation = fault.New(fault.NotFound, "Operation not found")
	errUnreachable = fault.Coded(fault.Upstream, "worker_unreachable", "The Worker could not be reached")
	errTooSlow     = fault.Coded(fault.Timeout, "worker_timeout", "The Worker did not answer in time")
	errChanging    = fault.Coded(fault.Unavailable, "worker_changing", "The Worker is being changed; try again")
	errTooMuch     = fault.Coded(fault.Upstream, "worker_output_too_large", "The Worker's answer is larger than 8 MiB")
)

// Caller is who invokes, as the Worker's code sees it.
type Caller struct {
	Kind         string   `json:"kind"`
	Subject      string   `json:"sub"`
	CompanyID    string   `json:"company_id"`
	DepartmentID string   `json:"department_id"`
	Roles        []string `json:"roles"`
	RequestID    string   `json:"request_id"`
}

// Assertion is what the signer vouches for.
type Assertion struct {
	ScriptName string
	Generation string
	Operation  string
	Caller     Caller
	Body       []byte
}

// Signer makes the short-lived token of the invoke door.
type Signer interface {
	SignInvocation(a Assertion) (string, error)
}

// Params is what a Gateway is made of.
type Params struct {
	DB     *database.DB
	Signer Signer
	// DispatchURL is the base of the data plane: {base}/{script_name}/__invoke/….
	DispatchURL string
	Log         *slog.Logger
}

// Gateway forwards invocations.
type Gateway struct {
	p      Params
	base   string
	client *http.Client
	cache  routeCache
}

// New checks p.
func New(p Params) (*Gateway, error) {
	if p.DB == nil || p.Signer == nil || p.Log == nil {
		return nil, errors.New("gateway: database, signer and log are required")
	}
	base, err := url.Parse(p.DispatchURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" {
		return nil, fmt.Errorf("gateway: dispatch URL %q is not an http(s) base", p.DispatchURL)
	}
	transport := &http.Transport{ // no proxy from the environment
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout, MaxIdleConnsPerHost: maxIdlePerUp, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true,
	}
	return &Gateway{p: p, base: strings.TrimSuffix(p.DispatchURL, "/"), client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Invocation is one admitted call.
type Invocation struct {
	worker    models.Worker
	version   models.Version
	Operation string
	Input     []byte
	Caller    Caller
}

// Answer is what the Worker said, or the host in its place: JSON with a status
// of 2xx, 4xx or 5xx.
type Answer struct {
	Status int
	Body   []byte
}

// admitted reads the Worker and its current version. Anything but an active
// Worker is the same 404 as none at all (S2-187).
func (g *Gateway) admitted(ctx context.Context, worker models.Worker) (models.Version, routes, error) {
	if worker.Status != models.WorkerActive || worker.CurrentVersionID == "" {
		return models.Version{}, nil, version.ErrNoWorker
	}
	columns := []string{"id", "release_generation"}
	table, cached := g.cache.get(worker.CurrentVersionID)
	if !cached {
		columns = append(columns, "manifest")
	}
	tenant := models.Tenant{CompanyID: worker.CompanyID, DepartmentID: worker.DepartmentID}
	current, err := version.Of(g.p.DB.Read(ctx).Select(columns), tenant, worker.CurrentVersionID)
	if err != nil {
		return models.Version{}, nil, fmt.Errorf("read the current version: %w", err)
	}
	if !cached {
		table, err = g.cache.add(current)
	}
	return current, table, err
}

// Direct admits a call by operation id for the caller's own department.
func (g *Gateway) Direct(ctx context.Context, tenant models.Tenant, operationID string, input []byte, caller Caller) (Invocation, error) {
	worker, err := version.WorkerOf(g.p.DB.Read(ctx), tenant)
	if err != nil {
		return Invocation{}, err
	}
	current, table, err := g.admitted(ctx, worker)
	if err != nil {
		return Invocation{}, err
	}
	if !table.byID(operationID) {
		return Invocation{}, errNoOperation
	}
	body, err := compose(input, nil, nil)
	if err != nil {
		return Invocation{}, err
	}
	return Invocation{worker: worker, version: current, Operation: operationID, Input: body, Caller: caller}, nil
}

// Call is a request at /w/{script_name}/{path}.
type Call struct {
	ScriptName string
	Method     string
	Path       string // without the script name, unescaped
	Query      url.Values
	Header     http.Header
	Body       []byte
	Caller     Caller
}

// Routed admits a call by method and path. In the private mode only signed-in
// members of the Worker's company come in; to all others the Worker does not
// exist (D4, D11).
func (g *Gateway) Routed(ctx context.Context, in Call) (Invocation, []string, error) {
	worker, err := g.byScript(ctx, in.ScriptName, in.Caller.CompanyID)
	if err != nil {
		return Invocation{}, nil, err
	}
	current, table, err := g.admitted(ctx, worker)
	if err != nil {
		return Invocation{}, nil, err
	}
	id, params, methods := table.match(in.Method, in.Path)
	if id == "" {
		return Invocation{}, methods, errNoOperation
	}
	err = checkMediaType(in.Header, in.Body)
	if err != nil {
		return Invocation{}, nil, err
	}
	input, err := compose(in.Body, in.Query, params)
	if err != nil {
		return Invocation{}, nil, err
	}
	return Invocation{worker: worker, version: current, Operation: id, Input: input, Caller: in.Caller}, nil, nil
}

func (g *Gateway) byScript(ctx context.Context, script, companyID string) (models.Worker, error) {
	if !models.IsScriptName(script) || companyID == "" {
		return models.Worker{}, version.ErrNoWorker
	}
	var rows []models.Worker
	err := g.p.DB.Read(ctx).Where("script_name = ? AND company_id = ?", script, companyID).Limit(1).Find(&rows).Error
	if err != nil {
		return models.Worker{}, fmt.Errorf("read the Worker: %w", err)
	}
	if len(rows) == 0 {
		return models.Worker{}, version.ErrNoWorker
	}
	return rows[0], nil
}

// Send forwards an admitted invocation, once: an operation may write.
func (g *Gateway) Send(ctx context.Context, in Invocation) (Answer, error) {
	if len(in.Input) > MaxInput {
		return Answer{}, fault.New(fault.TooLarge, "Request body is too large")
	}
	token, err := g.p.Signer.SignInvocation(Assertion{
		ScriptName: in.worker.ScriptName, Generation: in.version.ReleaseGeneration,
		Operation: in.Operation, Caller: in.Caller, Body: in.Input,
	})
	if err != nil {
		return Answer{}, fmt.Errorf("sign the invocation: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, InvokeTimeout)
	defer cancel()
	target := g.base + "/" + in.worker.ScriptName + "/__invoke/" + in.Operation
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(in.Input))
	if err != nil {
		return Answer{}, fmt.Errorf("make the request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-Id", in.Caller.RequestID)
	request.GetBody = nil // a broken connection is never tried again
	response, err := g.client.Do(request)
	if err != nil {
		return Answer{}, sendError(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput+1))
	if err != nil {
		return Answer{}, sendError(ctx, err)
	}
	if len(body) > maxOutput {
		return Answer{}, errTooMuch
	}
	return judge(response.StatusCode, response.Header.Get(refusalHeader), body)
}

func sendError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errTooSlow.Because(err)
	}
	return errUnreachable.Because(err)
}

// refusalHeader marks what the invoke door or the edge host says of its own
// channel. An author's code cannot set it, so an author's error never passes
// for one of theirs. What the edge host says of a Worker, such as that it
// crashed, is the caller's to know.
const (
	refusalHeader = "X-Edge-Workers-Refusal"
	byDoor        = "door"
)

// judge tells the Worker's own answers from the doors' refusals, which speak
// of our channel and are never shown as the Worker's.
func judge(status int, refusal string, body []byte) (Answer, error) {
	if refusal == "" && status >= 200 && status < 300 {
		if len(body) > 0 && !json.Valid(body) {
			return Answer{}, errUnreachable.Because(fmt.Errorf("status %d with a body that is not JSON", status))
		}
		return Answer{Status: status, Body: body}, nil
	}
	var said struct {
		Detail json.RawMessage `json:"detail"`
	}
	err := json.Unmarshal(body, &said)
	if err != nil {
		return Answer{}, errUnreachable.Because(fmt.Errorf("status %d without a JSON body", status))
	}
	var coded struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(said.Detail, &coded) // a list or a text has no code
	switch {
	case refusal != "" && (coded.Code == "release_generation_mismatch" || coded.Code == "worker_not_found"):
		return Answer{}, errChanging.Because(errors.New(coded.Code))
	case refusal == byDoor:
		return Answer{}, errUnreachable.Because(fmt.Errorf("refused by the door: %q", coded.Code))
	}
	if status >= 400 {
		return Answer{Status: status, Body: body}, nil
	}
	return Answer{}, errUnreachable.Because(fmt.Errorf("status %d", status))
}
