// Package claim holds short, owner-fenced claims in Redis: the advisory claim
// of one delivery (S2-115 to S2-118) and the lock that serialises a
// department's settings writes and deployments (S2-030 to S2-034). A claim
// merges work; it never decides about durable state.
package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Claim constants of S2, in code on purpose.
const (
	// DeliveryTTL is the life of a delivery claim without a heartbeat (S2-116).
	DeliveryTTL = 30 * time.Second
	// DeliveryBeat renews it; two beats may be missed.
	DeliveryBeat = 10 * time.Second
	// DoneTTL is how long a done mark stays.
	DoneTTL = 7 * 24 * time.Hour
	// SettingsTTL is the settings lock's life (S2-031).
	SettingsTTL = 600 * time.Second
)

// The errors of a claim.
var (
	// ErrHeld says that another owner has the claim.
	ErrHeld = errors.New("claimed by another owner")
	// ErrDone says that the claim carries a done mark.
	ErrDone = errors.New("marked as done")
	// ErrLost says that the claim is no longer the caller's.
	ErrLost = errors.New("the claim was lost")
)

const doneMark = "done"

// The scripts compare the owner before they change anything, so that nobody
// can extend, finish or release what another holds (S2-117, S1-058).
var (
	acquire = redis.NewScript(`
local v = redis.call('GET', KEYS[1])
if v then return v end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ''`)
	renew = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`)
	replace = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1`)
	release = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`)
)

// Claim is one owner's hold on a key.
type Claim struct {
	client redis.Scripter
	key    string
	owner  string
	ttl    time.Duration
}

// Delivery claims one delivery of an outbox row's message.
func Delivery(ctx context.Context, client redis.Scripter, outboxID string) (*Claim, error) {
	return take(ctx, client, "edge-workers:delivery:"+outboxID, DeliveryTTL)
}

// Settings locks a department's settings writes and deployments.
func Settings(ctx context.Context, client redis.Scripter, companyID, departmentID string) (*Claim, error) {
	return take(ctx, client, "edge-workers:settings:"+companyID+":"+departmentID, SettingsTTL)
}

func take(ctx context.Context, client redis.Scripter, key string, ttl time.Duration) (*Claim, error) {
	c := &Claim{client: client, key: key, owner: uuid.NewString(), ttl: ttl}
	held, err := acquire.Run(ctx, client, []string{key}, c.owner, ttl.Milliseconds()).Text()
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", key, err)
	}
	switch held {
	case "", c.owner: // ours at once, or by a try of this call whose answer was lost
		return c, nil
	case doneMark:
		return nil, ErrDone
	}
	return nil, ErrHeld
}

// ForgetDone deletes a done mark that durable state contradicts (S1-060). It
// leaves a living claim alone.
func ForgetDone(ctx context.Context, client redis.Scripter, outboxID string) error {
	err := release.Run(ctx, client, []string{"edge-workers:delivery:" + outboxID}, doneMark).Err()
	if err != nil {
		return fmt.Errorf("delete the done mark: %w", err)
	}
	return nil
}

// Renew extends the claim to its full life.
func (c *Claim) Renew(ctx context.Context) error {
	return c.owned(renew.Run(ctx, c.client, []string{c.key}, c.owner, c.ttl.Milliseconds()), "renew")
}

// Done replaces the claim with a done mark, after the durable state became
// terminal and only then (S1-136).
func (c *Claim) Done(ctx context.Context) error {
	return c.owned(replace.Run(ctx, c.client, []string{c.key}, c.owner, doneMark, DoneTTL.Milliseconds()), "finish")
}

// Release gives the claim up, so that the next delivery can claim at once
// (S1-137).
func (c *Claim) Release(ctx context.Context) error {
	return c.owned(release.Run(ctx, c.client, []string{c.key}, c.owner), "release")
}

func (c *Claim) owned(result *redis.Cmd, what string) error {
	n, err := result.Int()
	if err != nil {
		return fmt.Errorf("%s the claim: %w", what, err)
	}
	if n == 0 {
		return ErrLost
	}
	return nil
}
