package providertest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
)

type driftCase struct {
	name, end string
	change    func(map[string]any)
	same      bool // the change makes no difference
}

// driftCases is one case for each field of S2-167 to S2-173, at each end that
// holds it, and the changes that must not matter.
func driftCases() []driftCase {
	const binding, export, otherTag = "bindings", "exports", provider.TagPrefix + "0000000000000000000000000000000000000000000000000000000000000000"
	put := func(key string, value any) func(map[string]any) {
		return func(o map[string]any) { o[key] = value }
	}
	inBinding := func(key string, value any) func(map[string]any) {
		return func(o map[string]any) { o[binding].([]any)[0].(map[string]any)[key] = value }
	}
	inExport := func(key string, value any) func(map[string]any) {
		return func(o map[string]any) {
			o[export].(map[string]any)[provider.StorageClass].(map[string]any)[key] = value
		}
	}
	cases := []driftCase{
		{"S2-167 other date", "settings", put("compatibility_date", "2025-01-01"), false},
		{"S2-167 other date in details", "details", put("compatibility_date", "2025-01-01"), false},
		{"S2-168 a flag", "settings", put("compatibility_flags", []any{"nodejs_compat"}), false},
		{"S2-168 flags not told", "settings", func(o map[string]any) { delete(o, "compatibility_flags") }, true},
		{"S2-169 no binding", "settings", put(binding, []any{}), false},
		{"S2-169 two bindings", "settings", func(o map[string]any) {
			o[binding] = append(o[binding].([]any), map[string]any{"type": "plain_text", "name": "X"})
		}, false},
		{"S2-169 other type", "settings", inBinding("type", "service"), false},
		{"S2-169 other name", "settings", inBinding("name", "OTHER"), false},
		{"S2-169 other class", "settings", inBinding("class_name", "Other"), false},
		{"S2-169 other script", "settings", inBinding("script_name", "other"), false},
		{"S2-169 namespace id added by the server", "settings", inBinding("namespace_id", "0123"), true},
		{"S2-170 no export", "details", put(export, map[string]any{}), false},
		{"S2-170 exports not told", "details", func(o map[string]any) { delete(o, export) }, false},
		{"S2-170 two exports", "details", func(o map[string]any) {
			o[export].(map[string]any)["Other"] = map[string]any{"type": "durable-object", "storage": "sqlite"}
		}, false},
		{"S2-170 not SQLite", "details", inExport("storage", "legacy-kv"), false},
		{"S2-170 not a Durable Object", "details", inExport("type", "worker"), false},
		{"S2-170 a container", "details", inExport("container", map[string]any{}), false},
		{"S2-171 state created", "details", inExport("state", "created"), true},
		{"S2-171 state absent", "details", func(o map[string]any) {
			delete(o[export].(map[string]any)[provider.StorageClass].(map[string]any), "state")
		}, true},
		{"S2-172 state deleted", "details", inExport("state", "deleted"), false},
		{"S2-172 state empty", "details", inExport("state", ""), false},
		{"S2-172 state null", "details", inExport("state", nil), false},
	}
	for _, end := range []string{"settings", "details"} {
		cases = append(cases,
			driftCase{"S2-173 no tag in " + end, end, put("tags", []any{}), false},
			driftCase{"S2-173 tags not told in " + end, end, put("tags", nil), false},
			driftCase{"S2-173 other tag in " + end, end, put("tags", []any{otherTag}), false},
			driftCase{"S2-173 two tags in " + end, end, func(o map[string]any) { o["tags"] = append(o["tags"].([]any), otherTag) }, false},
		)
	}
	return cases
}

type uploadCase struct {
	name    string
	fault   func(http.ResponseWriter, *http.Request, http.Handler) bool
	want    string
	applied bool
	timeout time.Duration
}

func (s *suite) uploadCases() []uploadCase {
	const patient = 60 * time.Second
	uncertain, rejected, auth := "uncertain "+s.Codes.Uncertain, "terminal "+s.Codes.Rejected, "terminal "+s.Codes.Auth
	cases := []uploadCase{{"S2-200 429", refuseWith(429, 971), "rate limited " + s.Codes.RateLimited, false, patient}}
	for _, status := range []int{301, 302, 307, 308, 408, 409, 500, 502, 503, 504} {
		cases = append(cases, uploadCase{fmt.Sprintf("S2-206 %d", status), refuseWith(status, 10013), uncertain, false, patient})
	}
	cases = append(cases, uploadCase{"S2-217 413", refuseWith(413, 10021), "terminal " + s.Codes.TooLarge, false, patient})
	for _, status := range []int{400, 404, 422} {
		cases = append(cases, uploadCase{fmt.Sprintf("S2-217 %d", status), refuseWith(status, 10021), rejected, false, patient})
	}
	for _, status := range []int{401, 403} {
		cases = append(cases, uploadCase{fmt.Sprintf("S2-217 %d", status), refuseWith(status, 10000), auth, false, patient})
	}
	return append(cases,
		uploadCase{"S2-206 504 although applied", answerAfter(504, "upstream request timeout"), uncertain, true, patient},
		uploadCase{"S2-206 502 with a page", answerAfter(502, "<html><h1>502 Bad Gateway</h1></html>"), uncertain, true, patient},
		uploadCase{"S2-207 connection lost before it was applied", dropBefore, uncertain, false, patient},
		uploadCase{"S2-207 connection lost within the answer", dropWithin, uncertain, true, patient},
		uploadCase{"S2-206 500 although applied", answerAfter(500, "upstream request timeout"), uncertain, true, patient},
		uploadCase{"S2-207 hang", hang, uncertain, false, 300 * time.Millisecond},
		uploadCase{"S2-207 connection lost after it was applied", dropAfter, uncertain, true, patient},
		uploadCase{"S2-208 not JSON", answerAfter(200, "<html>"), uncertain, true, patient},
		uploadCase{"S2-208 empty", answerAfter(200, ""), uncertain, true, patient},
		uploadCase{"S2-208 half an answer", answerAfter(200, `{"success":true,"errors":[],"result":{"id":`), uncertain, true, patient},
		uploadCase{"S2-208 success false", answerAfter(200, `{"success":false,"errors":[{"code":1,"message":"x"}],"result":{"id":"x","etag":"x"}}`), uncertain, true, patient},
		uploadCase{"S2-208 thin result", answerAfter(200, `{"success":true,"errors":[],"messages":[],"result":{}}`), uncertain, true, patient},
		uploadCase{"S2-208 no result", answerAfter(202, `{"success":true,"errors":[],"messages":[],"result":null}`), uncertain, true, patient},
		uploadCase{"S2-208 larger than the limit", answerAfter(200, strings.Repeat(" ", 5<<20)+`{"success":true,"errors":[],"result":{"id":"x","etag":"x"}}`), uncertain, true, patient},
	)
}
