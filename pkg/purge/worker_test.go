package purge_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/purge"
)

const (
	script = "dw-0123456789abcdef0123456789abcdef0123456789abcdef"
	when   = "2026-01-02T03:04:05.678Z"
)

var generation = strings.Repeat("ab", 32)

type object = map[string]any

// command is what arrived at the Worker.
type command struct {
	Operation         string            `json:"operation"`
	MutationID        string            `json:"mutationId"`
	CommandDigest     string            `json:"commandDigest"`
	ReleaseGeneration string            `json:"releaseGeneration"`
	Payload           map[string]string `json:"payload"`
}

// worker answers as the runtime of a release does. fault may take over the
// answer to a command; apply is the command's work, which it may do or not.
type worker struct {
	*httptest.Server
	mu       sync.Mutex
	secrets  map[string]bool
	receipts map[string]object
	seen     []command
	fault    func(w http.ResponseWriter, c command, apply func() object) bool
	log      bytes.Buffer
}

func newWorker(t *testing.T, names ...string) *worker {
	t.Helper()
	k := &worker{secrets: map[string]bool{}, receipts: map[string]object{}}
	for _, name := range names {
		k.secrets[name] = true
	}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		raw, _ := io.ReadAll(r.Body)
		var c command
		if json.Unmarshal(raw, &c) != nil || r.URL.Path != "/"+script+"/__control" || c.ReleaseGeneration != generation {
			t.Errorf("%s %s", r.URL.Path, raw)
		}
		k.seen = append(k.seen, c)
		apply := func() object { return k.apply(c) }
		if k.fault == nil || !k.fault(w, c, apply) {
			answer(w, c, apply())
		}
	}))
	t.Cleanup(k.Close)
	return k
}

// answer writes the answer of a release that executed the command.
func answer(w http.ResponseWriter, c command, result object) {
	_ = json.NewEncoder(w).Encode(object{"operation": c.Operation, "releaseGeneration": c.ReleaseGeneration, "result": result})
}

func refuse(w http.ResponseWriter, status int, code string) bool {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"detail": object{"code": code, "message": "m"}})
	return true
}

// hangUp ends the connection without an answer.
func hangUp() bool { panic(http.ErrAbortHandler) }

// apply is what the runtime does (runtime/src/secrets.ts, commands.ts).
func (k *worker) apply(c command) object {
	about := c.Payload["mutationId"]
	switch c.Operation {
	case "secrets.list":
		list := []object{}
		for _, name := range slices.Sorted(maps.Keys(k.secrets)) {
			list = append(list, object{"name": name, "sha256": generation, "updated_at": when})
		}
		return object{"secrets": list}
	case "control.receipt.get":
		receipt := k.receipts[about]
		return object{"found": receipt != nil, "receipt": receipt}
	case "control.receipt.ack":
		delete(k.receipts, about)
		return object{"acknowledged": true}
	}
	result := object{"purged": len(k.secrets)}
	if c.Operation == "secrets.delete" {
		name := c.Payload["name"]
		was := k.secrets[name]
		delete(k.secrets, name)
		result = object{"conflict": false, "deleted": was, "current": object{"name": name, "deleted": was, "updated_at": when}}
	} else {
		clear(k.secrets)
	}
	k.receipts[c.MutationID] = object{
		"mutationId": c.MutationID, "operation": c.Operation, "commandDigest": c.CommandDigest, "result": result, "createdAt": when,
	}
	return result
}

// purge runs a purge of a live release of the policy.
func (k *worker) purge(t *testing.T, policy builder.Policy) error {
	t.Helper()
	return k.purgeIn(t.Context(), t, policy)
}

func (k *worker) purgeIn(ctx context.Context, t *testing.T, policy builder.Policy) error {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := control.NewSigner(private, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := control.NewClient(k.URL, signer)
	if err != nil {
		t.Fatal(err)
	}
	purger := purge.New(client, "system:test", slog.New(slog.NewTextHandler(&k.log, nil)))
	return purger.PurgeSecrets(ctx, deploy.Purge{ScriptName: script, Generation: generation, Policy: policy})
}

// operations lists what arrived, in order.
func (k *worker) operations() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := []string{}
	for _, c := range k.seen {
		name := strings.TrimPrefix(strings.TrimPrefix(c.Operation, "control.receipt."), "secrets.")
		if c.Operation == "secrets.delete" {
			name += ":" + c.Payload["name"]
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}
