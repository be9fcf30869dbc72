package batch

import (
	"context"
	"strings"
	"time"

	"github.com/teamsync/edge-workers/transports"
)

// The exit codes of a job's process. The job definition's retry strategy ends
// the job at ExitDone and ExitMalformed, and has any other attempt made again.
const (
	// ExitDone: the delivery is done.
	ExitDone = 0
	// ExitMalformed: the message can never be run (EX_USAGE).
	ExitMalformed = 64
	// ExitRetry: try again (EX_TEMPFAIL).
	ExitRetry = 75
)

// separator stands between the arguments of a run.
const separator = ','

// Run runs the message of one Batch job and gives the process's exit code.
// argument is the four ids, outbox, company, department and message, with commas
// between them (S1-051 to S1-053). After ctx has ended, as with the SIGTERM of a
// terminated job, the work goes on for drain at most (S1-259).
func Run(ctx context.Context, receiver *transports.Receiver, drain time.Duration, argument string) int {
	work, cancel := transports.Outlive(ctx, drain)
	defer cancel()
	switch receiver.Run(work, parse(argument)) {
	case transports.Done:
		return ExitDone
	case transports.Malformed:
		return ExitMalformed
	default:
		return ExitRetry
	}
}

// parse makes a message of whatever there is; the receiver judges it.
func parse(argument string) transports.Message {
	if len(argument) > transports.MaxMessageBytes {
		argument = ""
	}
	args := strings.Split(argument, string(separator))
	return transports.Message{JobID: args[len(args)-1], Function: transports.DeployFunction, Args: args}
}
