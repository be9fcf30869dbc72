package purge_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
)

// S1-118, S1-119, S1-120, S1-126, S2-111: the commands by the policy of the live
// release: each mutation is followed by its receipt, which is then acknowledged.
func TestCommands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy builder.Policy
		names  []string
		want   string
	}{
		{builder.V2_6, []string{"A", "B_2"}, "list delete:A get ack delete:B_2 get ack list"},
		{builder.V2_6, nil, "list list"},
		{builder.V2_7, []string{"A", "B_2"}, "purge get ack"},
		{builder.V2_8, nil, "purge get ack"},
	} {
		k := newWorker(t, c.names...)
		if err := k.purge(t, c.policy); err != nil {
			t.Errorf("%s: %v", c.policy, err)
		}
		if got := k.operations(); got != c.want || len(k.secrets) != 0 || len(k.receipts) != 0 || k.log.Len() != 0 {
			t.Errorf("%s: %s, want %s; left %v and %v\n%s", c.policy, got, c.want, k.secrets, k.receipts, &k.log)
		}
	}
}

// S1-163: a query names the mutation that it is about, by id and digest, and
// each mutation has an id of its own, in a second purge too: a Worker would
// answer a known id without doing anything.
func TestEachMutationHasItsID(t *testing.T) {
	t.Parallel()
	k := newWorker(t, "A", "B")
	for range 2 {
		if err := k.purge(t, builder.V2_7); err != nil {
			t.Fatal(err)
		}
		k.secrets["A"] = true
	}
	if err := k.purge(t, builder.V2_6); err != nil {
		t.Fatal(err)
	}
	ids, queries := map[string]string{}, 0
	for _, c := range k.seen {
		switch {
		case c.MutationID != "":
			if ids[c.MutationID] != "" {
				t.Error("an id was used twice")
			}
			ids[c.MutationID] = c.CommandDigest
		case strings.HasPrefix(c.Operation, "control."):
			queries++
			if ids[c.Payload["mutationId"]] != c.Payload["commandDigest"] || c.Payload["commandDigest"] == "" || len(c.Payload) != 2 {
				t.Errorf("query %v", c.Payload)
			}
		}
	}
	if len(ids) != 3 || queries != 6 {
		t.Errorf("%d mutations, %d queries", len(ids), queries)
	}
}

// how a purge may end.
const (
	confirmed   = "confirmed"
	unconfirmed = "unconfirmed" // S1-129: somebody answered, and not so
	gateway     = "gateway"     // S1-130: nobody answered
)

func end(err error) string {
	switch {
	case err == nil:
		return confirmed
	case errors.Is(err, deploy.ErrPurgeUnconfirmed):
		return unconfirmed
	}
	return gateway
}

// only makes a fault of the first n commands of an operation.
func only(operation string, n int, fault func(w http.ResponseWriter, c command, apply func() object) bool) func(http.ResponseWriter, command, func() object) bool {
	return func(w http.ResponseWriter, c command, apply func() object) bool {
		if c.Operation != operation || n == 0 {
			return false
		}
		n--
		return fault(w, c, apply)
	}
}

type fault = func(w http.ResponseWriter, c command, apply func() object) bool

func before(http.ResponseWriter, command, func() object) bool { return hangUp() }

func after(_ http.ResponseWriter, _ command, apply func() object) bool { apply(); return hangUp() }

func status(status int, code string) fault {
	return func(w http.ResponseWriter, _ command, _ func() object) bool { return refuse(w, status, code) }
}

func applied(status int, code string) fault {
	return func(w http.ResponseWriter, _ command, apply func() object) bool {
		apply()
		return refuse(w, status, code)
	}
}

func page(w http.ResponseWriter, _ command, apply func() object) bool {
	apply()
	_, _ = w.Write([]byte("<html>"))
	return true
}

func said(result object) fault {
	return func(w http.ResponseWriter, c command, apply func() object) bool {
		apply()
		answer(w, c, result)
		return true
	}
}

// S1-120, S1-129, S1-130, S2-153, S2-154: what is lost is settled by the receipt,
// never by another mutation; what nobody confirms is never a purge.
func TestLostAndWrongAnswers(t *testing.T) {
	t.Parallel()
	const mutation, receipt = "secrets.purge", "control.receipt.get"
	cases := map[string]struct {
		fault fault
		want  string
		sent  string
	}{
		"mutation lost before":             {only(mutation, 1, before), gateway, "purge get"},
		"mutation lost after":              {only(mutation, 1, after), confirmed, "purge get ack"},
		"502 before":                       {only(mutation, 1, status(502, "")), gateway, "purge get"},
		"503 after":                        {only(mutation, 1, applied(503, "worker_overloaded")), confirmed, "purge get ack"},
		"replayed after":                   {only(mutation, 1, applied(409, "assertion_replayed")), confirmed, "purge get ack"},
		"replayed, and nothing applied":    {only(mutation, 1, status(409, "assertion_replayed")), gateway, "purge get"},
		"a page after":                     {only(mutation, 1, page), confirmed, "purge get ack"},
		"another generation":               {only(mutation, 1, status(409, "release_generation_mismatch")), unconfirmed, "purge"},
		"unknown operation":                {only(mutation, 1, status(404, "control_operation_unknown")), unconfirmed, "purge"},
		"refused with a text":              {only(mutation, 1, status(403, "assertion_audience")), unconfirmed, "purge"},
		"a conflict":                       {only(mutation, 1, said(object{"conflict": true})), unconfirmed, "purge"},
		"one key more":                     {only(mutation, 1, said(object{"purged": 1, "conflict": false})), unconfirmed, "purge"},
		"purged as text":                   {only(mutation, 1, said(object{"purged": "1"})), unconfirmed, "purge"},
		"purged less than none":            {only(mutation, 1, said(object{"purged": -1})), unconfirmed, "purge"},
		"no receipt":                       {only(receipt, 1, said(object{"found": false, "receipt": nil})), unconfirmed, "purge get"},
		"receipt lost once":                {only(receipt, 1, before), confirmed, "purge get get ack"},
		"receipt replayed once":            {only(receipt, 1, status(409, "assertion_replayed")), confirmed, "purge get get ack"},
		"receipt lost for good":            {only(receipt, -1, before), gateway, "purge get get"},
		"receipt refused":                  {only(receipt, 1, status(409, "release_generation_mismatch")), unconfirmed, "purge get"},
		"receipt of a page":                {only(receipt, 1, page), unconfirmed, "purge get"},
		"receipt contradicts itself":       {only(receipt, 1, said(object{"found": true, "receipt": nil})), unconfirmed, "purge get"},
		"receipt without found":            {only(receipt, 1, said(object{"receipt": nil})), unconfirmed, "purge get"},
		"acknowledgement lost for good":    {only("control.receipt.ack", -1, before), confirmed, "purge get ack ack"},
		"acknowledgement that is none":     {only("control.receipt.ack", 1, said(object{"acknowledged": false})), confirmed, "purge get ack"},
		"acknowledgement refused":          {only("control.receipt.ack", 1, status(404, "x")), confirmed, "purge get ack"},
		"lost after, then no way to learn": {lostForGood(), gateway, "purge get get"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newWorker(t, "A")
			k.fault = c.fault
			err := k.purge(t, builder.V2_7)
			if got := end(err); got != c.want || k.operations() != c.sent {
				t.Errorf("%s (%v) after %s; want %s after %s", got, err, k.operations(), c.want, c.sent)
			}
			if c.want == confirmed && len(k.secrets) != 0 {
				t.Error("a secret is left of a confirmed purge")
			}
			if strings.HasPrefix(name, "ack") != (k.log.Len() != 0) {
				t.Errorf("log: %s", &k.log)
			}
		})
	}
}

func lostForGood() fault {
	return func(w http.ResponseWriter, c command, apply func() object) bool {
		if c.Operation == "secrets.purge" {
			apply()
		}
		return hangUp()
	}
}

// S1-120: a receipt of anything else is no receipt.
func TestReceiptOfAnotherMutation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(object){
		"another id":        func(r object) { r["mutationId"] = "00000000-0000-4000-8000-000000000000" },
		"another operation": func(r object) { r["operation"] = "secrets.delete" },
		"another command":   func(r object) { r["commandDigest"] = strings.Repeat("0", 64) },
		"no time":           func(r object) { r["createdAt"] = "yesterday" },
		"one key more":      func(r object) { r["more"] = 1 },
		"one key less":      func(r object) { delete(r, "createdAt") },
		"another result":    func(r object) { r["result"] = object{"conflict": true} },
		"no result":         func(r object) { r["result"] = nil },
		"good":              func(object) {}, // the control
	} {
		k := newWorker(t, "A")
		k.fault = only("control.receipt.get", 1, func(w http.ResponseWriter, c command, apply func() object) bool {
			result := apply()
			change(result["receipt"].(object))
			answer(w, c, result)
			return true
		})
		want := unconfirmed
		if name == "good" {
			want = confirmed
		}
		if err := k.purge(t, builder.V2_7); end(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// S1-119, S1-129: the list of a v2.6 release is what is deleted; an unusable
// one is no empty one, and neither is one that is not empty after the purge.
func TestLists(t *testing.T) {
	t.Parallel()
	secret := func(name string) object { return object{"name": name, "sha256": generation, "updated_at": when} }
	without := secret("A")
	delete(without, "sha256")
	many := []object{}
	for i := range 65 {
		many = append(many, secret("S"+strings.Repeat("X", i)))
	}
	for name, list := range map[string]object{
		"names, as no release answers": {"names": []string{"A"}},
		"null":                         {"secrets": nil},
		"an object":                    {"secrets": object{}},
		"texts":                        {"secrets": []string{"A"}},
		"one key more":                 {"secrets": []object{}, "more": 1},
		"a secret without digest":      {"secrets": []object{without}},
		"a name of another form":       {"secrets": []object{secret("a b")}},
		"a name twice":                 {"secrets": []object{secret("A"), secret("A")}},
		"more than a Worker holds":     {"secrets": many},
	} {
		k := newWorker(t, "A")
		k.fault = only("secrets.list", 1, said(list))
		if err := k.purge(t, builder.V2_6); end(err) != unconfirmed || k.operations() != "list" {
			t.Errorf("%s: %v after %s", name, err, k.operations())
		}
	}
	for name, c := range map[string]struct {
		fault fault
		want  string
		sent  string
	}{
		"list lost once":     {only("secrets.list", 1, before), confirmed, "list list delete:A get ack list"},
		"list lost for good": {only("secrets.list", -1, before), gateway, "list list"},
		"list refused":       {only("secrets.list", 1, status(409, "release_generation_mismatch")), unconfirmed, "list"},
		"delete lost after":  {only("secrets.delete", 1, after), confirmed, "list delete:A get ack list"},
		"delete lost before": {only("secrets.delete", 1, before), gateway, "list delete:A get"},
		"conflict": {only("secrets.delete", 1, said(object{"conflict": true, "deleted": false, "current": object{"name": "A", "deleted": false, "updated_at": when}})),
			unconfirmed, "list delete:A"},
		"another name": {only("secrets.delete", 1, said(object{"conflict": false, "deleted": true, "current": object{"name": "B", "deleted": true, "updated_at": when}})),
			unconfirmed, "list delete:A"},
		"contradiction": {only("secrets.delete", 1, said(object{"conflict": false, "deleted": true, "current": object{"name": "A", "deleted": false, "updated_at": when}})),
			unconfirmed, "list delete:A"},
	} {
		k := newWorker(t, "A")
		k.fault = c.fault
		if err := k.purge(t, builder.V2_6); end(err) != c.want || k.operations() != c.sent {
			t.Errorf("%s: %v after %s; want %s after %s", name, err, k.operations(), c.want, c.sent)
		}
	}
}

// S1-116: a secret that was put during the purge of a v2.6 release is seen; one
// that was gone before its turn is gone.
func TestSecretsThatMoveMeanwhile(t *testing.T) {
	t.Parallel()
	k := newWorker(t, "A", "B")
	k.fault = only("control.receipt.get", 1, func(http.ResponseWriter, command, func() object) bool {
		k.secrets["C"] = true
		return false
	})
	if err := k.purge(t, builder.V2_6); end(err) != unconfirmed || !strings.Contains(err.Error(), "1 secrets were put") {
		t.Errorf("put meanwhile: %v after %s", err, k.operations())
	}
	gone := newWorker(t, "A", "B")
	gone.fault = only("secrets.delete", 1, func(http.ResponseWriter, command, func() object) bool {
		delete(gone.secrets, "B")
		return false
	})
	if err := gone.purge(t, builder.V2_6); err != nil {
		t.Errorf("deleted meanwhile: %v", err)
	}
}

// A Worker that cannot be reached at all is the gateway's error, and so is a
// deadline; neither waits for more.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	for _, policy := range []builder.Policy{builder.V2_6, builder.V2_7} {
		k := newWorker(t)
		k.Close()
		err := k.purge(t, policy)
		var lost *control.UnreachableError
		if end(err) != gateway || !errors.As(err, &lost) {
			t.Errorf("%s: %v", policy, err)
		}
	}
	k := newWorker(t, "A")
	ctx, cancel := context.WithCancel(t.Context())
	k.fault = func(http.ResponseWriter, command, func() object) bool { cancel(); return hangUp() }
	err := k.purgeIn(ctx, t, builder.V2_7)
	if !errors.Is(err, context.Canceled) || k.operations() != "purge" {
		t.Errorf("%v after %s", err, k.operations())
	}
}
