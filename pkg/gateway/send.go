package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/version"
)

// unreadable is the input of a call whose own input is faulty: no JSON, so that
// the Worker decides about the caller and then runs nothing.
var unreadable = []byte("!")

// Send forwards an invocation, once: an operation may write. The caller closes
// the answer's body.
func (g *Gateway) Send(ctx context.Context, in Invocation) (Answer, error) {
	if len(in.Input) > MaxInput {
		return Answer{}, fault.New(fault.TooLarge, "Request body is too large")
	}
	trying := in.Caller.Kind != kindMember && in.wait != nil
	if trying {
		wait := <-in.wait
		if wait > 0 {
			return Answer{}, in.refuse(&LimitedError{Wait: wait})
		}
	}
	said, err := g.exchange(ctx, in)
	if err != nil {
		return Answer{}, in.refuse(err)
	}
	if trying && said.code == codeKeyInvalid {
		g.p.Failures.Add(ctx, in.worker.ScriptName, in.Caller.ClientAddress)
	}
	switch {
	case !said.admitted && in.stranger:
		err = in.refuse(fmt.Errorf("the Worker answers %d %q", said.Status, said.code))
	case said.admitted && in.problem != nil:
		err = in.problem
	}
	if err != nil {
		said.Body.Close()
		return Answer{}, err
	}
	return said.Answer, nil
}

// refuse gives what a caller is told in place of an error: to strangers there
// is no Worker that has not let them in (D4).
func (in Invocation) refuse(err error) error {
	if in.stranger {
		return version.ErrNoWorker.Because(err)
	}
	return err
}

// exchange sends the request and judges what comes back.
func (g *Gateway) exchange(ctx context.Context, in Invocation) (verdict, error) {
	if in.problem != nil {
		in.Input = unreadable
	}
	ctx, cancel := context.WithTimeout(ctx, InvokeTimeout)
	request, err := g.request(ctx, in)
	if err != nil {
		cancel()
		return verdict{}, err
	}
	response, err := g.client.Do(request)
	if err != nil {
		defer cancel()
		return verdict{}, sendError(ctx, err)
	}
	end := func() { response.Body.Close(); cancel() }
	said, err := judge(ctx, response, end)
	if err != nil {
		end()
	}
	return said, err
}

func (g *Gateway) request(ctx context.Context, in Invocation) (*http.Request, error) {
	token, err := g.p.Signer.SignInvocation(Assertion{
		ScriptName: in.worker.ScriptName, Generation: in.worker.Generation,
		Operation: in.Operation, Caller: in.Caller, Body: in.Input,
	})
	if err != nil {
		return nil, fmt.Errorf("sign the invocation: %w", err)
	}
	address := g.base + "/" + in.worker.ScriptName + "/__invoke/" + in.Operation
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(in.Input))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	// Nothing of the client's own headers goes along.
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Request-Id", in.Caller.RequestID)
	request.GetBody = nil // a broken connection is never tried again
	return request, nil
}

func sendError(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errTooSlow.Because(err)
	}
	return errUnreachable.Because(err)
}

// refusalHeader marks what is not the Worker's own: "door" and "host" speak of
// our channel, "access" to the caller. An author's code cannot set it, so an
// author's error never passes for one of theirs. What the edge host says of a
// Worker, such as that it crashed, is the caller's to know.
const (
	refusalHeader = "X-Edge-Workers-Refusal"
	byDoor        = "door"
	byAccess      = "access"

	codeKeyInvalid = "api_key_invalid"
)

// verdict is an answer with what it says of the caller.
type verdict struct {
	Answer
	// admitted is true when the answer proves that the Worker let the caller
	// in. Failures prove nothing: some come before the Worker decides.
	admitted bool
	code     string // of a refusal of the caller
}

// judge tells the Worker's own answers and its refusals of the caller from the
// doors' refusals, which speak of our channel and are never shown. An output
// is not read yet but for its beginning; errors are read to their end.
func judge(ctx context.Context, response *http.Response, end func()) (verdict, error) {
	status, refusal := response.StatusCode, response.Header.Get(refusalHeader)
	if refusal == "" && status >= 200 && status < 300 {
		answer, err := stream(ctx, response, end)
		return verdict{Answer: answer, admitted: true}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxOutput+1))
	switch {
	case err != nil:
		return verdict{}, sendError(ctx, err)
	case len(body) > maxOutput:
		return verdict{}, errTooMuch
	}
	var said struct {
		Detail json.RawMessage `json:"detail"`
	}
	err = json.Unmarshal(body, &said)
	if err != nil {
		return verdict{}, errUnreachable.Because(fmt.Errorf("status %d without a JSON body", status))
	}
	var coded struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(said.Detail, &coded) // a list or a text has no code
	end()
	answer := Answer{Status: status, Length: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	return classify(answer, refusal, coded.Code)
}

// classify says whose word an error is.
func classify(answer Answer, refusal, code string) (verdict, error) {
	switch {
	case refusal == byAccess && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden || answer.Status == http.StatusNotFound):
		answer.Challenge = challenge(answer.Status, code)
		return verdict{Answer: answer, code: code}, nil
	case refusal != "" && (code == "release_generation_mismatch" || code == "worker_not_found"):
		return verdict{}, errChanging.Because(errors.New(code))
	case refusal == byDoor || refusal == byAccess:
		return verdict{}, errUnreachable.Because(fmt.Errorf("refused by the %s: %d %q", refusal, answer.Status, code))
	case answer.Status >= 400:
		return verdict{Answer: answer, admitted: refusal == "" && answer.Status < 500}, nil
	}
	return verdict{}, errUnreachable.Because(fmt.Errorf("status %d", answer.Status))
}

// challenge names the credentials that could change a 401 (RFC 9110, 11.6.1).
func challenge(status int, code string) string {
	switch {
	case status != http.StatusUnauthorized:
		return ""
	case code == "api_key_required" || code == codeKeyInvalid:
		return `ApiKey header="` + HeaderAPIKey + `"`
	}
	return "Bearer"
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}
