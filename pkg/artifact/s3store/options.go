package s3store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// Options name one bucket of one service, and who asks. Two stores with equal
// options share one client (S0-24).
type Options struct {
	// Endpoint is the service's origin, such as https://host or http://host:9000.
	Endpoint string
	Bucket   string
	// Region stands in the scope of every signature: auto for R2 (S0-12),
	// us-east-1 on-prem (S0-18).
	Region string
	// PathStyle puts the bucket into the path and not into the host name (S0-17).
	PathStyle   bool
	Credentials Credentials
	// Network says how to get there: nil, but in tests, is the system's way.
	Network *Network
}

// Network replaces what lies between the client and the service. Stores that
// are to share a client share the pointer.
type Network struct {
	RootCAs *x509.CertPool // nil: the system's
	// Dial opens a connection; nil: TCP to the endpoint's own address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Credentials are one key pair. No form of them shows the secret.
type Credentials struct {
	id string
	// Behind a pointer, because fmt prints plain strings in unexported fields.
	secret *string
}

// NewCredentials makes a pair.
func NewCredentials(accessKeyID, secretAccessKey string) Credentials {
	return Credentials{id: accessKeyID, secret: &secretAccessKey}
}

const redacted = "[redacted]"

// Format shows the redaction for every verb of fmt.
func (c Credentials) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, redacted) // fmt offers no way to report it
}

// String shows the redaction.
func (c Credentials) String() string { return redacted }

// MarshalText shows the redaction, in JSON too.
func (c Credentials) MarshalText() ([]byte, error) { return []byte(redacted), nil }

func (c Credentials) reveal() string {
	if c.secret == nil {
		return ""
	}
	return *c.secret
}

// redact takes both halves of the pair out of a text.
func (c Credentials) redact(text string) string {
	for _, part := range []string{c.reveal(), c.id} {
		if part != "" {
			text = strings.ReplaceAll(text, part, redacted)
		}
	}
	return text
}

var bucketName = regexp.MustCompile(`\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\z`)

// checkBucket refuses what cannot be a bucket's name: 3 to 63 lower-case
// letters, digits, dots and hyphens, with a letter or a digit at both ends.
func checkBucket(name string) error {
	if !bucketName.MatchString(name) || strings.Contains(name, "..") {
		return errors.New("the bucket is not a name of 3 to 63 lower-case letters, digits, dots and hyphens")
	}
	return nil
}

// checkKeyPart refuses an empty half of a key pair and what cannot be signed
// with. The error does not repeat it.
func checkKeyPart(value string) error {
	if value == "" {
		return errors.New("the key is not set")
	}
	for _, c := range []byte(value) {
		if c <= ' ' || c > '~' {
			return errors.New("the key has a character that no key has")
		}
	}
	return nil
}

// check says what is wrong, naming no secret.
func (o Options) check() error {
	faults := []error{checkOrigin(o.Endpoint), checkBucket(o.Bucket), checkKeyPart(o.Credentials.id), checkKeyPart(o.Credentials.reveal())}
	if o.Region == "" {
		faults = append(faults, errors.New("no region"))
	}
	if strings.ContainsAny(o.Credentials.id, "/,=") {
		faults = append(faults, errors.New("the key id has a character that no key id has")) // it would change the scope's form
	}
	err := errors.Join(faults...)
	if err != nil {
		return fmt.Errorf("S3 store: %w", err)
	}
	return nil
}

func checkOrigin(text string) error {
	parsed, err := url.Parse(text)
	if err != nil {
		return errors.New("the endpoint is not a URL")
	}
	bare := url.URL{Scheme: parsed.Scheme, Host: parsed.Host}
	if (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Hostname() == "" || bare.String() != text {
		return errors.New("the endpoint is not an origin with nothing after it")
	}
	return nil
}
