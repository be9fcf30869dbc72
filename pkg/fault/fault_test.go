package fault_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// A fault is found under any wrapping and keeps its kind; anything else is
// internal and its text is not the public one.
func TestAs(t *testing.T) {
	t.Parallel()
	conflict := fault.Coded(fault.Conflict, "code", "text")
	for _, err := range []error{conflict, fmt.Errorf("while: %w", conflict), errors.Join(errors.New("x"), conflict), conflict.Because(errors.New("why"))} {
		if got := fault.As(err); got.Kind != fault.Conflict || got.Code != "code" || got.Message != "text" || fault.KindOf(err) != fault.Conflict {
			t.Errorf("%v: %+v", err, got)
		}
	}
	secret := errors.New("password=hunter2")
	got := fault.As(secret)
	if got.Kind != fault.Internal || got.Message != "Internal Server Error" || got.Code != "" || !errors.Is(got, secret) {
		t.Errorf("%+v", got)
	}
	if fault.As(nil) != nil || fault.KindOf(nil) != "" || fault.KindOf(secret) != fault.Internal {
		t.Error("nil and plain errors")
	}
}

// Two faults are the same by kind, code and message, whatever the cause.
func TestIs(t *testing.T) {
	t.Parallel()
	base := fault.Coded(fault.Conflict, "code", "text")
	caused := base.Because(errors.New("why"))
	if !errors.Is(caused, base) || !errors.Is(fmt.Errorf("x: %w", caused), base) || base.Unwrap() != nil {
		t.Error("the cause makes another fault, or was set on the original")
	}
	for _, other := range []*fault.Error{fault.Coded(fault.NotFound, "code", "text"), fault.Coded(fault.Conflict, "x", "text"), fault.Coded(fault.Conflict, "code", "x"), fault.New(fault.Conflict, "text")} {
		if errors.Is(caused, other) {
			t.Errorf("is %+v", other)
		}
	}
	if errors.Is(caused, errors.New("text")) {
		t.Error("is a plain error")
	}
}

// The log text holds everything, the public message only itself.
func TestError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]*fault.Error{
		"text":            fault.New(fault.NotFound, "text"),
		"code: text":      fault.Coded(fault.NotFound, "code", "text"),
		"code: text: why": fault.Coded(fault.NotFound, "code", "text").Because(errors.New("why")),
		"not_found":       {Kind: fault.NotFound},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err.Error(), want)
		}
	}
	refusal := fault.Refuse(fault.Problem{Type: "t", Loc: []any{"body", 1}, Msg: "bad"}, fault.Problem{})
	if refusal.Kind != fault.Invalid || len(refusal.Problems) != 2 || !strings.Contains(refusal.Error(), "2 problems, first: [body 1] bad") {
		t.Errorf("%v", refusal)
	}
}
