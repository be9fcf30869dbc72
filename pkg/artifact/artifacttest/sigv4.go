package artifacttest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// signature is a parsed Authorization header of AWS Signature Version 4.
type signature struct {
	accessKeyID, date, region, service, terminator string
	signedHeaders                                  []string
	value                                          string
}

const sigV4Scheme = "AWS4-HMAC-SHA256 "

func parseSignature(header string) (signature, bool) {
	rest, ok := strings.CutPrefix(header, sigV4Scheme)
	if !ok {
		return signature{}, false
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || len(fields) != 3 {
		return signature{}, false
	}
	return signature{
		accessKeyID: scope[0], date: scope[1], region: scope[2], service: scope[3], terminator: scope[4],
		signedHeaders: strings.Split(fields["SignedHeaders"], ";"), value: fields["Signature"],
	}, true
}

// Region gives the region in the scope of a request's signature.
func (r S3Request) Region() string {
	parsed, _ := parseSignature(r.Header.Get("Authorization"))
	return parsed.region
}

// AccessKeyID gives the key id in the scope of a request's signature.
func (r S3Request) AccessKeyID() string {
	parsed, _ := parseSignature(r.Header.Get("Authorization"))
	return parsed.accessKeyID
}

// maxSkew is how far a request's time may be from the server's.
const maxSkew = 15 * time.Minute

// verify checks a request's signature and its body's hash, and gives the
// status and code of a refusal, or nothing.
func (s *S3) verify(r *http.Request, content []byte) (int, string) {
	parsed, ok := parseSignature(r.Header.Get("Authorization"))
	stamp := r.Header.Get("X-Amz-Date")
	signed, err := time.Parse("20060102T150405Z", stamp)
	switch {
	case !ok:
		return http.StatusForbidden, "AccessDenied"
	case parsed.accessKeyID != s.AccessKeyID:
		return http.StatusForbidden, "InvalidAccessKeyId"
	case parsed.region != s.Region || parsed.service != "s3" || parsed.terminator != "aws4_request":
		return http.StatusBadRequest, "AuthorizationHeaderMalformed"
	case err != nil || time.Since(signed).Abs() > maxSkew || !strings.HasPrefix(stamp, parsed.date):
		return http.StatusForbidden, "RequestTimeTooSkewed"
	}
	for _, needed := range []string{"host", "x-amz-date", "x-amz-content-sha256"} {
		if !slices.Contains(parsed.signedHeaders, needed) {
			return http.StatusForbidden, "AccessDenied"
		}
	}
	hash := r.Header.Get("X-Amz-Content-Sha256")
	if hash != canonical.SHA256(content) {
		return http.StatusBadRequest, "XAmzContentSHA256Mismatch" // an unsigned body too
	}
	if !hmac.Equal([]byte(parsed.value), []byte(parsed.expected(r, stamp, hash, s.SecretAccessKey))) {
		return http.StatusForbidden, "SignatureDoesNotMatch"
	}
	return 0, ""
}

// expected computes what the signature must be.
func (g signature) expected(r *http.Request, stamp, hash, secret string) string {
	var headers strings.Builder
	for _, name := range g.signedHeaders {
		headers.WriteString(name + ":" + headerValue(r, name) + "\n")
	}
	request := strings.Join([]string{
		r.Method, r.URL.EscapedPath(), canonicalQuery(r.URL.Query()), headers.String(), strings.Join(g.signedHeaders, ";"), hash,
	}, "\n")
	scope := strings.Join([]string{g.date, g.region, g.service, g.terminator}, "/")
	text := strings.Join([]string{strings.TrimSpace(sigV4Scheme), stamp, scope, canonical.SHA256([]byte(request))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{g.date, g.region, g.service, g.terminator} {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	hash := hmac.New(sha256.New, key)
	_, _ = hash.Write([]byte(text)) // a hash takes everything
	return hash.Sum(nil)
}

func headerValue(r *http.Request, name string) string {
	switch name {
	case "host":
		return r.Host
	case "content-length":
		return strconv.FormatInt(r.ContentLength, 10)
	}
	values := slices.Clone(r.Header.Values(name))
	for i := range values {
		values[i] = strings.Join(strings.Fields(values[i]), " ")
	}
	return strings.Join(values, ",")
}

// canonicalQuery sorts by name and escapes spaces as %20.
func canonicalQuery(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }
