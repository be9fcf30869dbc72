package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// The bound on wrong API keys that come from one address for one Worker. Keys
// have 256 bits and cannot be guessed; it keeps trying cheap for us.
const (
	maxFailures   = 10
	failureWindow = 60 * time.Second
	// failureBudget bounds one question to Redis: without an answer the call
	// goes on.
	failureBudget = 250 * time.Millisecond
	warningEvery  = time.Minute
)

var errKeyFailures = fault.Coded(fault.RateLimited, "api_key_failures", "Too many calls with a wrong API key; try again later")

// LimitedError is the refusal of a caller who must wait.
type LimitedError struct {
	Wait time.Duration // above 0
}

func (e *LimitedError) Error() string { return fmt.Sprintf("%v (for %v)", errKeyFailures, e.Wait) }

// Unwrap gives the fault that the caller is answered with.
func (e *LimitedError) Unwrap() error { return errKeyFailures }

// recordFailures keeps the times of the last failures and gives the
// milliseconds until there is room for one more. Redis's clock is the only one:
// gateways need not agree about the time.
var recordFailures = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if ARGV[1] == '1' then
  redis.call('LPUSH', KEYS[1], string.format('%.0f', now))
  redis.call('LTRIM', KEYS[1], 0, ARGV[3] - 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local oldest = redis.call('LINDEX', KEYS[1], ARGV[3] - 1)
if not oldest then return 0 end
return math.max(0, oldest + ARGV[2] - now)`)

// Failures counts wrong API keys in Redis, for each Worker and client address.
// While Redis cannot be reached nothing is counted and nobody is refused.
type Failures struct {
	client redis.Scripter
	log    *slog.Logger
	warned atomic.Int64 // when, in Unix nanoseconds
}

// NewFailures returns a counter on a Redis whose client keeps to the deadlines
// of contexts.
func NewFailures(client redis.Scripter, log *slog.Logger) *Failures {
	return &Failures{client: client, log: log}
}

// Wait gives how long calls with a key are refused from here on, mostly 0.
func (f *Failures) Wait(ctx context.Context, script, address string) time.Duration {
	return f.run(ctx, script, address, 0)
}

// Add counts a wrong key, also of a caller who did not wait for the answer.
func (f *Failures) Add(ctx context.Context, script, address string) {
	f.run(context.WithoutCancel(ctx), script, address, 1)
}

func (f *Failures) run(call context.Context, script, address string, add int) time.Duration {
	ctx, cancel := context.WithTimeout(call, failureBudget)
	defer cancel()
	// The digest hides the address; both parts in it make it the Worker's own.
	key := "edge-workers:key-failures:" + canonical.Digest("teamsync-edge-worker-key-failures", []byte(script+"\x00"+address))
	wait, err := recordFailures.Run(ctx, f.client, []string{key}, add, failureWindow.Milliseconds(), maxFailures).Int64()
	if err != nil {
		if call.Err() == nil { // else it is the caller who went away
			f.warn(call, err)
		}
		return 0
	}
	return time.Duration(wait) * time.Millisecond
}

// warn says at most once a minute that wrong keys are not counted.
func (f *Failures) warn(ctx context.Context, err error) {
	now, last := time.Now().UnixNano(), f.warned.Load()
	if last != 0 && now-last < int64(warningEvery) || !f.warned.CompareAndSwap(last, now) {
		return
	}
	f.log.WarnContext(ctx, "wrong API keys are not counted: Redis does not answer", "error", err)
}
