package cloudflare_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// class gives the neutral class and the code of an upload's error.
func class(err error) string {
	if e, ok := errors.AsType[*provider.TerminalError](err); ok {
		return "terminal " + e.Code + e.Guidance
	}
	if e, ok := errors.AsType[*provider.UncertainError](err); ok {
		return "uncertain " + e.Code
	}
	if e, ok := errors.AsType[*provider.RateLimitedError](err); ok {
		return "rate limited " + e.Code
	}
	return fmt.Sprintf("%v", err)
}

// S1-132..S1-134, S2-200, S2-206, S2-217: the golden table of what the cloud
// provider answers to an upload, and what the deployment task makes of it. The
// literal codes are stored and shown; a change breaks clients.
func TestGoldenTable(t *testing.T) {
	t.Parallel()
	const (
		uncertain = "uncertain cloudflare_upload_uncertain"
		limited   = "rate limited cloudflare_rate_limited"
		rejected  = "terminal cloudflare_upload_rejected"
		auth      = "terminal cloudflare_authentication_failed"
		plan      = "terminal cloudflare_not_entitled"
		large     = "terminal cloudflare_bundle_too_large"
		exports   = "terminal cloudflare_exports_conflict"
	)
	cases := []struct {
		status, code int
		want         string
	}{
		{429, 971, limited}, {429, 10013, limited}, {429, 10000, limited}, // S2-200: the status alone
		{301, 0, uncertain}, {302, 0, uncertain}, {304, 0, uncertain}, {307, 0, uncertain}, {308, 0, uncertain},
		{408, 0, uncertain}, {408, 10021, uncertain}, {409, 0, uncertain}, {409, 10035, uncertain}, {409, 10021, uncertain},
		{500, 0, uncertain}, {500, 10021, uncertain}, {502, 0, uncertain}, {503, 10000, uncertain}, {504, 0, uncertain}, {507, 0, uncertain}, {522, 0, uncertain},
		{400, 10002, uncertain}, {400, 10013, uncertain}, {403, 10014, uncertain}, {404, 10013, uncertain}, // internal errors prove nothing
		{400, 0, rejected}, {404, 0, rejected}, {405, 0, rejected}, {415, 0, rejected}, {422, 0, rejected}, {423, 0, rejected}, {451, 0, rejected},
		{400, 10001, rejected}, {400, 10006, rejected}, {400, 10016, rejected}, {400, 10021, rejected}, {400, 10026, rejected},
		{400, 10035, rejected}, {400, 10052, rejected}, {400, 10056, rejected}, {400, 10068, rejected}, {404, 10007, rejected}, {404, 100119, rejected},
		{401, 0, auth}, {403, 0, auth}, {401, 10000, auth}, {403, 10000, auth}, {400, 9109, auth}, {403, 9109, auth}, {400, 10000, auth}, {403, 10023, auth},
		{403, 10015, plan}, {400, 10037, plan}, {403, 10075, plan}, {401, 10015, plan},
		{413, 0, large}, {400, 10027, large}, {413, 10027, large}, {403, 10027, large},
		{400, 100402, exports}, {409, 100402, uncertain}, {400, 100405, exports}, {400, 100406, exports}, {400, 10211, exports},
		{400, 10061, exports}, {403, 10064, exports}, {400, 10074, exports}, {400, 10079, exports}, {400, 10123, exports},
	}
	var status, code int
	s := script(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Location", "/elsewhere")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		if code == 0 {
			_, _ = io.WriteString(w, "error "+strconv.Itoa(status))
			return
		}
		_, _ = fmt.Fprintf(w, `{"success":false,"errors":[{"code":%d,"message":"refused"}],"messages":[],"result":null}`, code)
	}, steps(time.Hour))
	for _, c := range cases {
		status, code = c.status, c.code
		got := class(s.Upload(t.Context(), release()))
		if got != c.want {
			t.Errorf("%d %d: got %q, want %q", c.status, c.code, got, c.want)
		}
		if seen := s.seen(); len(seen) != 1 || !strings.HasPrefix(seen[0], "PUT "+pathPrefix) {
			t.Errorf("%d %d: requests %v", c.status, c.code, seen)
		}
	}
}

// The second error of an answer counts as the first.
func TestAnyErrorOfTheAnswerCounts(t *testing.T) {
	t.Parallel()
	s := script(t, answer(400, `{"success":false,"errors":[{"code":10021,"message":"a"},{"code":10013,"message":"b"}],"result":null}`), nil)
	if got := class(s.Upload(t.Context(), release())); got != "uncertain cloudflare_upload_uncertain" {
		t.Errorf("got %q", got)
	}
}

// S2-208: a 2xx that is not the acknowledgement of this very upload.
func TestAcknowledgements(t *testing.T) {
	t.Parallel()
	name := release().ScriptName
	good := `{"success":true,"errors":[],"messages":[],"result":{"id":"` + name + `","etag":"x","startup_time_ms":3}}`
	html := "<html>" + strings.Repeat("x", 200) + "</html>"
	for title, c := range map[string]struct {
		answer http.HandlerFunc
		good   bool
	}{
		"good":                      {answer(200, good), true},
		"good with a charset":       {answer(200, good, "Content-Type", "application/json; charset=UTF-8"), true},
		"another script":            {answer(200, strings.Replace(good, name, "dw-other", 1)), false},
		"no etag":                   {answer(200, strings.Replace(good, "etag", "etagg", 1)), false},
		"no id":                     {answer(200, strings.Replace(good, `"id"`, `"i"`, 1)), false},
		"start-up time only":        {answer(200, `{"success":true,"errors":[],"messages":[],"result":{"startup_time_ms":3}}`), false},
		"an error beside a success": {answer(200, strings.Replace(good, "[]", `[{"code":10013,"message":"x"}]`, 1)), false},
		"not a success":             {answer(200, strings.Replace(good, "true", "false", 1)), false},
		"no success":                {answer(200, strings.Replace(good, "success", "succ", 1)), false},
		"a page":                    {answer(200, html), false},
		"another content type":      {answer(200, good, "Content-Type", "text/html"), false},
		"no content type":           {answer(200, good, "Content-Type", ""), false},
		"two answers":               {answer(200, good+good), false},
		"a list":                    {answer(200, strings.Replace(good, `{"id"`, `[{"id"`, 1)), false},
		"nothing":                   {answer(204, ""), false},
		"reset content":             {answer(205, ""), false},
		"too much":                  {answer(200, strings.Repeat(" ", 5<<20)+good), false},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := script(t, c.answer, nil)
			err := s.Upload(t.Context(), release())
			if c.good != (err == nil) || (!c.good && class(err) != "uncertain cloudflare_upload_uncertain") {
				t.Errorf("got %v", err)
			}
			if seen := s.seen(); len(seen) != 1 {
				t.Errorf("requests %v", seen)
			}
		})
	}
}

// A gateway's page is kept with what finds the request at the provider, and no
// further than its first 100 bytes.
func TestCauseKeepsWhatAGatewaySaid(t *testing.T) {
	t.Parallel()
	page := "upstream request timeout " + strings.Repeat("y", 100)
	for _, status := range []int{200, 502} {
		s := script(t, answer(status, page, "Content-Type", "text/plain", "Cf-Ray", "8f3a-FRA"), nil)
		text := s.Upload(t.Context(), release()).Error()
		for _, want := range []string{strconv.Itoa(status), "8f3a-FRA", page[:100]} {
			if !strings.Contains(text, want) {
				t.Errorf("%d: %q lacks %q", status, text, want)
			}
		}
		if strings.Contains(text, page[:101]) || strings.Contains(text, token) {
			t.Errorf("%d: %q holds too much", status, text)
		}
	}
}

// S2-211, S2-212: absence is proven by the three codes and by nothing else.
func TestReadBackOfAnAbsentScript(t *testing.T) {
	t.Parallel()
	refuse := func(status, code int) http.HandlerFunc {
		return answer(status, fmt.Sprintf(`{"success":false,"errors":[{"code":%d,"message":"x"}],"result":null}`, code))
	}
	for title, c := range map[string]struct {
		settings, details http.HandlerFunc
		absent            bool
	}{
		"10007":            {refuse(404, 10007), refuse(404, 10007), true},
		"10090":            {refuse(404, 10090), refuse(404, 10090), true},
		"10092":            {refuse(404, 10092), refuse(404, 10092), true},
		"one end only":     {refuse(500, 10013), refuse(404, 10007), true},
		"unknown error":    {refuse(404, 10013), refuse(404, 10013), false},
		"another 404":      {refuse(404, 7003), refuse(404, 7003), false},
		"404 with a page":  {answer(404, "<html>"), answer(404, "<html>"), false},
		"code without 404": {refuse(500, 10007), refuse(500, 10007), false},
		"not yet readable": {refuse(400, 100146), refuse(400, 100146), false},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := script(t, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/settings") {
					c.settings(w, r)
					return
				}
				c.details(w, r)
			}, nil)
			err := s.ReadBack(t.Context(), release())
			mismatch, ok := errors.AsType[*provider.MismatchError](err)
			if ok != c.absent || (ok && mismatch.Detail != "no script") {
				t.Errorf("got %v", err)
			}
			if _, unreadable := errors.AsType[*provider.UnreadableError](err); unreadable == c.absent {
				t.Errorf("got %v", err)
			}
			if seen := s.seen(); len(seen) != 2 { // S1-100: both ends
				t.Errorf("requests %v", seen)
			}
		})
	}
}
