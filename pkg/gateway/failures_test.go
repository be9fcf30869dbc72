package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/gateway"
	"github.com/teamsync/edge-workers/test/plane"
)

const failureKeys = "edge-workers:key-failures:"

// later makes the failures that Redis holds older, as if time had passed.
func later(t *testing.T, client redis.UniversalClient, key string, by time.Duration) {
	t.Helper()
	times := client.LRange(t.Context(), key, 0, -1).Val()
	if len(times) == 0 {
		t.Fatal("no failures to make older")
	}
	for i, text := range times {
		at, err := strconv.ParseInt(text, 10, 64)
		must(t, err)
		must(t, client.LSet(t.Context(), key, int64(i), at-by.Milliseconds()).Err())
	}
}

// D11: ten wrong keys in 60 seconds close the way for keys from one address to
// one Worker, until the first of them is 60 seconds old. The window slides.
func TestFailures(t *testing.T) {
	t.Parallel()
	client := plane.Redis(t)
	f := gateway.NewFailures(client, slog.New(slog.DiscardHandler))
	script, address := "dw-"+uuid.NewString(), "203.0.113.9"
	wait := func() time.Duration { return f.Wait(t.Context(), script, address) }
	// Neither the address nor the Worker's name stands in Redis in clear.
	key := failureKeys + canonical.Digest("teamsync-edge-worker-key-failures", []byte(script+"\x00"+address))
	for range 5 {
		f.Add(t.Context(), script, address)
	}
	later(t, client, key, 30*time.Second)
	for range 4 {
		f.Add(t.Context(), script, address)
	}
	if w := wait(); w != 0 {
		t.Errorf("after 9: %v", w)
	}
	f.Add(t.Context(), script, address)
	if w := wait(); w <= 0 || w > 30*time.Second {
		t.Errorf("after 10, the first 30 s ago: %v", w)
	}
	for _, other := range [][2]string{{script, "203.0.113.8"}, {script + "x", address}, {script, ""}} {
		if w := f.Wait(t.Context(), other[0], other[1]); w != 0 {
			t.Errorf("%v waits %v", other, w)
		}
	}
	later(t, client, key, 30*time.Second)
	if w := wait(); w != 0 {
		t.Errorf("after 60 s: %v", w)
	}
	f.Add(t.Context(), script, address) // the ninth and tenth of the last 30 s are not there
	if w := wait(); w != 0 {
		t.Errorf("six in 60 s: %v", w)
	}
	if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("the count lives %v", ttl)
	}
	if n := client.LLen(t.Context(), key).Val(); n != 10 {
		t.Errorf("%d times are kept", n)
	}
	must(t, client.Del(t.Context(), key).Err())
}

// broken is a Redis that fails.
type broken struct{ redis.Scripter }

func (broken) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errors.New("connection refused"))
	return cmd
}

// Without Redis calls go on, with one warning a minute.
func TestFailuresWithoutRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := gateway.NewFailures(broken{}, slog.New(slog.NewTextHandler(&log, nil)))
		warnings := func() int { return strings.Count(log.String(), "level=WARN") }
		try := func() {
			f.Add(t.Context(), "script", "192.0.2.1")
			if w := f.Wait(t.Context(), "script", "192.0.2.1"); w != 0 {
				t.Errorf("waits %v", w)
			}
		}
		for range 20 {
			try()
		}
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings", n)
		}
		time.Sleep(59 * time.Second) //nolint:forbidigo // the time of the bubble
		try()
		if n := warnings(); n != 1 {
			t.Errorf("%d warnings after 59 s", n)
		}
		time.Sleep(time.Second) //nolint:forbidigo // the time of the bubble
		try()
		if n := warnings(); n != 2 {
			t.Errorf("%d warnings after 60 s", n)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(time.Hour) //nolint:forbidigo // the time of the bubble
		f.Wait(gone, "script", "192.0.2.1")
		if n := warnings(); n != 2 {
			t.Error("a caller who went away is a warning")
		}
		if strings.Contains(log.String(), "192.0.2.1") {
			t.Error("the log holds an address")
		}
	})
}

// A Redis that is really gone does not hold up calls.
func TestFailuresOverDeadRedis(t *testing.T) {
	t.Parallel()
	f := gateway.NewFailures(plane.DeadRedis(t), slog.New(slog.DiscardHandler))
	f.Add(t.Context(), "script", "192.0.2.1")
	if w := f.Wait(t.Context(), "script", "192.0.2.1"); w != 0 {
		t.Errorf("waits %v", w)
	}
}
