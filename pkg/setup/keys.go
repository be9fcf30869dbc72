package setup

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/gateway"
)

func newSigner(c config.Control) (*control.Signer, error) {
	key, err := control.LoadKey(c.SigningKeyFile)
	if err != nil {
		return nil, fmt.Errorf("EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE: %w", err)
	}
	next, err := c.NextKey()
	if err != nil {
		return nil, err
	}
	return control.NewSigner(key, next)
}

func newVerifier(ctx context.Context, a config.Auth, log *slog.Logger) (*auth.Verifier, error) {
	expected := auth.Expected{Issuer: a.Issuer, Audience: a.Audience}
	if a.JWKSURL != "" {
		return auth.NewJWKSVerifier(ctx, auth.JWKSParams{URL: a.JWKSURL, Expected: expected, Log: log})
	}
	private, err := auth.LoadPrivateKey(a.LocalKeyFile)
	if err != nil {
		return nil, fmt.Errorf("EDGE_WORKERS_AUTH_LOCAL_KEY_FILE: %w", err)
	}
	key, ok := private.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("EDGE_WORKERS_AUTH_LOCAL_KEY_FILE: not an Ed25519 key")
	}
	if expected.Issuer == "" {
		expected.Issuer = auth.LocalIssuer
	}
	if expected.Audience == "" {
		expected.Audience = auth.LocalAudience
	}
	return auth.NewLocalVerifier(key, expected)
}

// anonymousSubject stands in assertions for callers who did not sign in: the
// gateway itself sends the call. The Worker's code does not see it.
const anonymousSubject = "system:edge-worker-gateway"

// invocationSigner signs the gateway's assertions with the control key.
type invocationSigner struct{ signer *control.Signer }

// SignInvocation signs for the invoke door.
func (i invocationSigner) SignInvocation(a gateway.Assertion) (string, error) {
	subject := a.Caller.Subject
	if subject == "" {
		subject = anonymousSubject
	}
	return i.signer.SignInvoke(control.Assertion{
		Script: a.ScriptName, Subject: subject, Operation: a.Operation, Generation: a.Generation, Body: a.Body,
	}, control.Caller(a.Caller))
}
