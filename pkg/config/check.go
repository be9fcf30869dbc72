package config

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// The roles of an api.
const (
	Management = "management"
	Gateway    = "gateway"
)

// check finds everything that is wrong, all faults at once. The provider is not
// among it: see the package comment.
func (s Settings) check(binary Binary) error {
	faults := []error{
		s.Database.check(), s.Redis.check(), s.Control.check(), address("EDGE_WORKERS_METRICS_ADDR", s.HTTP.MetricsAddr),
		s.checkTransport(binary), s.Log.check(),
	}
	if binary == API { // the others serve nobody and build nothing
		faults = append(faults, s.Auth.check(), s.HTTP.check(), s.Edge.check(), s.NPM.check())
	}
	return errors.Join(faults...)
}

// SQLitePrefix begins the database URL of a file.
const SQLitePrefix = "sqlite:"

func (d Database) check() error {
	const variable = "EDGE_WORKERS_DATABASE_URL"
	text := d.URL.Reveal()
	if text == "" {
		return needed(variable, text)
	}
	path, isFile := strings.CutPrefix(text, SQLitePrefix)
	if isFile {
		if path == "" {
			return fmt.Errorf("%s names no file after %q", variable, SQLitePrefix)
		}
		return nil
	}
	// The parser's error may quote the DSN, and with it the password.
	dsn, err := mysql.ParseDSN(text)
	if err != nil {
		return fmt.Errorf("%s is neither %sPATH nor a MySQL DSN such as user:password@tcp(host:3306)/name", variable, SQLitePrefix)
	}
	if dsn.DBName == "" {
		return fmt.Errorf("%s names no database", variable)
	}
	return nil
}

func (r Redis) check() error {
	const variable = "EDGE_WORKERS_REDIS_URL"
	text := r.URL.Reveal()
	if text == "" {
		return needed(variable, text)
	}
	parsed, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, parsed.Scheme) {
		return fmt.Errorf("%s must begin with redis://, rediss:// or unix://", variable)
	}
	return nil
}

// NextKey gives the announced public key, or nil when there is none.
func (c Control) NextKey() (ed25519.PublicKey, error) {
	if c.NextPublicKey == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.NextPublicKey)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY is not the base64 of an Ed25519 public key (%d bytes)", ed25519.PublicKeySize)
	}
	return key, nil
}

func (c Control) check() error {
	_, err := c.NextKey()
	return errors.Join(needed("EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE", c.SigningKeyFile), err)
}

func (a Auth) check() error {
	switch {
	case a.JWKSURL == "" && a.LocalKeyFile == "":
		return errors.New("EDGE_WORKERS_AUTH_JWKS_URL is not set (nor, for development, EDGE_WORKERS_AUTH_LOCAL_KEY_FILE)")
	case a.JWKSURL != "" && a.LocalKeyFile != "":
		return errors.New("EDGE_WORKERS_AUTH_JWKS_URL and EDGE_WORKERS_AUTH_LOCAL_KEY_FILE are both set: tokens come from one of them")
	case a.LocalKeyFile != "":
		return nil
	}
	return errors.Join(
		keySet(a.JWKSURL),
		needed("EDGE_WORKERS_AUTH_ISSUER", a.Issuer),
		needed("EDGE_WORKERS_AUTH_AUDIENCE", a.Audience),
	)
}

func keySet(text string) error {
	const variable = "EDGE_WORKERS_AUTH_JWKS_URL"
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" || parsed.User != nil || parsed.Fragment != "" {
		return fmt.Errorf("%s is not the URL of a key set", variable)
	}
	if parsed.Scheme == "https" || (parsed.Scheme == "http" && isLoopback(parsed.Hostname())) {
		return nil
	}
	return fmt.Errorf("%s must begin with https://: whoever answers there decides who may do what", variable)
}

// isLoopback takes the name by itself, without asking the DNS.
func isLoopback(host string) bool {
	address := net.ParseIP(host)
	return host == "localhost" || (address != nil && address.IsLoopback())
}

// Serves tells whether an api has a role.
func (h HTTP) Serves(role string) bool { return slices.Contains(h.Roles, role) }

func (h HTTP) check() error {
	faults := []error{
		address("EDGE_WORKERS_LISTEN_ADDR", h.ListenAddr),
		distinct("EDGE_WORKERS_LISTEN_ADDR", h.ListenAddr, "EDGE_WORKERS_METRICS_ADDR", h.MetricsAddr),
	}
	seen := map[string]bool{}
	for _, role := range h.Roles {
		faults = append(faults, oneOf("EDGE_WORKERS_ROLES", role, Management, Gateway))
		if seen[role] {
			faults = append(faults, fmt.Errorf("EDGE_WORKERS_ROLES has %s twice", role))
		}
		seen[role] = true
	}
	return errors.Join(faults...)
}

func address(variable, value string) error {
	_, port, err := net.SplitHostPort(value)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("%s is not host:port or :port", variable)
	}
	return nil
}

// distinct refuses two listeners on one address. Port 0 is a new port each time.
func distinct(one, first, other, second string) error {
	if first != second || strings.HasSuffix(first, ":0") {
		return nil
	}
	return fmt.Errorf("%s and %s are both %s", one, other, first)
}

// SlogLevel gives the level for slog.
func (l Log) SlogLevel() (slog.Level, error) {
	var level slog.Level
	err := oneOf("EDGE_WORKERS_LOG_LEVEL", l.Level, "debug", "info", "warn", "error")
	if err != nil {
		return level, err
	}
	return level, level.UnmarshalText([]byte(l.Level))
}

func (l Log) check() error {
	_, err := l.SlogLevel()
	return err
}

func oneOf(variable, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("%s must be one of %s, not %q", variable, strings.Join(allowed, ", "), value)
}
