package scriptstore

import (
	"errors"
	"io/fs"
	"regexp"

	"github.com/teamsync/edge-workers/pkg/provider"
)

var fencePattern = regexp.MustCompile(`\A[0-9A-Za-z-]{1,64}\z`)

// ValidFence reports whether id names a fence: 1 to 64 letters, digits and
// hyphens.
func ValidFence(id string) bool { return fencePattern.MatchString(id) }

// Fence reads the fence; a folder that never had one has the zero Fence.
func (s *Store) Fence() (provider.Fence, error) {
	var fence provider.Fence
	err := readJSON(s.path("fence.json"), &fence)
	if errors.Is(err, fs.ErrNotExist) {
		return provider.Fence{}, nil
	}
	return fence, err
}

// SetFence replaces the fence: atomic and durable. After an error read it
// again; it is the old or the new one.
func (s *Store) SetFence(fence provider.Fence) error { return writeJSON(s.path("fence.json"), fence) }
