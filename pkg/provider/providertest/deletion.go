package providertest

import (
	"context"
	"net/http"
	"testing"
)

// scripts is what a retirement asks of a provider (D18).
type scripts interface {
	Exists(ctx context.Context, namespace, script string) (bool, error)
	Delete(ctx context.Context, namespace, script string) error
}

// deletion deletes a script with stored data or without. No failure is taken
// for an absence, and none is repeated.
func (s *suite) deletion(t *testing.T) {
	p, ok := s.p.(scripts)
	if !ok {
		t.Fatal("the adapter deletes nothing")
	}
	wantExists := func(want bool) {
		t.Helper()
		got, err := p.Exists(t.Context(), "", suiteScript)
		if err != nil || got != want {
			t.Fatalf("exists: %v, %v", got, err)
		}
	}
	if err := s.p.Upload(t.Context(), s.release("to be deleted")); err != nil {
		t.Fatal(err)
	}
	wantExists(true)
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request, http.Handler) bool{
		"500": refuseWith(500, 10013), "401": refuseWith(401, 10000), "302": refuseWith(302, 1), "other 404": refuseWith(404, 10013),
		"a gateway's 404": answerInstead(404, "<html>"), "not JSON": answerInstead(200, "<html>"), "failed 200": answerInstead(200, `{"success":false,"errors":[]}`),
	} {
		t.Run(name, func(t *testing.T) {
			s.front.Requests("")
			s.front.set(fault, nil)
			deleted := p.Delete(t.Context(), "", suiteScript)
			_, unread := p.Exists(t.Context(), "", suiteScript)
			s.front.set(nil, nil)
			if deleted == nil || unread == nil {
				t.Errorf("deleted: %v, read: %v", deleted, unread)
			}
			if sent := s.front.Requests(http.MethodDelete); len(sent) != 1 {
				t.Errorf("%d deletions were sent", len(sent))
			}
			wantExists(true)
		})
	}
	t.Run("the answer is lost", func(t *testing.T) {
		s.front.set(dropAfter, nil)
		err := p.Delete(t.Context(), "", suiteScript)
		s.front.set(nil, nil)
		if err == nil {
			t.Error("a lost answer was an acknowledgement")
		}
		wantExists(false)
	})
	if err := p.Delete(t.Context(), "", suiteScript); err != nil { // what is not there is no error
		t.Error(err)
	}
	if err := s.p.Upload(t.Context(), s.release("deleted at once")); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), "", suiteScript); err != nil {
		t.Error(err)
	}
	wantExists(false)
	s.front.Requests("")
	_, unread := p.Exists(t.Context(), "", "../../other")
	if p.Delete(t.Context(), "", "../../other") == nil || unread == nil || len(s.front.Requests("")) > 0 {
		t.Error("a name that is not ours was asked for")
	}
}
