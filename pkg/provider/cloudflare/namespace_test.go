package cloudflare_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// S1-028, S1-037, S1-039, D15: a release goes to the namespace that its row
// names, and to none but the environment's own.
func TestReleaseGoesToItsNamespace(t *testing.T) {
	t.Parallel()
	refused := answer(503, "")
	alone := script(t, refused, nil)
	sharing := script(t, refused, func(p *cloudflare.Params) { p.Shared = []string{"shared-1"} })
	for title, c := range map[string]struct {
		s         *scripted
		namespace string
		goes      string // "" when it is not sent
	}{
		"own":                        {sharing, namespace, namespace},
		"shared":                     {sharing, "shared-1", "shared-1"},
		"unnamed beside shared ones": {sharing, "", ""},
		"another environment's":      {sharing, "edge-other", ""},
		"on-prem":                    {sharing, "onprem:0123456789ab", ""},
		"alone":                      {alone, namespace, namespace},
		"alone and unnamed":          {alone, "", namespace},
		"alone and another":          {alone, "shared-1", ""},
	} {
		r := release()
		r.Namespace = c.namespace
		uploaded := class(c.s.Upload(t.Context(), r))
		puts := c.s.seen()
		read := c.s.ReadBack(t.Context(), r)
		if _, ok := errors.AsType[*provider.UnreadableError](read); !ok {
			t.Errorf("%s: read-back %v", title, read)
		}
		gets := c.s.seen()
		if c.goes == "" {
			if uploaded != "terminal cloudflare_upload_rejected" || len(puts)+len(gets) != 0 {
				t.Errorf("%s: %q, sent %v %v", title, uploaded, puts, gets)
			}
			continue
		}
		if uploaded != uncertain || len(puts) != 1 || len(gets) != 2 {
			t.Fatalf("%s: %q, sent %v %v", title, uploaded, puts, gets)
		}
		for _, request := range append(puts, gets...) {
			if !strings.Contains(request, "/namespaces/"+c.goes+"/scripts/") {
				t.Errorf("%s: sent %s", title, request)
			}
		}
	}
}

// Each namespace is checked; one that is trusted is enough to refuse.
func TestEachNamespaceIsChecked(t *testing.T) {
	t.Parallel()
	body := `{"success":true,"errors":[],"messages":[],"result":{"namespace_name":"edge-test","trusted_workers":false}}`
	s := script(t, answer(200, body), func(p *cloudflare.Params) { p.Shared = []string{"shared-1"} })
	err := s.CheckNamespace(t.Context())
	if seen := s.seen(); err == nil || !strings.Contains(err.Error(), "shared-1") || len(seen) != 2 {
		t.Errorf("got %v after %v", err, seen)
	}
}
