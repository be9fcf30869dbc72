package config

import (
	"errors"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// The regions in which requests are signed (S0-12, S0-18), and the kind that
// S3_PROVIDER must name in the cloud (S0-08).
const (
	r2Region     = "auto"
	onPremRegion = "us-east-1"
	r2           = "r2"
)

// artifactsOrigin is the on-prem kit's one artifact service (S0-16). A kit that
// calls it otherwise is built with
//
//	-ldflags '-X github.com/teamsync/edge-workers/pkg/config.artifactsOrigin=http://host:9000'
var artifactsOrigin = "http://edge-workers-artifacts:9000"

// ArtifactStore is one store of artifacts, ready to be opened: a bucket at an
// endpoint that is addressed by path (S0-17).
type ArtifactStore struct {
	Endpoint, Bucket, Region     string
	AccessKeyID, SecretAccessKey Secret
}

// ArtifactStore gives the store of the selected provider, and only that
// (S0-01). The error names every variable that is missing or wrong, and what
// Resolve says of the provider; it never repeats a value.
func (s Settings) ArtifactStore() (ArtifactStore, error) {
	kind, err := s.Provider.Resolve()
	if err != nil {
		return ArtifactStore{}, err
	}
	if kind == provider.Cloudflare {
		return s.Artifacts.r2(s.Provider.CloudflareAccountID)
	}
	return s.Artifacts.onPrem()
}

// r2 has no way to the application's bucket, endpoint or credentials (S0-03,
// S0-06, S0-07): they are read nowhere.
func (a Artifacts) r2(account string) (ArtifactStore, error) {
	endpoint := "https://" + account + ".r2.cloudflarestorage.com"
	faults := []error{
		named("EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID", cloudflare.CheckAccountID(account)),
		needed("EDGE_WORKERS_R2_BUCKET", a.R2Bucket),
		neededSecret("EDGE_WORKERS_R2_ACCESS_KEY_ID", a.R2AccessKeyID),
		neededSecret("EDGE_WORKERS_R2_SECRET_ACCESS_KEY", a.R2SecretAccessKey),
	}
	if a.S3Provider != r2 {
		faults = append(faults, fmt.Errorf("S3_PROVIDER must be %s", r2))
	}
	// Compared as a text: whatever is equal to this has no user, port, path,
	// query or fragment (S0-09, S0-10, S0-11).
	if a.S3EndpointURL != "" && a.S3EndpointURL != endpoint {
		faults = append(faults, errors.New("S3_ENDPOINT_URL is not https://ACCOUNT.r2.cloudflarestorage.com with the account of EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"))
	}
	err := errors.Join(faults...)
	if err != nil {
		return ArtifactStore{}, err
	}
	return ArtifactStore{
		Endpoint: endpoint, Bucket: a.R2Bucket, Region: r2Region,
		AccessKeyID: a.R2AccessKeyID, SecretAccessKey: a.R2SecretAccessKey,
	}, nil
}

// onPrem follows none of the rules of R2 (S0-19).
func (a Artifacts) onPrem() (ArtifactStore, error) {
	const variable = "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"
	faults := []error{
		needed(variable, a.EndpointURL),
		needed("EDGE_WORKERS_ARTIFACTS_BUCKET", a.Bucket),
		neededSecret("EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID", a.AccessKeyID),
		neededSecret("EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY", a.SecretAccessKey),
	}
	if a.EndpointURL != "" && a.EndpointURL != artifactsOrigin {
		faults = append(faults, fmt.Errorf("%s is not %s", variable, artifactsOrigin))
	}
	err := errors.Join(faults...)
	if err != nil {
		return ArtifactStore{}, err
	}
	return ArtifactStore{
		Endpoint: artifactsOrigin, Bucket: a.Bucket, Region: onPremRegion,
		AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey,
	}, nil
}

func neededSecret(variable string, value Secret) error { return needed(variable, value.Reveal()) }
