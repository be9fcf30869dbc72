package batch

import (
	"context"
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

// Run runs the message of one Batch job and gives the process's exit code. args
// are the command's: the ids of outbox row, company, department and message
// (S1-051 to S1-053). After ctx has ended, as with the SIGTERM of a terminated
// job, the work goes on for drain at most (S1-259).
func Run(ctx context.Context, receiver *transports.Receiver, drain time.Duration, args []string) int {
	work, cancel := transports.Outlive(ctx, drain)
	defer cancel()
	message := transports.Message{Function: transports.DeployFunction, Args: args}
	if len(args) > 0 {
		message.JobID = args[len(args)-1]
	}
	switch receiver.Run(work, message) { // which judges it
	case transports.Done:
		return ExitDone
	case transports.Malformed:
		return ExitMalformed
	default:
		return ExitRetry
	}
}
