package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/gateway"
)

// edge is the data plane with one Worker: it notes what reaches it, decides
// about the caller as the runtime does, and answers with answer.
type edge struct {
	server *httptest.Server
	seen   []seen
	answer func(http.ResponseWriter)
	mode   string // of the access policy; empty is private
	key    string // digest of the Worker's API key
}

type seen struct {
	path, assertion, body string
	header                http.Header
}

func newEdge(t *testing.T) *edge {
	e := &edge{}
	e.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("edge: %v", err)
		}
		assertion := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		e.seen = append(e.seen, seen{r.URL.Path, assertion, string(body), r.Header})
		w.Header().Set("Content-Type", "application/json")
		var said struct{ Caller gateway.Caller }
		err = json.Unmarshal([]byte(assertion), &said)
		if err != nil {
			t.Errorf("edge: %v", err)
		}
		switch code := e.refusal(said.Caller); {
		case code != "":
			w.Header().Set("X-Edge-Workers-Refusal", "access")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, refusal(code))
		case !json.Valid(body):
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, `{"detail":[{"type":"json_invalid","loc":["body"],"msg":"The body is not JSON in UTF-8"}]}`)
		case e.answer != nil:
			e.answer(w)
		default:
			_, _ = w.Write([]byte(`{"ok":true}`))
		}
	}))
	t.Cleanup(e.server.Close)
	return e
}

// refusal is the code with which the Worker refuses a caller, empty if it does not.
func (e *edge) refusal(c gateway.Caller) string {
	switch {
	case c.Kind == "member" || e.mode == "public" || (e.mode == "api_key" && c.APIKeySHA256 == e.key):
		return ""
	case e.mode == "":
		return "sign_in_required"
	case c.APIKeySHA256 == "":
		return "api_key_required"
	}
	return "api_key_invalid"
}

func refusal(code string) string { return `{"detail":{"code":"` + code + `","message":"no"}}` }

// callers gives the callers that reached the Worker.
func (e *edge) callers(t *testing.T) []gateway.Caller {
	t.Helper()
	var out []gateway.Caller
	for _, s := range e.seen {
		var said struct{ Caller gateway.Caller }
		if err := json.Unmarshal([]byte(s.assertion), &said); err != nil {
			t.Fatal(err)
		}
		out = append(out, said.Caller)
	}
	return out
}
