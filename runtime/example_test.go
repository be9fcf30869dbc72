package runtime_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/project"
)

// TestOrders walks through the example project as its README does.
func TestOrders(t *testing.T) {
	t.Parallel()
	b := example(t)
	if len(b.out.Warnings) != 0 {
		t.Errorf("the example has warnings: %v", b.out.Warnings)
	}
	w := mustStart(t, b.out.Bundle, t.TempDir())
	times := regexp.MustCompile(`"created_at":"[0-9TZ:.-]+"`)
	steps := []struct {
		op, input string
		status    int
		body      string
	}{
		{"stats.summary", ``, 200, `{"open":0,"cancelled":0,"open_total_cents":0,"best_sellers":[],"currency":"EUR"}`},
		{"orders.create", `{"customer":"ACME","lines":[{"sku":"CH-001","quantity":2},{"sku":"LP-001","quantity":3}]}`, 200,
			`{"id":1,"customer":"ACME","note":null,"status":"open","total_cents":52650,"created_by":"user:42","created_at":T,` +
				`"lines":[{"sku":"CH-001","quantity":2,"unit_cents":18900,"name":"Office chair"},` +
				`{"sku":"LP-001","quantity":3,"unit_cents":4950,"name":"Desk lamp"}],"currency":"EUR"}`},
		{"orders.create", `{"customer":"Bolt","note":"soon","lines":[{"sku":"DS-001","quantity":1}]}`, 200,
			`{"id":2,"customer":"Bolt","note":"soon","status":"open","total_cents":34900,"created_by":"user:42","created_at":T,` +
				`"lines":[{"sku":"DS-001","quantity":1,"unit_cents":34900,"name":"Desk, 160 cm"}],"currency":"EUR"}`},
		{"orders.create", `{"customer":"Bolt","lines":[{"sku":"ZZ-999","quantity":1}]}`, 422,
			`{"detail":{"code":"product_unknown","message":"There is no product ZZ-999"}}`},
		{"orders.create", `{"customer":"","lines":[{"sku":"x","quantity":0,"z":1}]}`, 422,
			`{"detail":[{"type":"schema_violation","loc":["body","customer"],"msg":"String is too short (0 < 1)."},` +
				`{"type":"schema_violation","loc":["body","lines",0,"quantity"],"msg":"0 is less than 1."},` +
				`{"type":"schema_violation","loc":["body","lines",0,"sku"],"msg":"String does not match pattern."},` +
				`{"type":"schema_violation","loc":["body","lines",0,"z"],"msg":"The key is not allowed here"}]}`},
		{"orders.list", `{"limit":"1"}`, 200,
			`{"orders":[{"id":2,"customer":"Bolt","note":"soon","status":"open","total_cents":34900,"created_by":"user:42","created_at":T}],"next":"2"}`},
		{"orders.list", `{"limit":"1","before":"2"}`, 200,
			`{"orders":[{"id":1,"customer":"ACME","note":null,"status":"open","total_cents":52650,"created_by":"user:42","created_at":T}],"next":"1"}`},
		{"orders.cancel", `{"id":"2"}`, 200, `{"id":2,"status":"cancelled"}`},
		{"orders.cancel", `{"id":"2"}`, 409, `{"detail":{"code":"order_not_open","message":"Order 2 is cancelled"}}`},
		{"orders.cancel", `{"id":"9"}`, 404, `{"detail":{"code":"order_not_found","message":"There is no order 9"}}`},
		{"orders.list", `{"status":"cancelled"}`, 200,
			`{"orders":[{"id":2,"customer":"Bolt","note":"soon","status":"cancelled","total_cents":34900,"created_by":"user:42","created_at":T}],"next":null}`},
		{"stats.summary", ``, 200,
			`{"open":1,"cancelled":1,"open_total_cents":52650,"best_sellers":[{"sku":"LP-001","quantity":3},{"sku":"CH-001","quantity":2}],"currency":"EUR"}`},
	}
	for _, step := range steps {
		got := b.invoke(t, w, step.op, step.input)
		body := times.ReplaceAllString(got.body, `"created_at":T`)
		if got.status != step.status || body != step.body {
			t.Fatalf("%s %s\ngot  %d %s\nwant %d %s", step.op, step.input, got.status, body, step.status, step.body)
		}
	}
}

// TestScaffoldRuns: what `edgectl init` writes can be deployed as it is.
func TestScaffoldRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	err := project.Scaffold(dir, "New one")
	if err != nil {
		t.Fatal(err)
	}
	archive, err := project.Pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	b := build(t, archive, builder.Current)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	if got := b.invoke(t, w, "notes.add", `{"text":"hello"}`); got.status != 200 || got.body != `{"id":1}` {
		t.Errorf("add: %v", got)
	}
	if got := b.invoke(t, w, "notes.list", `{}`); got.body != `[{"id":1,"text":"hello","author":"user:42"}]` {
		t.Errorf("list: %v", got)
	}
}

// BenchmarkInvoke is one invocation on an idle process: door, data instance,
// control instance, handler, one SQL query.
func BenchmarkInvoke(b *testing.B) {
	built := probe(b)
	w := mustStart(b, built.out.Bundle, b.TempDir())
	for b.Loop() {
		if got := built.invoke(b, w, "rows", "1"); got.status != 200 {
			b.Fatal(got)
		}
	}
}
