package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

const orders = "../../examples/orders"

// The job that the product is there for, as a manager does it: deploy a
// project, call it, change it, deploy it again, and keep the data.
func TestMainJob(t *testing.T) {
	t.Parallel()
	d := start(t, filepath.Join(t.TempDir(), "data"))
	first := d.cliDeploy(orders)

	order := `{"customer":"Acme","lines":[{"sku":"` + sku(t) + `","quantity":2}]}`
	var made, got map[string]any
	d.json("POST", "/worker/invoke/orders.create", d.ManagerToken, order).into(t, 200, &made)
	if made["id"] != float64(1) || made["created_by"] != "user:dev-manager" {
		t.Errorf("made %v", made)
	}
	var worker gen.Worker
	d.call("GET", "/worker", d.ManagerToken, "", "").into(t, 200, &worker)
	base := "/w/" + worker.ScriptName
	if worker.Status != gen.Active || worker.CurrentVersionID == nil || *worker.CurrentVersionID != first.ID {
		t.Errorf("worker %+v", worker)
	}
	d.json("POST", base+"/orders", d.ManagerToken, order).into(t, 200, &made)
	d.call("GET", base+"/orders/1", d.ManagerToken, "", "").into(t, 200, &got)
	if got["status"] != "open" || got["customer"] != "Acme" {
		t.Errorf("order 1: %v", got)
	}
	if n := d.orders(base); n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
	out, errs, exit := d.run("invoke", "orders.get", "--input", `{"id":"2"}`)
	if exit != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"id":2`) {
		t.Errorf("edgectl invoke: %d %s %s", exit, out, errs)
	}
	d.badInputs(base)

	second := d.cliDeploy(changed(t))
	d.call("GET", base+"/orders/1", d.ManagerToken, "", "").into(t, 200, &got)
	if got["release"] != "second" || got["customer"] != "Acme" || d.orders(base) != 2 {
		t.Errorf("after the second release: %v", got)
	}
	for id, want := range map[string]gen.VersionState{first.ID: gen.VersionStateSuperseded, second.ID: gen.VersionStateDeployed} {
		var v gen.Version
		d.call("GET", "/worker/versions/"+id, d.ManagerToken, "", "").into(t, 200, &v)
		if v.State != want {
			t.Errorf("revision %d is %s, want %s", v.Revision, v.State, want)
		}
		source := d.call("GET", "/worker/versions/"+id+"/source", d.ManagerToken, "", "")
		if source.code != 200 || canonical.SHA256(source.body) != v.ProjectDigest {
			t.Errorf("source of revision %d: %d", v.Revision, source.code)
		}
	}
	if code := d.stop(); code != 0 {
		t.Errorf("Ctrl-C ends it with %d", code)
	}

	again := start(t, d.data) // an ordinary restart
	if n := again.orders(base); n != 2 {
		t.Errorf("%d orders after a restart, want 2", n)
	}
}

// badInputs: each is the author's schema speaking, with the place of the fault.
func (d *dev) badInputs(base string) {
	d.t.Helper()
	for _, c := range []struct{ method, path, body, names string }{
		{"POST", "/worker/invoke/orders.create", `{"customer":"Acme"}`, "lines"},
		{"POST", base + "/orders", `{"customer":7,"lines":[]}`, "customer"},
		{"GET", base + "/orders/zero", "", "id"},
		{"GET", base + "/orders?limit=1000", "", "limit"},
		{"POST", base + "/orders", `{"customer":"Acme","lines":[{"sku":"NO-000","quantity":1}]}`, "NO-000"},
	} {
		got := d.json(c.method, c.path, d.ManagerToken, c.body)
		var body struct{ Detail any }
		got.into(d.t, http.StatusUnprocessableEntity, &body)
		if !strings.Contains(string(got.body), c.names) {
			d.t.Errorf("%s %s: %s does not name %s", c.method, c.path, got.body, c.names)
		}
	}
	if n := d.orders(base); n != 2 {
		d.t.Errorf("%d orders after refused inputs, want 2", n)
	}
}

func (d *dev) orders(base string) int {
	d.t.Helper()
	var list struct{ Orders []any }
	d.call("GET", base+"/orders", d.ManagerToken, "", "").into(d.t, 200, &list)
	return len(list.Orders)
}

// cliDeploy deploys a folder with the command line and waits for its end.
func (d *dev) cliDeploy(folder string) gen.Version {
	d.t.Helper()
	out, errs, exit := d.run("deploy", folder, "--wait", "--json")
	var done struct {
		Version gen.Version
		Ticket  gen.Ticket
	}
	if exit != 0 || json.Unmarshal([]byte(out), &done) != nil || done.Ticket.Status != gen.TicketStatusCompleted {
		d.t.Fatalf("edgectl deploy: exit %d\n%s\n%s\n%s", exit, out, errs, tail(d.data+".log"))
	}
	return done.Version
}

// sku is a product of the example's static data.
func sku(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(orders, "static", "products.json"))
	must(t, err)
	var static struct{ Products map[string]any }
	must(t, json.Unmarshal(raw, &static))
	for name := range static.Products {
		return name
	}
	t.Fatal("the example sells nothing")
	return ""
}

// changed is a copy of the example with one more field in an order.
func changed(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "orders")
	must(t, os.CopyFS(folder, os.DirFS(orders)))
	name := filepath.Join(folder, "src", "index.ts")
	raw, err := os.ReadFile(name)
	must(t, err)
	const old = "return { ...getOrder(ctx, Number(input.id)), currency"
	text := strings.Replace(string(raw), old, `return { ...getOrder(ctx, Number(input.id)), release: "second", currency`, 1)
	if text == string(raw) {
		t.Fatal("the example has changed: this test adds a field to orders.get")
	}
	must(t, os.WriteFile(name, []byte(text), 0o600))
	return folder
}
