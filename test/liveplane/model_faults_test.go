package liveplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// fate is what happens to the process, or the client, that makes a change.
type fate int

const (
	lives        fate = iota
	diesBefore        // between the commit of the row and the sending
	diesAfter         // between the answer and the settlement
	noConnection      // there is no connection to send on
	clientGone        // the client goes away when the command is sent
)

type fateKey struct{}

type journey struct {
	fate   fate
	cancel context.CancelFunc
}

var (
	errDied = errors.New("the process has died")
	errLost = errors.New("the acknowledgement is lost")
)

// mortal is a channel whose user may die; nothing that the user would do
// afterwards happens then. It notes what must never be found anywhere.
type mortal struct {
	live.Channel
	canaries *list
}

// Call passes a command on.
func (m mortal) Call(ctx context.Context, command control.Command) (json.RawMessage, error) {
	j, _ := ctx.Value(fateKey{}).(journey)
	if command.MutationID == "" {
		return m.Channel.Call(ctx, command)
	}
	m.learn(command)
	switch j.fate {
	case diesBefore:
		panic(errDied)
	case noConnection:
		return nil, &control.UnreachableError{NotSent: true, Cause: errLost}
	case clientGone:
		j.cancel()
	case lives, diesAfter:
	}
	result, err := m.Channel.Call(ctx, command)
	if j.fate == diesAfter {
		panic(errDied)
	}
	return result, err
}

func (m mortal) learn(command control.Command) {
	raw, ok := command.Payload.(json.RawMessage)
	var secret struct{ Value, Password, Salt string }
	if !ok || json.Unmarshal(raw, &secret) != nil {
		return
	}
	for _, text := range []string{secret.Value, secret.Password, secret.Salt} {
		if text != "" {
			m.canaries.add(text)
		}
	}
}

// list is a list that several may add to.
type list struct {
	mu    sync.Mutex
	items []string
}

func (l *list) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.items = append(l.items, text)
}

// trouble decides at random what goes wrong on the way and at commits.
type trouble struct {
	mu   sync.Mutex
	rand *rand.Rand
	on   atomic.Bool // at all
	calm atomic.Bool // nothing that a deployment itself would suffer from
	// vanish, when set, undoes the next commit, whose acknowledgement is lost.
	vanish func()
}

func (tr *trouble) chance(percent int) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.rand.IntN(100) < percent
}

// way is what happens to a command.
func (tr *trouble) way(s liveplane.Sent) liveplane.Fault {
	if !tr.on.Load() || (tr.calm.Load() && s.Operation == control.AccessPolicyGet) {
		return liveplane.None
	}
	percent := 8 // of what is only read
	switch {
	case s.MutationID != "":
		percent = 45
	case s.Operation == control.ReceiptGet, s.Operation == control.ReceiptAck:
		percent = 35
	}
	if !tr.chance(percent) {
		return liveplane.None
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return pick(tr.rand, liveplane.LoseRequest, liveplane.LoseReply, liveplane.Garbage, liveplane.Twice, liveplane.Echo, liveplane.Late)
}

// commit is what the caller of a transaction learns of its commit.
func (tr *trouble) commit(err error) error {
	tr.mu.Lock()
	vanish := tr.vanish
	tr.vanish = nil
	tr.mu.Unlock()
	switch {
	case vanish != nil:
		vanish()
		return errors.Join(err, errLost)
	case tr.on.Load() && !tr.calm.Load() && tr.chance(4):
		return errors.Join(err, errLost)
	}
	return err
}

func outcomeOf(err error) outcome {
	var f *fault.Error
	switch {
	case err == nil:
		return succeeded
	case errors.As(err, &f) && f.Code == "control_outcome_unknown":
		return unknown
	}
	return refused
}
