package plane

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/teamsync/edge-workers/pkg/control"
)

// Channel is a control channel whose answers a test scripts and whose commands
// it reads. Without a script it is that of a Worker for which no operation
// settings were ever set.
type Channel struct {
	mu   sync.Mutex
	seen []control.Command
	// Answer gives the result of a command.
	Answer func(control.Command) (any, error)
}

// Call answers a command.
func (c *Channel) Call(_ context.Context, command control.Command) (json.RawMessage, error) {
	c.mu.Lock()
	c.seen = append(c.seen, command)
	answer := c.Answer
	c.mu.Unlock()
	if answer == nil {
		answer = unset
	}
	result, err := answer(command)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

func unset(command control.Command) (any, error) {
	if command.Operation != "operation_settings.get" {
		return nil, fmt.Errorf("the test expects no %s", command.Operation)
	}
	return map[string]any{"settings": nil, "staged": nil}, nil
}

// Commands gives what was sent since the last call.
func (c *Channel) Commands() []control.Command {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}
