package setup

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

// A definite answer stands until the next one; a provider that cannot be asked
// changes nothing, and is not asked at every check.
func TestGuard(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	asked := 0
	var answer error
	g := newGuard(func(context.Context) error { asked++; return answer }, func() time.Time { return now })
	trusted := fmt.Errorf("dispatch namespace x: %w", cloudflare.ErrTrusted)
	for i, step := range []struct {
		after  time.Duration
		answer error
		asked  bool
		want   error
	}{
		{0, errors.New("cannot be asked"), true, nil},
		{guardRetry - 1, trusted, false, nil},
		{1, trusted, true, cloudflare.ErrTrusted},
		{guardRetry, errors.New("cannot be asked"), true, cloudflare.ErrTrusted},
		{guardRetry, cloudflare.ErrNoNamespace, true, cloudflare.ErrNoNamespace},
		{guardRetry, nil, true, nil},
		{guardGood - 1, trusted, false, nil},
		{1, trusted, true, cloudflare.ErrTrusted},
	} {
		now, answer = now.Add(step.after), step.answer
		before := asked
		err := g.ready(t.Context())
		if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) || (asked > before) != step.asked {
			t.Errorf("step %d: %v, asked %v", i, err, asked > before)
		}
		if !errors.Is(g.verdict(), step.want) {
			t.Errorf("step %d: verdict %v", i, g.verdict())
		}
	}
}
