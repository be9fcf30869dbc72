package gateway_test

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/gateway"
)

// begun sends an invocation and gives its answer unread.
func (h *host) begun() (gateway.Answer, error) {
	in, err := h.gate.Direct(h.T.Context(), h.Tenant, "echo.say", nil, h.caller)
	if err != nil {
		return gateway.Answer{}, err
	}
	return h.gate.Send(h.T.Context(), in)
}

// inPieces writes each piece when the test asks for it.
func inPieces(pieces <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for {
			select {
			case piece, more := <-pieces:
				if !more {
					return
				}
				if piece == "break" {
					panic(http.ErrAbortHandler)
				}
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// An output is passed on while the Worker still writes it.
func TestOutputIsStreamed(t *testing.T) {
	h := one(t)
	pieces := make(chan string, 1)
	h.say(inPieces(pieces))
	pieces <- `{"a":`
	answer, err := h.begun()
	must(t, err)
	defer answer.Body.Close()
	if answer.Status != 200 || answer.Length != -1 {
		t.Errorf("%+v", answer)
	}
	first := make([]byte, 5)
	_, err = io.ReadFull(answer.Body, first)
	must(t, err)
	pieces <- "1}" // only now
	close(pieces)
	rest, err := io.ReadAll(answer.Body)
	if string(first)+string(rest) != `{"a":1}` || err != nil {
		t.Errorf("%s%s, %v", first, rest, err)
	}
}

// What breaks off in the middle is an error to whoever reads it, with and
// without an announced length; so is an end of time.
func TestBrokenOutput(t *testing.T) {
	h := one(t)
	pieces := make(chan string, 2)
	announced := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		inPieces(pieces)(w, r)
	}
	for name, answer := range map[string]http.HandlerFunc{"chunked": inPieces(pieces), "announced": announced} {
		h.say(answer)
		pieces <- `{"a":`
		pieces <- "break"
		answer, err := h.begun()
		if err != nil { // the break was seen with the first piece
			refused(t, name, err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
			continue
		}
		got, err := io.ReadAll(answer.Body)
		if string(got) != `{"a":` {
			t.Errorf("%s: %s", name, got)
		}
		refused(t, name, err, fault.Upstream, "worker_unreachable", "The Worker could not be reached")
		answer.Body.Close()
	}
}

// The bound of 8 MiB holds at once where a length is announced, and while
// reading where none is.
func TestOutputBound(t *testing.T) {
	h := one(t)
	const bound = 8 << 20
	sized := func(n int, announce bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if announce {
				w.Header().Set("Content-Length", strconv.Itoa(n))
			}
			for sent := 0; sent < n; sent += 1 << 10 {
				_, err := io.WriteString(w, strings.Repeat("1", min(1<<10, n-sent)))
				if err != nil {
					return
				}
			}
		}
	}
	for _, announce := range []bool{true, false} {
		h.say(sized(bound, announce))
		answer, err := h.begun()
		must(t, err)
		n, err := io.Copy(io.Discard, answer.Body)
		if n != bound || err != nil || (answer.Length == bound) != announce {
			t.Errorf("at the bound: %d, %v, announced %d", n, err, answer.Length)
		}
		answer.Body.Close()
	}
	h.say(sized(bound+1, true))
	_, err := h.begun()
	refused(t, "announced", err, fault.Upstream, "worker_output_too_large", "The Worker's answer is larger than 8 MiB")
	h.say(sized(bound+1, false))
	answer, err := h.begun()
	must(t, err)
	n, err := io.Copy(io.Discard, answer.Body)
	if n > bound {
		t.Errorf("%d bytes came", n)
	}
	refused(t, "not announced", err, fault.Upstream, "worker_output_too_large", "The Worker's answer is larger than 8 MiB")
	answer.Body.Close()
	h.say(answering(200, "")) // nothing at all is an answer too
	got, err := h.direct(t.Context(), "{}")
	if err != nil || got.Body != "" {
		t.Errorf("%+v, %v", got, err)
	}
	h.say(answering(400, strings.Repeat("1", bound+1)))
	_, err = h.direct(t.Context(), "{}")
	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "worker_output_too_large" {
		t.Errorf("an error: %v", err)
	}
}
