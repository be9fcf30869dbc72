package s3store

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/artifacttest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]artifacttest.S3Params{"R2": cloud, "on-prem": onPrem} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			artifacttest.Run(t, func(t testing.TB) artifact.Backend {
				store, server := newStore(t, p)
				t.Cleanup(func() {
					for _, r := range server.Requests("") {
						if r.Refused != "" {
							t.Errorf("the service refused a %s with %s", r.Method, r.Refused)
						}
					}
				})
				return store
			})
		})
	}
}

// S0-12, S0-13, S0-17, S0-18, S0-37, S0-40, S0-42, S0-43: what a PUT says.
func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]artifacttest.S3Params{"auto": cloud, "us-east-1": onPrem} {
		for _, kind := range []artifact.Kind{artifact.Project, artifact.Bundle} {
			t.Run(name+" "+string(kind), func(t *testing.T) {
				t.Parallel()
				store, server := newStore(t, p)
				one := newSample(t, kind, []byte("content"))
				if err := one.put(t, store); err != nil {
					t.Fatal(err)
				}
				puts := server.Requests(http.MethodPut)
				if len(puts) != 1 || puts[0].Refused != "" {
					t.Fatalf("puts: %v", puts)
				}
				r := puts[0]
				if r.Region() != name || r.AccessKeyID() != keyID || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
					t.Errorf("signed by %s for %s", r.AccessKeyID(), r.Region())
				}
				if r.Path != "/edge-artifacts/"+one.key || strings.Contains(r.Host, "edge-artifacts") {
					t.Errorf("sent to %s%s", r.Host, r.Path)
				}
				if r.Header.Get("Content-Type") != kind.ContentType() || r.Header.Get("X-Amz-Content-Sha256") != one.Digest || r.Header.Get("If-None-Match") != "*" {
					t.Errorf("headers %v", r.Header)
				}
				for header := range r.Header {
					lower := strings.ToLower(header)
					if strings.HasPrefix(lower, "x-amz-meta-") && lower != "x-amz-meta-sha256digest" ||
						strings.Contains(lower, "tagging") || strings.Contains(lower, "checksum") || lower == "expect" {
						t.Errorf("header %s: %s", header, r.Header.Get(header))
					}
				}
				if got := r.Header.Get("X-Amz-Meta-Sha256digest"); got != one.Digest {
					t.Errorf("metadata %q", got)
				}
			})
		}
	}
}

// The server of these tests does notice: a wrong region, key or secret, and a
// header that R2 does not have.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Options){
		"AuthorizationHeaderMalformed": func(o *Options) { o.Region = "us-west-2" },
		"InvalidAccessKeyId":           func(o *Options) { o.Credentials = NewCredentials("ANOTHER-KEY", secret) },
		"SignatureDoesNotMatch":        func(o *Options) { o.Credentials = NewCredentials(keyID, "another-secret") },
		"NoSuchBucket":                 func(o *Options) { o.Bucket = "another-bucket" },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			server := artifacttest.StartS3(t, cloud)
			o := optionsFor(server)
			change(&o)
			store, one := openOn(t, o, hasty()), newSample(t, artifact.Bundle, []byte("content"))
			server.Keep(one.key, one.stored())
			_, getErr := one.read(t, store)
			_, statErr := store.Stat(t.Context(), one.key)
			for call, err := range map[string]error{
				"put": one.put(t, store), "get": getErr, "stat": statErr, "delete": store.Delete(t.Context(), one.key),
			} {
				if !errors.Is(err, artifact.ErrUnavailable) || errors.Is(err, artifact.ErrNotFound) {
					t.Errorf("%s: %v", call, err)
					continue
				}
				if call != "stat" && !strings.Contains(err.Error(), want) {
					t.Errorf("%s does not say %s: %v", call, want, err)
				}
				for _, hidden := range []string{keyID, secret, "ANOTHER-KEY", "another-secret", "AWS4-HMAC"} {
					if strings.Contains(err.Error(), hidden) {
						t.Errorf("%s shows %q: %v", call, hidden, err)
					}
				}
			}
			one.wantStored(t, server)
			for _, r := range server.Requests("") {
				if r.Refused != want {
					t.Errorf("%s was refused with %q", r.Method, r.Refused)
				}
			}
		})
	}
}

// S0-29: three attempts, and no fourth.
func TestAttempts(t *testing.T) {
	t.Parallel()
	for _, method := range []string{http.MethodPut, http.MethodGet, http.MethodDelete} {
		for _, failures := range []int{0, 1, 2, 3, 9} {
			store, server := newStore(t, cloud)
			one := newSample(t, artifact.Project, []byte("content"))
			if method != http.MethodPut {
				server.Keep(one.key, one.stored())
			}
			fault := artifacttest.Fault{Method: method, Do: artifacttest.Answer, Status: http.StatusServiceUnavailable, Code: "InternalError"}
			server.Script(fault.Times(failures)...)
			err := call(t, store, one, method)
			if good := err == nil; good != (failures < 3) || (!good && !errors.Is(err, artifact.ErrUnavailable)) {
				t.Errorf("%s after %d failures: %v", method, failures, err)
			}
			if got := len(server.Requests(method)); got != min(failures, 2)+1 {
				t.Errorf("%s after %d failures: %d requests", method, failures, got)
			}
		}
	}
}

func call(t *testing.T, store *Store, one sample, method string) error {
	t.Helper()
	switch method {
	case http.MethodPut:
		return one.put(t, store)
	case http.MethodGet:
		_, err := one.read(t, store)
		return err
	default:
		return store.Delete(t.Context(), one.key)
	}
}

func TestDeleteIsIdempotent(t *testing.T) {
	t.Parallel()
	store, server := newStore(t, cloud)
	one := newSample(t, artifact.Project, []byte("content"))
	server.Keep(one.key, one.stored())
	server.Script(artifacttest.Fault{Do: artifacttest.LoseReply}, artifacttest.Fault{Do: artifacttest.Answer, Status: 404, Code: "NoSuchKey"})
	if err := store.Delete(t.Context(), one.key); err != nil || len(server.Objects()) != 0 {
		t.Errorf("applied, then not found: %v, %d objects", err, len(server.Objects()))
	}
	if len(server.Pending()) != 0 {
		t.Errorf("not met: %v", server.Pending())
	}
	for _, code := range []string{"NoSuchBucket", "Gone"} {
		server.Script(artifacttest.Fault{Do: artifacttest.Answer, Status: 404, Code: code})
		if err := store.Delete(t.Context(), one.key); !errors.Is(err, artifact.ErrUnavailable) {
			t.Errorf("404 %s: %v", code, err)
		}
	}
}

// A signed request is not carried to where a redirect points.
func TestRedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	store, server := newStore(t, cloud)
	one := newSample(t, artifact.Project, []byte("content"))
	server.Script(artifacttest.Fault{Do: artifacttest.Redirect})
	_, err := one.read(t, store)
	if !errors.Is(err, artifact.ErrUnavailable) || !strings.Contains(err.Error(), "307") || len(server.Requests("")) != 1 {
		t.Errorf("%v after %d requests", err, len(server.Requests("")))
	}
}

// S0-06, S0-07, S0-12, S0-30: what the SDK would read of the process's
// environment changes nothing.
func TestEnvironmentChangesNothing(t *testing.T) {
	if newTransport(nil, production).Proxy != nil { // net/http reads the variables once in a process
		t.Error("the environment's proxy is used")
	}
	plain := sentBy(t)
	folder := t.TempDir()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "APPLICATION-KEY", "AWS_SECRET_ACCESS_KEY": "application-secret", "AWS_SESSION_TOKEN": "token",
		"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_S3_BUCKET": "application-bucket",
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1", "AWS_PROFILE": "other",
		"AWS_CONFIG_FILE": folder, "AWS_SHARED_CREDENTIALS_FILE": folder, "AWS_MAX_ATTEMPTS": "1", "AWS_RETRY_MODE": "adaptive",
		"AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_supported",
		"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true", "AWS_CA_BUNDLE": folder,
		"AWS_ENABLE_DEFAULT_SOCKET_TIMEOUT_2026": "true", "AWS_NEW_RETRIES_2026": "true", "AWS_EXECUTION_ENV": "elsewhere",
		"AWS_LAMBDA_FUNCTION_NAME": "f", "_X_AMZN_TRACE_ID": "Root=1-2-3", "AWS_SDK_UA_APP_ID": "app",
		"HTTP_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	changed := sentBy(t)
	if len(plain) != 3 || len(changed) != 3 { // the positive control: both made their three attempts
		t.Fatalf("%d and %d requests", len(plain), len(changed))
	}
	for i := range plain {
		if plain[i].Path != changed[i].Path || plain[i].Region() != changed[i].Region() || plain[i].AccessKeyID() != changed[i].AccessKeyID() {
			t.Errorf("request %d: %+v became %+v", i, plain[i], changed[i])
		}
		one, other := stable(plain[i].Header), stable(changed[i].Header)
		if !maps.Equal(one, other) {
			t.Errorf("request %d: headers %v became %v", i, one, other)
		}
	}
}

// sentBy puts an object with a fresh client against a service that fails twice.
func sentBy(t *testing.T) []artifacttest.S3Request {
	t.Helper()
	params := cloud
	params.Name = "store.example"
	server := artifacttest.StartS3(t, params)
	o := optionsFor(server)
	o.Endpoint = "https://store.example" // no address of this machine, which proxies are not used for
	o.Network.Dial = server.Dial
	fault := artifacttest.Fault{Do: artifacttest.Answer, Status: http.StatusBadGateway, Code: "BadGateway"}
	server.Script(fault.Times(2)...)
	if err := newSample(t, artifact.Project, []byte("content")).put(t, openOn(t, o, hasty())); err != nil {
		t.Fatal(err)
	}
	return server.Requests("")
}

// stable gives the headers without those that are new with every request.
func stable(header http.Header) map[string]string {
	out := map[string]string{}
	for name := range header {
		switch name {
		case "Authorization", "X-Amz-Date", "Amz-Sdk-Invocation-Id":
			out[name] = "set"
		case "Amz-Sdk-Request":
			attempt, _, _ := strings.Cut(header.Get(name), ";") // a deadline may follow
			out[name] = attempt
		default:
			out[name] = header.Get(name)
		}
	}
	return out
}
