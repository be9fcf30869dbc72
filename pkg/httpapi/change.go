package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/teamsync/edge-workers/pkg/live"
)

// Bounds of bodies, in bytes. Each holds the longest good body with every
// character of its texts written as an escape of six bytes, and little more.
const (
	revisionLimit    = 1 << 10
	policyLimit      = 32 << 10 // 64 networks of at most 43 characters
	configLimit      = 72 << 10 // a value of settings.MaxValueJSON, white space and escapes included
	settingsLimit    = bodyLimit
	secretLimit      = 32 << 10 // a value of settings.MaxSecret
	credentialsLimit = 16 << 10 // a user name of 256 and a password of 1,024
)

// commandTimeout is the time for the answer of a route that sends commands to
// a Worker. A deployment with settings may send five, of 40 s each, between its
// own steps; the server's usual time would end before.
const commandTimeout = 5 * time.Minute

// answerWithin gives a route's answer more time than the server's usual.
func answerWithin(limit time.Duration) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(limit))
			if err != nil && !errors.Is(err, http.ErrNotSupported) {
				return fmt.Errorf("extend the time for the answer: %w", err)
			}
			return next(c)
		}
	}
}

// by says for whom a change of a live Worker is made.
func by(c echo.Context) live.By { return live.By{Tenant: tenant(c), Actor: actor(c)} }

// baseRevision reads a body that holds nothing else.
func baseRevision(c echo.Context) (int64, error) {
	var base int64
	err := object(c, map[string]any{"base_revision": &base})
	return base, err
}
