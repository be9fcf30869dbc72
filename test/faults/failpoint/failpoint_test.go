package failpoint

import (
	"errors"
	"testing"
)

// fresh makes the process one that has had no fault yet.
func fresh(t *testing.T) *[]string {
	t.Helper()
	hits := &[]string{}
	fired.Store(false)
	OnHit(func(value string) error { *hits = append(*hits, value); return nil })
	return hits
}

// TestActHappensOnce: the second hit of a process goes on unharmed, and a
// marker that does not apply hits nothing.
func TestActHappensOnce(t *testing.T) {
	hits := fresh(t)
	if err := (Set{}).Of(false, Error); err != nil || len(*hits) != 0 {
		t.Fatalf("a marker that does not apply: %v, hits %v", err, *hits)
	}
	if err := (Set{}).Of(true, Error); !errors.Is(err, ErrFault) {
		t.Fatalf("the first hit: %v", err)
	}
	if err := (Set{}).Act(Error); err != nil {
		t.Fatalf("the second hit: %v", err)
	}
	if len(*hits) != 1 || (*hits)[0] != Error {
		t.Fatalf("hits reported: %v", *hits)
	}
}

// TestActTampersWithTheWire: the medium's function gets what is to happen.
func TestActTampersWithTheWire(t *testing.T) {
	fresh(t)
	got := ""
	OnWire("database", func(how string) error { got = how; return nil })
	err := (Set{}).Act("wire:database:cut-after")
	if err != nil || got != "cut-after" {
		t.Fatalf("%v, tampered %q", err, got)
	}
}

// TestUnknownValuesFail: a typing error in the matrix is no silent success.
func TestUnknownValuesFail(t *testing.T) {
	for _, value := range []string{"", "panic", "wire", "wire:pigeon:down"} {
		fresh(t)
		if err := (Set{}).Act(value); err == nil || errors.Is(err, ErrFault) {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestUnreportedHitFails: a fault that nobody was told of would not be counted.
func TestUnreportedHitFails(t *testing.T) {
	fresh(t)
	cause := errors.New("nobody listens")
	OnHit(func(string) error { return cause })
	if err := (Set{}).Act(Error); !errors.Is(err, cause) {
		t.Fatal(err)
	}
}

// TestBroken: a guard lacks only in the process that is told so.
func TestBroken(t *testing.T) {
	if (Set{}).Broken("lease") {
		t.Fatal("broken without being told")
	}
	t.Setenv(BrokenVariable, "lease")
	if !(Set{}).Broken("lease") || (Set{}).Broken("fence") {
		t.Fatal("broken is the guard that was named and no other")
	}
}
