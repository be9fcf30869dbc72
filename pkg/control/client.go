package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The budget of one command (D10): connecting, then waiting for the answer.
const (
	ConnectTimeout = 5 * time.Second
	ReadTimeout    = 35 * time.Second
)

// maxAnswer bounds an answer in bytes.
const maxAnswer = 1 << 20

// commandDomain separates command digests from all others.
const commandDomain = "teamsync-edge-worker-command"

// Command is one control command to one release of one Worker.
type Command struct {
	Script     string
	Generation string // release generation that must be serving
	Subject    string
	Operation  string
	MutationID string // empty for commands that change nothing
	Payload    any    // encodes to a JSON object; nil is {}
	RequestID  string // X-Request-Id, optional
}

// RefusedError is a well-formed refusal: the command was not applied. Code is
// empty when the answer is a text or, for 422, a list; Message then holds it.
type RefusedError struct {
	Status  int
	Code    string
	Message string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("control command refused: %d %s: %s", e.Status, e.Code, e.Message)
}

// UnreachableError says that no Worker answered: no connection, no answer in
// time, or a 5xx of what is in between, whose Status and Code are then set.
// A mutation may or may not have been applied, unless NotSent.
type UnreachableError struct {
	Status int
	Code   string
	Cause  error
	// NotSent says that there was no connection to send on.
	NotSent bool
}

func (e *UnreachableError) Error() string {
	if e.Cause != nil {
		return "control channel: " + e.Cause.Error()
	}
	return fmt.Sprintf("control channel: status %d %s", e.Status, e.Code)
}

// Unwrap gives the cause.
func (e *UnreachableError) Unwrap() error { return e.Cause }

// MalformedError says that something answered, but not as this command's
// Worker must. A mutation may or may not have been applied.
type MalformedError struct{ Detail string }

func (e *MalformedError) Error() string { return "control answer is not usable: " + e.Detail }

// Client sends commands through one gateway. It is safe for concurrent use.
type Client struct {
	gateway string
	signer  *Signer
	http    *http.Client
}

// NewClient returns a client for the gateway, an http or https URL without
// query. Proxy settings of the environment are not used and redirects are not
// followed: an assertion goes where it is meant to or nowhere.
func NewClient(gateway string, signer *Signer) (*Client, error) {
	u, err := url.Parse(gateway)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("control gateway %q is not an http or https URL", gateway)
	}
	if signer == nil {
		return nil, errors.New("control client needs a signer")
	}
	transport := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: ConnectTimeout}).DialContext,
		TLSHandshakeTimeout:    ConnectTimeout,
		ResponseHeaderTimeout:  ReadTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // a kept connection could replay a request
		DisableCompression:     true,
	}
	return &Client{
		gateway: strings.TrimRight(gateway, "/"), signer: signer,
		http: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Call sends one command in one attempt and returns the result object. Errors
// are *RefusedError, *UnreachableError and *MalformedError; any other error
// means that nothing was sent.
func (c *Client) Call(ctx context.Context, command Command) (json.RawMessage, error) {
	body, err := encode(command)
	if err != nil {
		return nil, err
	}
	token, err := c.signer.SignControl(Assertion{
		Script: command.Script, Subject: command.Subject, Operation: command.Operation, Generation: command.Generation, Body: body,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout+ReadTimeout)
	defer cancel()
	target := c.gateway + "/" + url.PathEscape(command.Script) + "/__control"
	// The reader is wrapped so that net/http cannot rewind it for a replay.
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		return nil, fmt.Errorf("control request: %w", err)
	}
	req.ContentLength = int64(len(body))
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if command.RequestID != "" {
		req.Header.Set("X-Request-Id", command.RequestID)
	}
	return c.exchange(req, command)
}

// CommandDigest is the digest by which a command is known: that of its
// operation and its whole payload. A nil payload is {}.
func CommandDigest(operation string, payload any) (string, error) {
	if payload == nil {
		payload = map[string]any{}
	}
	digest, err := canonical.JSONDigest(commandDomain, map[string]any{"operation": operation, "payload": payload})
	if err != nil {
		return "", fmt.Errorf("command digest: %w", err)
	}
	return digest, nil
}

// encode makes the canonical body with the digest over operation and payload.
func encode(command Command) ([]byte, error) {
	payload := command.Payload
	if payload == nil {
		payload = map[string]any{}
	}
	digest, err := CommandDigest(command.Operation, payload)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{
		"operation": command.Operation, "commandDigest": digest, "releaseGeneration": command.Generation, "payload": payload,
	}
	if command.MutationID != "" {
		fields["mutationId"] = command.MutationID
	}
	body, err := canonical.JSON(fields)
	if err != nil {
		return nil, fmt.Errorf("command body: %w", err)
	}
	return body, nil
}

func (c *Client) exchange(req *http.Request, command Command) (json.RawMessage, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &UnreachableError{Cause: err, NotSent: neverSent(err)}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, &UnreachableError{Status: resp.StatusCode, Cause: err}
	}
	if len(raw) > maxAnswer {
		return nil, &MalformedError{Detail: fmt.Sprintf("more than %d bytes", maxAnswer)}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refused(resp.StatusCode, raw)
	}
	return accepted(raw, command)
}

// accepted checks that the answer is to this command and this release.
func accepted(raw []byte, command Command) (json.RawMessage, error) {
	var answer struct {
		Operation         *string         `json:"operation"`
		ReleaseGeneration *string         `json:"releaseGeneration"`
		Result            json.RawMessage `json:"result"`
	}
	if err := decodeExact(raw, &answer, "operation", "releaseGeneration", "result"); err != nil {
		return nil, &MalformedError{Detail: err.Error()}
	}
	switch {
	case answer.Operation == nil || *answer.Operation != command.Operation:
		return nil, &MalformedError{Detail: "it names another operation"}
	case answer.ReleaseGeneration == nil || *answer.ReleaseGeneration != command.Generation:
		return nil, &MalformedError{Detail: "it names another release generation"}
	case !bytes.HasPrefix(bytes.TrimSpace(answer.Result), []byte("{")):
		return nil, &MalformedError{Detail: "result is not an object"}
	}
	return answer.Result, nil
}

// neverSent reports whether the connection itself failed.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// replayed is the refusal of an assertion that came before. Each is sent once,
// so something in between has sent this one twice, and what became of the
// first is not known.
const replayed = "assertion_replayed"

func refused(status int, raw []byte) error {
	found, ok := readDetail(raw)
	switch {
	case status >= 500, found.Code == replayed:
		return &UnreachableError{Status: status, Code: found.Code}
	case status >= 400 && ok:
		return &RefusedError{Status: status, Code: found.Code, Message: found.Message}
	}
	return &MalformedError{Detail: fmt.Sprintf("status %d", status)}
}

// detail is why a bundle refused a command; Code is empty when it gave none.
type detail struct{ Code, Message string }

// readDetail reads {"detail": {code, message} | text | list}.
func readDetail(raw []byte) (detail, bool) {
	var answer struct {
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(raw, &answer) != nil || len(answer.Detail) == 0 {
		return detail{}, false
	}
	var coded detail
	if json.Unmarshal(answer.Detail, &coded) == nil && coded.Code != "" {
		return coded, true
	}
	var text string
	if json.Unmarshal(answer.Detail, &text) == nil {
		return detail{Message: text}, true
	}
	var list []json.RawMessage
	if json.Unmarshal(answer.Detail, &list) == nil && list != nil {
		return detail{Message: string(answer.Detail[:min(len(answer.Detail), 1000)])}, true
	}
	return detail{}, false
}

// decodeExact decodes one JSON object that has exactly the given keys, each
// once and in this case.
func decodeExact(raw []byte, into any, keys ...string) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	seen := map[string]bool{}
	token, err := decoder.Token()
	if err != nil || token != json.Delim('{') {
		return errors.New("it is not a JSON object")
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return errors.New("it is not a JSON object")
		}
		name, _ := key.(string)
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil || seen[name] {
			return fmt.Errorf("key %.100q is repeated or has no value", name)
		}
		seen[name] = true
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("its types differ: %w", err)
	}
	for _, key := range keys {
		if !seen[key] {
			return fmt.Errorf("key %q is missing", key)
		}
	}
	if len(seen) != len(keys) {
		return errors.New("it has unknown keys")
	}
	return nil
}
