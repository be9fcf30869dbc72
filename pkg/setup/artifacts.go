package setup

import (
	"fmt"

	"github.com/teamsync/edge-workers/pkg/artifact"
	"github.com/teamsync/edge-workers/pkg/artifact/s3store"
	"github.com/teamsync/edge-workers/pkg/config"
)

// OpenStore opens the artifact store that the settings select (S0-01), behind
// its fence; it sends nothing. The error says what is missing or wrong in the
// settings. network is nil but in tests.
func OpenStore(settings config.Settings, network *s3store.Network) (artifact.Store, error) {
	selected, err := settings.ArtifactStore()
	if err != nil {
		return nil, err
	}
	backend, err := s3store.Open(s3store.Options{
		Endpoint: selected.Endpoint, Bucket: selected.Bucket, Region: selected.Region, PathStyle: true,
		Credentials: s3store.NewCredentials(selected.AccessKeyID.Reveal(), selected.SecretAccessKey.Reveal()), Network: network,
	})
	if err != nil {
		return nil, fmt.Errorf("settings of the artifact store: %w", err)
	}
	return artifact.NewFenced(backend), nil
}

// openArtifacts gives the store that the process brought, or that of its
// settings. Opening it again costs nothing: its client is kept (S0-25).
func openArtifacts(p Params) func() (artifact.Store, error) {
	return func() (artifact.Store, error) {
		if p.Store != nil {
			return p.Store, nil
		}
		return OpenStore(p.Settings, p.Network)
	}
}
