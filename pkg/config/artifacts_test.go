package config

import (
	"errors"
	"strings"
	"testing"
)

const account = "0123456789abcdef0123456789abcdef"

// inCloud is a complete environment of the cloud's store, changed by the pairs.
func inCloud(pairs ...string) map[string]string {
	return with(append([]string{
		"EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID", account, "EDGE_WORKERS_R2_BUCKET", "edge-artifacts",
		"EDGE_WORKERS_R2_ACCESS_KEY_ID", "key", "EDGE_WORKERS_R2_SECRET_ACCESS_KEY", hidden, "S3_PROVIDER", "r2",
	}, pairs...)...)
}

// inKit is a complete environment of the on-prem kit's store.
func inKit(pairs ...string) map[string]string {
	return with(append([]string{
		"EDGE_WORKERS_PROVIDER", "onprem", "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL", "http://edge-workers-artifacts:9000",
		"EDGE_WORKERS_ARTIFACTS_BUCKET", "kit-artifacts", "EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID", "kit-key",
		"EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY", hidden,
	}, pairs...)...)
}

// application is what an application beside this module may have set. None of
// it is ever a substitute.
var application = []string{
	"AWS_S3_BUCKET", "application-bucket", "AWS_ACCESS_KEY_ID", "application-key", "AWS_SECRET_ACCESS_KEY", "application-secret",
	"S3_BUCKET", "application-bucket", "S3_ACCESS_KEY_ID", "application-key", "S3_SECRET_ACCESS_KEY", "application-secret",
	"AWS_REGION", "eu-west-1", "AWS_DEFAULT_REGION", "eu-west-1", "AWS_ENDPOINT_URL_S3", "https://s3.example",
}

func resolve(t *testing.T, environment map[string]string) (ArtifactStore, error) {
	t.Helper()
	settings, err := Load(environment, API)
	if err != nil {
		t.Fatalf("the start is refused: %v", err)
	}
	return settings.ArtifactStore()
}

// S0-01, S0-02, S0-04, S0-05, S0-12, S0-14, S0-15, S0-18, S0-19: each provider
// has its own store, whatever else is set, and R2 is the default.
func TestArtifactStore(t *testing.T) {
	t.Parallel()
	cloudStore := ArtifactStore{Endpoint: "https://" + account + ".r2.cloudflarestorage.com", Bucket: "edge-artifacts", Region: "auto"}
	kitStore := ArtifactStore{Endpoint: "http://edge-workers-artifacts:9000", Bucket: "kit-artifacts", Region: "us-east-1"}
	both := inKit()
	for name, value := range inCloud() {
		both[name] = value
	}
	both["EDGE_WORKERS_PROVIDER"] = "onprem"
	for name, c := range map[string]struct {
		environment map[string]string
		want        ArtifactStore
		key         string
	}{
		"default":                             {inCloud(), cloudStore, "key"},
		"cloudflare":                          {inCloud("EDGE_WORKERS_PROVIDER", "cloudflare"), cloudStore, "key"},
		"canonical endpoint":                  {inCloud("S3_ENDPOINT_URL", cloudStore.Endpoint), cloudStore, "key"},
		"cloud beside an application":         {inCloud(application...), cloudStore, "key"},
		"onprem":                              {inKit(), kitStore, "kit-key"},
		"onprem, Kubernetes":                  {inKit("EDGE_WORKERS_ARTIFACTS_SERVICE_HOST", "10.0.0.1", "EDGE_WORKERS_ARTIFACTS_PORT", "tcp://10.0.0.1:9000", "EDGE_WORKERS_ARTIFACTS_PORT_9000_TCP_ADDR", "10.0.0.1"), kitStore, "kit-key"},
		"onprem beside an application":        {inKit(application...), kitStore, "kit-key"},
		"onprem with another S3_PROVIDER":     {inKit("S3_PROVIDER", "aws"), kitStore, "kit-key"},
		"onprem with another S3_ENDPOINT_URL": {inKit("S3_ENDPOINT_URL", "https://s3.example/x"), kitStore, "kit-key"},
		"onprem with the cloud's settings":    {both, kitStore, "kit-key"},
	} {
		got, err := resolve(t, c.environment)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.AccessKeyID.Reveal() != c.key || got.SecretAccessKey.Reveal() != hidden {
			t.Errorf("%s: another key pair", name)
		}
		got.AccessKeyID, got.SecretAccessKey = Secret{}, Secret{}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// S0-04, S0-05, S0-06, S0-07, S0-15: what is missing is named, and nothing of
// the application takes its place.
func TestArtifactStoreIsNotConfigured(t *testing.T) {
	t.Parallel()
	cases := map[string]func(...string) map[string]string{
		"EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID": inCloud, "EDGE_WORKERS_R2_BUCKET": inCloud, "EDGE_WORKERS_R2_ACCESS_KEY_ID": inCloud,
		"EDGE_WORKERS_R2_SECRET_ACCESS_KEY": inCloud, "S3_PROVIDER": inCloud,
		"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL": inKit, "EDGE_WORKERS_ARTIFACTS_BUCKET": inKit,
		"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID": inKit, "EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY": inKit,
	}
	for variable, complete := range cases {
		got, err := resolve(t, complete(append([]string{variable, ""}, application...)...))
		if err == nil || !strings.HasPrefix(err.Error(), variable) || strings.Contains(err.Error(), "\n") || got != (ArtifactStore{}) {
			t.Errorf("without %s: %+v, %v", variable, got, err)
		}
		if _, err = resolve(t, complete()); err != nil { // the control
			t.Errorf("with %s: %v", variable, err)
		}
	}
	_, err := resolve(t, with(application...))
	if err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("all faults at once: %v", err)
	}
	_, err = resolve(t, inCloud("EDGE_WORKERS_PROVIDER", "lambda"))
	if !errors.Is(err, ErrProviderInvalid) {
		t.Errorf("unknown provider: %v", err)
	}
}

// S0-08: r2 and nothing else.
func TestS3Provider(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"R2", "aws", "s3", "minio", "cloudflare", "r2,aws"} {
		_, err := resolve(t, inCloud("S3_PROVIDER", value))
		if err == nil || err.Error() != "S3_PROVIDER must be r2" {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// S0-09, S0-10, S0-11: the account's canonical endpoint and no other.
func TestS3EndpointURL(t *testing.T) {
	t.Parallel()
	const host = account + ".r2.cloudflarestorage.com"
	for name, value := range map[string]string{
		"http": "http://" + host, "another account": "https://fedcba9876543210fedcba9876543210.r2.cloudflarestorage.com",
		"another host": "https://s3.amazonaws.com", "suffix": "https://" + host + ".example.com", "look-alike": "https://" + account + ".r2.cloudf1arestorage.com",
		"no account": "https://r2.cloudflarestorage.com", "jurisdiction": "https://" + account + ".eu.r2.cloudflarestorage.com",
		"userinfo": "https://user:" + hidden + "@" + host, "port": "https://" + host + ":443", "path": "https://" + host + "/edge-artifacts",
		"query": "https://" + host + "?x=y", "fragment": "https://" + host + "#x", "trailing slash": "https://" + host + "/",
		"upper case": "https://" + strings.ToUpper(host), "trailing dot": "https://" + host + ".", "no scheme": host,
	} {
		got, err := resolve(t, inCloud("S3_ENDPOINT_URL", value))
		if err == nil || !strings.HasPrefix(err.Error(), "S3_ENDPOINT_URL") || strings.Contains(err.Error(), hidden) || got != (ArtifactStore{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// S0-16: the kit's fixed origin and no other.
func TestArtifactsOrigin(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"https://edge-workers-artifacts:9000", "http://edge-workers-artifacts", "http://edge-workers-artifacts:9001", "http://edge-workers-artifacts:9000/",
		"http://edge-workers-artifacts.example:9000", "http://u:" + hidden + "@edge-workers-artifacts:9000", "https://" + account + ".r2.cloudflarestorage.com",
	} {
		_, err := resolve(t, inKit("EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL", value))
		if err == nil || err.Error() != "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL is not http://edge-workers-artifacts:9000" {
			t.Errorf("%s: %v", value, err)
		}
	}
}
