// Package control is what the fault matrix and its nodes say to each other:
// the configuration and the reply of a node, and the addresses at which the
// matrix plays the outside world.
package control

import "github.com/teamsync/edge-workers/models"

// Config is a node's configuration, passed as its first argument.
type Config struct {
	DSN       string        `json:"dsn"`
	Redis     string        `json:"redis"`
	Store     string        `json:"store"`  // the artifact store's folder
	Origin    string        `json:"origin"` // of the matrix's server
	Namespace string        `json:"namespace"`
	Key       []byte        `json:"key"` // Ed25519 public key of the builder
	Tenant    models.Tenant `json:"tenant"`
}

// Reply is what a node prints.
type Reply struct {
	Version string         `json:"version,omitempty"`
	Ticket  string         `json:"ticket,omitempty"`
	Sweep   map[string]int `json:"sweep,omitempty"`
	Error   string         `json:"error,omitempty"`
}

// The paths of the matrix's server, besides the provider's script API.
const (
	HitPath     = "/hit"    // POST: a failpoint was hit; the body is its value
	FrozenPath  = "/frozen" // POST: the process stops now; the body is its connection's number
	PublishPath = "/queue"  // POST: a message is handed to the transport
	ProbePath   = "/probe/" // GET script/generation: a readiness probe
)
