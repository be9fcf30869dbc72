package providertest

import (
	"net/http"
	"strings"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// Fault answers a request in the server's place and says so, or lets it pass.
type Fault = func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool

// Inject sets the fault of every further request and what alters the answers of
// reads; nil ends either. end is "settings" or "details", object what that end
// holds.
func (f *Front) Inject(fault Fault, alter func(end string, object map[string]any)) {
	f.set(fault, alter)
}

// Counts returns how many requests of each method arrived, and forgets them.
func (f *Front) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for _, r := range f.requests {
		counts[r.Method]++
	}
	f.requests = nil
	return counts
}

// OnUpload limits a fault to uploads.
func OnUpload(fault Fault) Fault {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		return r.Method == http.MethodPut && fault(w, r, inner)
	}
}

// Swallow cuts the connection before the server has seen the request.
func Swallow() Fault { return dropBefore }

// LoseReply lets the server apply the request and cuts the connection.
func LoseReply() Fault { return dropAfter }

// AnswerApplied lets the server apply the request and answers something else.
func AnswerApplied(status int, body string) Fault { return answerAfter(status, body) }

// Refuse answers an error without applying the request. Headers are pairs.
func Refuse(status int, code any, headers ...string) Fault {
	return func(w http.ResponseWriter, r *http.Request, inner http.Handler) bool {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		return refuseWith(status, code)(w, r, inner)
	}
}

// Tag gives the tag that marks the release of an upload (provider.Release.Tag),
// or "" where there is none.
func (r Request) Tag() string {
	tags, _ := r.Upload.metadata["tags"].([]any)
	for _, tag := range tags {
		if text, ok := tag.(string); ok && strings.HasPrefix(text, provider.TagPrefix) {
			return text
		}
	}
	return ""
}
