package s3store

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"
)

// maxClients is how many clients a process keeps (S0-26).
const maxClients = 8

// process holds the clients of this process (S0-25).
var process = newCache(maxClients, func(o Options) *client { return newClient(o, production) })

// combination tells clients apart (S0-24). The credentials are in it as a keyed
// hash, so that no dump of the cache shows them or lets them be guessed.
type combination struct {
	endpoint, bucket, region string
	pathStyle                bool
	network                  *Network
	credentials              [sha256.Size]byte
}

type cached struct {
	of     combination
	client *client
}

// cache keeps the most recently opened clients. A client that falls out goes on
// serving the stores that hold it.
type cache struct {
	build func(Options) *client
	max   int
	salt  [sha256.Size]byte

	mu      sync.Mutex
	entries []cached // the least recently used one first
}

func newCache(max int, build func(Options) *client) *cache {
	c := &cache{build: build, max: max}
	_, _ = rand.Read(c.salt[:]) // never fails
	return c
}

// get gives the client of a combination and builds it at most once while it is
// cached. Building asks nobody, so it may be done under the lock.
func (c *cache) get(o Options) *client {
	of := c.combination(o)
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.IndexFunc(c.entries, func(e cached) bool { return e.of == of })
	if at >= 0 {
		entry := c.entries[at]
		c.entries = append(slices.Delete(c.entries, at, at+1), entry)
		return entry.client
	}
	if len(c.entries) == c.max {
		c.entries[0].client.transport.CloseIdleConnections()
		c.entries = slices.Delete(c.entries, 0, 1)
	}
	entry := cached{of: of, client: c.build(o)}
	c.entries = append(c.entries, entry)
	return entry.client
}

func (c *cache) combination(o Options) combination {
	hash := hmac.New(sha256.New, c.salt[:])
	for _, part := range []string{o.Credentials.id, o.Credentials.reveal()} {
		_, _ = hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // a hash takes everything
		_, _ = hash.Write([]byte(part))
	}
	return combination{
		endpoint: o.Endpoint, bucket: o.Bucket, region: o.Region, pathStyle: o.PathStyle,
		network: o.Network, credentials: [sha256.Size]byte(hash.Sum(nil)),
	}
}
