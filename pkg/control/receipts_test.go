package control

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// S1-163, S1-209: a query is one of two commands with exactly two fields and no
// mutation id of its own.
func TestReceipts(t *testing.T) {
	t.Parallel()
	var bodies []map[string]any
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		var body map[string]any
		if json.Unmarshal(raw, &body) != nil {
			t.Errorf("body: %s", raw)
		}
		bodies = append(bodies, body)
		_ = json.NewEncoder(w).Encode(map[string]any{"operation": body["operation"], "releaseGeneration": body["releaseGeneration"], "result": map[string]any{"n": len(bodies)}})
	}))
	t.Cleanup(gateway.Close)
	client, err := NewClient(gateway.URL, newSigner(t))
	if err != nil {
		t.Fatal(err)
	}
	receipts := NewReceipts(client, "system:test")
	q := ReceiptQuery{Script: script, Generation: generation, MutationID: "m-1", CommandDigest: strings.Repeat("0", 64)}
	got, err := receipts.Get(t.Context(), q)
	acked, also := receipts.Ack(t.Context(), q)
	if err != nil || also != nil || string(got) != `{"n":1}` || string(acked) != `{"n":2}` || len(bodies) != 2 {
		t.Fatalf("%s, %s, %v, %v", got, acked, err, also)
	}
	for i, operation := range []string{"control.receipt.get", "control.receipt.ack"} {
		payload, _ := bodies[i]["payload"].(map[string]any)
		if bodies[i]["operation"] != operation || bodies[i]["mutationId"] != nil || bodies[i]["releaseGeneration"] != generation ||
			len(payload) != 2 || payload["mutationId"] != "m-1" || payload["commandDigest"] != q.CommandDigest {
			t.Errorf("%v", bodies[i])
		}
	}
}

// The exported digest is the one in the body: over operation and payload.
func TestCommandDigest(t *testing.T) {
	t.Parallel()
	for _, payload := range []any{nil, map[string]any{}, map[string]any{"b": 1, "a": "x"}, json.RawMessage(`{"a":"x", "b":1.0}`)} {
		digest, err := CommandDigest("secrets.delete", payload)
		if err != nil || !canonical.IsSHA256(digest) {
			t.Fatalf("%s, %v", digest, err)
		}
		raw, err := encode(Command{Script: script, Generation: generation, Operation: "secrets.delete", Payload: payload})
		if err != nil || !strings.Contains(string(raw), digest) {
			t.Errorf("%s: %s, %v", digest, raw, err)
		}
		if other, _ := CommandDigest("secrets.put", payload); other == digest {
			t.Error("two operations have one digest")
		}
	}
	one, _ := CommandDigest("x", nil)
	two, _ := CommandDigest("x", map[string]any{})
	if one != two {
		t.Error("no payload is not {}")
	}
	if _, err := CommandDigest("x", func() {}); err == nil {
		t.Error("a function has a digest")
	}
}
