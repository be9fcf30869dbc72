package config

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// ShutdownGrace is the time that a platform must give a stopping process
// (S1-257). The transport's own limits lie below it.
const ShutdownGrace = 3600 * time.Second

// The roles of an api.
const (
	Management = "management"
	Gateway    = "gateway"
)

// The values of DEFAULT_BACKGROUND_WORKER_TYPE (S1-249).
const (
	Legacy = "legacy"
	PubSub = "pubsub"
	SQS    = "sqs"
	Batch  = "batch"
)

// The values of EDGE_WORKERS_EVIDENCE_ENCRYPTION.
const (
	EncryptSSES3     = "AES256"
	EncryptSSEKMS    = "aws:kms"
	EncryptR2Managed = "r2_managed"
)

// check finds everything that is wrong, all faults at once. The provider and
// the artifact store are not among it: see the package comment.
func (s Settings) check(binary Binary) error {
	faults := []error{
		s.Database.check(), s.Redis.check(), s.Evidence.check(), s.Control.check(),
		s.HTTP.check(binary), s.Transport.check(binary), s.Log.check(),
	}
	if binary == API {
		faults = append(faults, s.Auth.check())
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

// Enabled tells whether the evidence store is configured.
func (e Evidence) Enabled() bool { return e.EndpointURL != "" }

var accountDigits = regexp.MustCompile(`\A[0-9]{12}\z`)

func (e Evidence) check() error {
	given := e.EndpointURL + e.Bucket + e.Encryption + e.KMSKeyID + e.ExpectedBucketOwner + e.AccessKeyID + e.SecretAccessKey.Reveal()
	if given == "" {
		return nil
	}
	faults := []error{
		origin("EDGE_WORKERS_EVIDENCE_ENDPOINT_URL", e.EndpointURL, "http", "https"),
		needed("EDGE_WORKERS_EVIDENCE_BUCKET", e.Bucket),
		needed("EDGE_WORKERS_EVIDENCE_ACCESS_KEY_ID", e.AccessKeyID),
		needed("EDGE_WORKERS_EVIDENCE_SECRET_ACCESS_KEY", e.SecretAccessKey.Reveal()),
		oneOf("EDGE_WORKERS_EVIDENCE_ENCRYPTION", e.Encryption, EncryptSSES3, EncryptSSEKMS, EncryptR2Managed),
	}
	switch {
	case e.Encryption == EncryptSSEKMS && e.KMSKeyID == "":
		faults = append(faults, errors.New("EDGE_WORKERS_EVIDENCE_ENCRYPTION is aws:kms, but EDGE_WORKERS_EVIDENCE_KMS_KEY_ID is not set"))
	case e.Encryption != EncryptSSEKMS && e.KMSKeyID != "":
		faults = append(faults, errors.New("EDGE_WORKERS_EVIDENCE_KMS_KEY_ID is set, but EDGE_WORKERS_EVIDENCE_ENCRYPTION is not aws:kms"))
	}
	switch {
	case e.ExpectedBucketOwner == "":
	case e.Encryption == EncryptR2Managed:
		faults = append(faults, errors.New("EDGE_WORKERS_EVIDENCE_EXPECTED_BUCKET_OWNER is set, but EDGE_WORKERS_EVIDENCE_ENCRYPTION is r2_managed, where no bucket has an AWS owner"))
	case !accountDigits.MatchString(e.ExpectedBucketOwner):
		faults = append(faults, errors.New("EDGE_WORKERS_EVIDENCE_EXPECTED_BUCKET_OWNER is not a 12-digit account number"))
	}
	return errors.Join(faults...)
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

func (h HTTP) check(binary Binary) error {
	faults := []error{address("EDGE_WORKERS_METRICS_ADDR", h.MetricsAddr)}
	if binary != API {
		return errors.Join(faults...)
	}
	faults = append(faults, address("EDGE_WORKERS_LISTEN_ADDR", h.ListenAddr),
		distinct("EDGE_WORKERS_LISTEN_ADDR", h.ListenAddr, "EDGE_WORKERS_METRICS_ADDR", h.MetricsAddr))
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

func (t Transport) check(binary Binary) error {
	faults := []error{
		oneOf("DEFAULT_BACKGROUND_WORKER_TYPE", t.Type, Legacy, PubSub, SQS, Batch),
		withinGrace("PUBSUB_MAX_LEASE_SECONDS", t.PubSubMaxLeaseSeconds),
		withinGrace("PUBSUB_DRAIN_TIMEOUT_SECONDS", t.PubSubDrainTimeoutSeconds),
	}
	switch t.Type {
	case Legacy:
		if binary == Deployer {
			faults = append(faults, errors.New("DEFAULT_BACKGROUND_WORKER_TYPE is legacy: the api does the deployments itself and a deployer has nothing to do"))
		}
	case PubSub:
		faults = append(faults, needed("EDGE_WORKERS_PUBSUB_PROJECT", t.PubSubProject), needed("EDGE_WORKERS_PUBSUB_TOPIC", t.PubSubTopic))
		if binary == Deployer {
			faults = append(faults, needed("EDGE_WORKERS_PUBSUB_SUBSCRIPTION", t.PubSubSubscription))
		}
	case SQS:
		faults = append(faults, needed("EDGE_WORKERS_SQS_QUEUE_URL", t.SQSQueueURL), needed("AWS_REGION", t.AWSRegion))
	case Batch:
		if binary != Deployer {
			faults = append(faults, needed("EDGE_WORKERS_BATCH_JOB_QUEUE", t.BatchJobQueue),
				needed("EDGE_WORKERS_BATCH_JOB_DEFINITION", t.BatchJobDefinition), needed("AWS_REGION", t.AWSRegion))
		}
	}
	return errors.Join(faults...)
}

// withinGrace refuses a limit that the platform's grace would cut short.
func withinGrace(variable string, seconds int) error {
	if seconds < 1 || time.Duration(seconds)*time.Second >= ShutdownGrace {
		return fmt.Errorf("%s must be at least 1 and less than the shutdown grace of %d", variable, int(ShutdownGrace/time.Second))
	}
	return nil
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
