// Command node is one process of a control plane in the fault matrix. It does
// one command and prints one JSON line:
//
//	node CONFIG submit TEXT
//	node CONFIG admit VERSION REVISION
//	node CONFIG run OUTBOX_ID MESSAGE_ID
//	node CONFIG sweep
//	node CONFIG clean
//	node CONFIG repair TICKET REVISION
//
// Exit code 0 of run acknowledges the message.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/teamsync/edge-workers/pkg/admission"
	"github.com/teamsync/edge-workers/test/faults/control"
)

func main() {
	reply, err := run(context.Background(), os.Args[1:])
	if err != nil {
		reply.Error = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(reply) // the exit code tells
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (control.Reply, error) {
	if len(args) < 2 {
		return control.Reply{}, errors.New("usage: node CONFIG COMMAND ARGUMENTS")
	}
	var config control.Config
	err := json.Unmarshal([]byte(args[0]), &config)
	if err != nil {
		return control.Reply{}, fmt.Errorf("read the configuration: %w", err)
	}
	n, err := open(ctx, config)
	if err != nil {
		return control.Reply{}, err
	}
	return n.do(ctx, args[1], args[2:])
}

func (n *node) do(ctx context.Context, command string, args []string) (control.Reply, error) {
	switch {
	case command == "submit" && len(args) == 1:
		return n.submit(ctx, args[0])
	case command == "admit" && len(args) == 2:
		revision, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return control.Reply{}, err
		}
		view, err := n.desk.Deploy(ctx, admission.Request{Tenant: n.config.Tenant, Actor: actor, VersionID: args[0], BaseRevision: revision})
		return control.Reply{Ticket: view.TicketID}, err
	case command == "run" && len(args) == 2:
		return control.Reply{}, n.task.Run(ctx, args[0], n.config.Tenant.CompanyID, n.config.Tenant.DepartmentID, args[1])
	case command == "sweep" && len(args) == 0:
		result, err := n.republisher.RunOnce(ctx, sweepBudget)
		return control.Reply{Sweep: result}, err
	case command == "clean" && len(args) == 0:
		result, err := n.cleaner.RunOnce(ctx, sweepBudget)
		return control.Reply{Sweep: result}, err
	case command == "repair" && len(args) == 2:
		revision, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return control.Reply{}, err
		}
		view, err := n.desk.Repair(ctx, admission.RepairRequest{Tenant: n.config.Tenant, Actor: actor, TicketID: args[0], ObservedRevision: revision})
		return control.Reply{Ticket: view.TicketID}, err
	}
	return control.Reply{}, fmt.Errorf("unknown command %q", command)
}
