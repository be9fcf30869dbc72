package claim_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/teamsync/edge-workers/pkg/claim"
	"github.com/teamsync/edge-workers/test/plane"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, client redis.Scripter, id string) *claim.Claim {
	t.Helper()
	held, err := claim.Delivery(t.Context(), client, id)
	must(t, err)
	return held
}

// S2-116, S2-031: the lives in Redis, and their renewal to the full life.
func TestLife(t *testing.T) {
	t.Parallel()
	client, id := plane.Redis(t), uuid.NewString()
	held := take(t, client, id)
	lock, err := claim.Settings(t.Context(), client, "c-"+id, "d")
	must(t, err)
	near := func(key string, want time.Duration) {
		t.Helper()
		ttl := client.PTTL(t.Context(), key).Val()
		if ttl > want || ttl < want-5*time.Second {
			t.Errorf("%s lives %v, want %v", key, ttl, want)
		}
	}
	delivery, settings := "edge-workers:delivery:"+id, "edge-workers:settings:c-"+id+":d"
	near(delivery, 30*time.Second)
	near(settings, 600*time.Second)
	client.PExpire(t.Context(), delivery, 2*time.Second)
	must(t, held.Renew(t.Context()))
	near(delivery, 30*time.Second)
	must(t, held.Done(t.Context()))
	near(delivery, 7*24*time.Hour)
	if v := client.Get(t.Context(), delivery).Val(); v != "done" {
		t.Errorf("mark %q", v)
	}
	must(t, lock.Release(t.Context()))
	must(t, client.Del(t.Context(), delivery).Err())
}

// S1-058, S2-117, S2-118: another owner can neither take, extend, finish nor
// release a claim; the owner can, and then the next one gets it.
func TestOwnerFence(t *testing.T) {
	t.Parallel()
	client, id := plane.Redis(t), uuid.NewString()
	key := "edge-workers:delivery:" + id
	loser := take(t, client, id)
	must(t, client.Del(t.Context(), key).Err()) // its life has ended
	owner := take(t, client, id)
	if _, err := claim.Delivery(t.Context(), client, id); !errors.Is(err, claim.ErrHeld) {
		t.Errorf("taken twice: %v", err)
	}
	client.PExpire(t.Context(), key, 20*time.Second)
	before := client.Get(t.Context(), key).Val()
	for name, act := range map[string]func(context.Context) error{"renew": loser.Renew, "done": loser.Done, "release": loser.Release} {
		if err := act(t.Context()); !errors.Is(err, claim.ErrLost) {
			t.Errorf("%s by another owner: %v", name, err)
		}
		if got, ttl := client.Get(t.Context(), key).Val(), client.PTTL(t.Context(), key).Val(); got != before || ttl > 20*time.Second {
			t.Errorf("%s by another owner changed it: %q, %v", name, got, ttl)
		}
	}
	must(t, claim.ForgetDone(t.Context(), client, id)) // leaves a living claim alone
	must(t, owner.Renew(t.Context()))
	must(t, owner.Release(t.Context()))
	if err := owner.Release(t.Context()); !errors.Is(err, claim.ErrLost) {
		t.Errorf("released twice: %v", err)
	}
	must(t, take(t, client, id).Release(t.Context()))
}

// S1-060: a done mark stops a claim until it is forgotten.
func TestDoneMark(t *testing.T) {
	t.Parallel()
	client, id := plane.Redis(t), uuid.NewString()
	must(t, take(t, client, id).Done(t.Context()))
	if _, err := claim.Delivery(t.Context(), client, id); !errors.Is(err, claim.ErrDone) {
		t.Errorf("%v", err)
	}
	must(t, claim.ForgetDone(t.Context(), client, id))
	must(t, take(t, client, id).Release(t.Context()))
	must(t, claim.ForgetDone(t.Context(), client, id)) // and when there is none
}

// Of many at once exactly one gets the claim; other keys are free.
func TestConcurrentClaims(t *testing.T) {
	t.Parallel()
	client, id := plane.Redis(t), uuid.NewString()
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[error]int{}
	for range 8 {
		wg.Go(func() {
			_, err := claim.Settings(context.Background(), client, id, "d")
			mu.Lock()
			defer mu.Unlock()
			got[err]++
		})
	}
	wg.Wait()
	if got[nil] != 1 || got[claim.ErrHeld] != 7 {
		t.Errorf("%v", got)
	}
	for _, of := range [][2]string{{id, "e"}, {id + "x", "d"}} {
		other, err := claim.Settings(t.Context(), client, of[0], of[1])
		must(t, err)
		must(t, other.Release(t.Context()))
	}
	must(t, client.Del(t.Context(), "edge-workers:settings:"+id+":d").Err())
}

// lossy loses the answer of the first script call, as a broken connection
// does: the client's own repetition then meets what the first call did.
type lossy struct{ lost bool }

func (*lossy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if l.lost || err != nil {
			return err
		}
		l.lost = true
		return next(ctx, cmd)
	}
}

// A claim whose first answer was lost is the caller's own, not held by another
// for its whole life.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	client, ok := plane.Redis(t).(*redis.Client)
	if !ok {
		t.Fatal("not a single client")
	}
	must(t, take(t, client, uuid.NewString()).Release(t.Context())) // the script is loaded
	client.AddHook(&lossy{})
	id := uuid.NewString()
	held := take(t, client, id)
	if _, err := claim.Delivery(t.Context(), client, id); !errors.Is(err, claim.ErrHeld) {
		t.Errorf("control: %v", err)
	}
	must(t, held.Release(t.Context()))
}

// Without Redis there is an error that is none of the claim's own.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	_, err := claim.Delivery(t.Context(), plane.DeadRedis(t), uuid.NewString())
	var network net.Error
	if err == nil || errors.Is(err, claim.ErrHeld) || errors.Is(err, claim.ErrDone) || errors.Is(err, claim.ErrLost) || !errors.As(err, &network) {
		t.Errorf("%v", err)
	}
	if err := claim.ForgetDone(t.Context(), plane.DeadRedis(t), "x"); err == nil {
		t.Error("forgotten without Redis")
	}
}
