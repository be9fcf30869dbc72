package project

import (
	"crypto/sha256"
	"sync"
)

// maxSound bounds the remembered schemas: at 32 bytes each, 128 KiB.
const maxSound = 4096

// sound remembers schemas that were found valid, by the SHA-256 of their text:
// most submissions bring the schemas of the one before. It is safe for
// concurrent use. When it is full it begins anew.
type sound struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]struct{}
}

var soundSchemas = &sound{}

func (s *sound) has(text []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, found := s.known[sha256.Sum256(text)]
	return found
}

func (s *sound) keep(text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil || len(s.known) >= maxSound {
		s.known = map[[sha256.Size]byte]struct{}{}
	}
	s.known[sha256.Sum256(text)] = struct{}{}
}
