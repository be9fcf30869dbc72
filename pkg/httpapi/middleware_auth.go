package httpapi

import (
	"context"
	"errors"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/auth"
)

// TokenVerifier checks a bearer token; auth.Verifier is one.
type TokenVerifier interface {
	Verify(ctx context.Context, token string) (auth.Principal, error)
}

// Authenticate demands a valid bearer token and puts its principal into the
// request's context, where auth.FromContext finds it.
func Authenticate(verifier TokenVerifier) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			token, err := BearerToken(c)
			if err != nil {
				return err
			}
			request := c.Request()
			principal, err := verifier.Verify(request.Context(), token)
			if err != nil {
				return err
			}
			c.SetRequest(request.WithContext(auth.WithPrincipal(request.Context(), principal)))
			return next(c)
		}
	}
}

// AuthenticateIfAny is Authenticate for routes that need no token: without an
// Authorization header there is no principal, and a bad one is refused as ever.
func AuthenticateIfAny(verifier TokenVerifier) echo.MiddlewareFunc {
	demand := Authenticate(verifier)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		signedIn := demand(next)
		return func(c echo.Context) error {
			if len(c.Request().Header.Values(echo.HeaderAuthorization)) == 0 {
				return next(c)
			}
			return signedIn(c)
		}
	}
}

// BearerToken gives the token of the single Authorization header. Anything
// else is auth.ErrNotAuthenticated.
func BearerToken(c echo.Context) (string, error) {
	values := c.Request().Header.Values(echo.HeaderAuthorization)
	if len(values) != 1 {
		return "", auth.ErrNotAuthenticated.Because(errors.New("not exactly one Authorization header"))
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", auth.ErrNotAuthenticated.Because(errors.New("the Authorization header holds no bearer token"))
	}
	return token, nil
}

// RequireRole refuses a principal without the role with 403. It stands behind
// Authenticate; without a principal the answer is 401.
func RequireRole(role auth.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			principal, ok := auth.FromContext(c.Request().Context())
			if !ok {
				return auth.ErrNotAuthenticated.Because(errors.New("the route is not behind authentication"))
			}
			if err := principal.Require(role); err != nil {
				return err
			}
			return next(c)
		}
	}
}
