package runtime_test

import (
	"strings"
	"testing"
)

func nested(levels int) string {
	return strings.Repeat("[", levels) + strings.Repeat("]", levels)
}

func TestContext(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	got := b.invoke(t, w, "context", "")
	want := `{"keys":["caller","config","fetch","log","operation","requestId","secrets","serviceAccount","staticData","storage"],"self":"undefined","config":{},` +
		`"caller":{"kind":"member","sub":"user:42","companyId":"c1","departmentId":"d1","roles":["department_manager"]},` +
		`"operation":"context","requestId":"req-1","frozen":true}`
	if got.status != 200 || got.body != want {
		t.Errorf("got  %d %s\nwant 200 %s", got.status, got.body, want)
	}
	line := `{"level":"warn","msg":"a line","operation":"context","request_id":"req-1","fields":{"n":1}}`
	w.stderr.await(t, line)
}

// The text of an author's error is for the log alone.
func TestErrorTextStaysInTheLog(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	got := b.invoke(t, w, "boom", "")
	if strings.Contains(got.body, "private") {
		t.Errorf("the answer tells the error's text: %s", got.body)
	}
	w.stderr.await(t, "the private text")
}

// D9: the data instance holds the author's tables and nothing else; control
// state is in another instance.
func TestAuthorStorageHoldsNoControlState(t *testing.T) {
	t.Parallel()
	b := probe(t)
	w := mustStart(t, b.out.Bundle, t.TempDir())
	if got := b.command(t, w, "access_policy.get", "{}"); got.status != 200 {
		t.Fatalf("control: %v", got)
	}
	if got := b.invoke(t, w, "tables", ""); got.body != `[]` {
		t.Errorf("the author sees tables: %v", got)
	}
	b.invoke(t, w, "rollback", "")
	if got := b.invoke(t, w, "tables", ""); got.body != `[{"name":"t"}]` {
		t.Errorf("the author's own table is not seen: %v", got)
	}
}

func TestStorageSurvivesKill(t *testing.T) {
	t.Parallel()
	b := example(t)
	storage := t.TempDir()
	w := mustStart(t, b.out.Bundle, storage)
	got := b.invoke(t, w, "orders.create", `{"customer":"ACME","lines":[{"sku":"CH-001","quantity":2}]}`)
	if got.status != 200 {
		t.Fatalf("create: %v", got)
	}
	w.kill()
	w = mustStart(t, b.out.Bundle, storage)
	got = b.invoke(t, w, "orders.get", `{"id":"1"}`)
	if got.status != 200 || got.value(t)["total_cents"] != 37800.0 {
		t.Errorf("after the restart: %v", got)
	}
}
