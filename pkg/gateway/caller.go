package gateway

import (
	"net/http"
	"regexp"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// The kinds of caller that the gateway signs. A caller without a place in the
// Worker's company is public: the Worker makes it api_key when the key is right.
const (
	kindMember = "member"
	kindPublic = "public"
)

// Caller is who invokes, as the Worker's runtime sees it.
type Caller struct {
	Kind         string   `json:"kind"`
	Subject      string   `json:"sub"`
	CompanyID    string   `json:"company_id"`
	DepartmentID string   `json:"department_id"`
	Roles        []string `json:"roles"`
	RequestID    string   `json:"request_id"`
	// APIKeySHA256 is the digest of the key that was presented (KeyDigest).
	APIKeySHA256 string `json:"api_key_sha256,omitempty"`
	// ClientAddress is where the call came from (Edge.Address).
	ClientAddress string `json:"client_address,omitempty"`
}

// Anonymous is the caller without what a sign-in says of them.
func (c Caller) Anonymous() Caller {
	return Caller{Kind: kindPublic, Roles: []string{}, RequestID: c.RequestID, APIKeySHA256: c.APIKeySHA256, ClientAddress: c.ClientAddress}
}

// memberOf tells whether the caller signed in as a member of the company.
func (c Caller) memberOf(companyID string) bool {
	return c.Kind == kindMember && companyID != "" && c.CompanyID == companyID
}

// HeaderAPIKey carries the API key of a call.
const HeaderAPIKey = "X-Api-Key" // #nosec G101 -- the header's name

var keyForm = regexp.MustCompile(`\Aewk_[A-Za-z0-9_-]{43}\z`)

// malformedKey stands for whatever cannot be a key. No key has this digest, so
// the Worker refuses it as it refuses any wrong key.
var malformedKey = canonical.Digest("teamsync-edge-worker-malformed-api-key", nil)

// KeyDigest gives the digest of the API key in a request's headers, "" when it
// carries none. The key itself goes no further than this.
func KeyDigest(header http.Header) string {
	values := header.Values(HeaderAPIKey)
	switch {
	case len(values) == 0:
		return ""
	case len(values) == 1 && keyForm.MatchString(values[0]):
		return canonical.SHA256([]byte(values[0]))
	}
	return malformedKey
}
