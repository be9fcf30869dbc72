package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// The exit codes, as docs/edgectl.md promises them.
const (
	exitOK          = 0
	exitFailed      = 1 // the deployment or the operation failed, or this command did
	exitUsage       = 2 // the command line is wrong
	exitUncertain   = 3 // the deployment is paused and waits for the company's repair
	exitRefused     = 4 // the API refused: identity, role, input or state
	exitUnreachable = 5 // the API cannot be reached or cannot serve now
)

// failure is what a user reads: what went wrong, where, and what to do next.
type failure struct {
	what     string
	where    string
	next     string
	exit     int
	code     string // the API's code, where there is one
	status   int    // the API's status, where there is one
	problems []fault.Problem
}

func (f *failure) Error() string { return f.what }

func usageError(format string, args ...any) *failure {
	return &failure{what: fmt.Sprintf(format, args...), next: "Run the command with --help.", exit: exitUsage}
}

func (f *failure) print(w io.Writer, asJSON bool) {
	if asJSON {
		f.printJSON(w)
		return
	}
	var b strings.Builder
	b.WriteString("Error: " + printable(f.what) + "\n")
	for _, problem := range f.problems {
		b.WriteString("  - " + printable(location(problem.Loc)+": "+problem.Msg+" ("+problem.Type+")") + "\n")
	}
	if f.where != "" {
		b.WriteString("  where: " + printable(f.where) + "\n")
	}
	if f.next != "" {
		b.WriteString("  next:  " + printable(f.next) + "\n")
	}
	_, _ = io.WriteString(w, b.String()) // there is nowhere left to tell of a failure
}

// printable keeps texts of the API and names of files from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

func (f *failure) printJSON(w io.Writer) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(map[string]any{"error": struct {
		Message  string          `json:"message"`
		Code     string          `json:"code,omitempty"`
		Status   int             `json:"status,omitempty"`
		Problems []fault.Problem `json:"problems,omitempty"`
		Where    string          `json:"where,omitempty"`
		Next     string          `json:"next,omitempty"`
		Exit     int             `json:"exit_code"`
	}{f.what, f.code, f.status, f.problems, f.where, f.next, f.exit}})
}

// location writes a problem's place as file:line:column or a dotted path.
func location(loc []any) string {
	var b strings.Builder
	for i, part := range loc {
		_, isName := part.(string)
		switch {
		case i == 0:
		case isName:
			b.WriteString(".")
		default:
			b.WriteString(":")
		}
		_, _ = fmt.Fprint(&b, part)
	}
	return b.String()
}

// explain turns any error into a failure.
func (s *cli) explain(err error) *failure {
	var f *failure
	var refused *client.Error
	var silent *client.Unreachable
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &refused):
		return explainRefusal(s.api.url, refused)
	case errors.Is(err, context.Canceled):
		return &failure{what: "interrupted", exit: exitFailed}
	case errors.As(err, &silent):
		return &failure{
			what: silent.Error(), where: s.api.url, exit: exitUnreachable,
			next: "Check that the API runs and that --api-url is right, then try again.",
		}
	}
	return &failure{what: err.Error(), exit: exitFailed}
}

func explainRefusal(apiURL string, refused *client.Error) *failure {
	f := &failure{
		what: refused.Error(), where: apiURL, next: nextStep(refused), exit: exitOf(refused.Status),
		code: refused.Code, status: refused.Status, problems: refused.Problems,
	}
	if refused.RequestID != "" {
		f.where += ", request " + refused.RequestID
	}
	return f
}

func exitOf(status int) int {
	switch {
	case status == http.StatusBadGateway, status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return exitUnreachable
	case status >= 500, status < 400:
		return exitFailed
	}
	return exitRefused
}

const tryLater = "Try again later."

// rebuild is the remedy for a release that is too old (S2-107).
const rebuild = "Submit the project again and deploy the new version: `edgectl deploy DIR --wait`."

// codeSteps are next steps by code. The message is never looked at (S2-040).
var codeSteps = map[string]string{
	"deployment_in_progress":                   "Wait until the other deployment or settings change is over (`edgectl status`), then try again.",
	"worker_serving_target_unavailable":        "Ask the platform's operators: the Worker's serving location cannot be verified.",
	"worker_migration_in_progress":             "The Worker is being moved. " + tryLater,
	"edge_workers_maintenance":                 "The edge host is under maintenance. " + tryLater,
	"edge_workers_restore_pending":             "The edge host is being restored. " + tryLater,
	"maintenance_not_supported":                "There is nothing to do: only an edge host has gates.",
	"maintenance_row_missing":                  "Restart the API, which creates the row.",
	"maintenance_fence_ending":                 "End the last backup fence first: `edgectl maintenance fence end`.",
	"maintenance_restore_pending":              "End the restore first: `edgectl maintenance restore end`.",
	"maintenance_resync_active":                "End the resync first: `edgectl maintenance resync --accept`.",
	"maintenance_busy":                         "Look at the state with `edgectl maintenance status` and repeat the command.",
	"release_downgrade_blocked":                "Submit the project again, so that it is built for the current release, and deploy that version.",
	"edge_worker_artifact_unavailable":         "Ask the platform's operators: the stored artifact cannot be read.",
	"worker_readiness_timeout":                 "The release did not answer in time. Ask a company admin to repair the deployment.",
	"artifact_integrity_failed":                "Submit the project again and deploy the new version.",
	"edge_host_bundle_rejected":                "The bundle does not start. Correct the project and deploy it again.",
	"edge_host_capacity_exhausted":             "Ask the platform's operators for more capacity.",
	"cloudflare_rate_limited":                  "The provider limits requests. Deploy the version again in a few minutes.",
	"live_release_required":                    "Deploy a version first: `edgectl deploy DIR --wait`.",
	"worker_secrets_unsupported":               rebuild,
	"operation_settings_unsupported":           rebuild,
	"service_accounts_unsupported":             rebuild,
	"operation_settings_live_release_required": "Deploy without --settings, then use `edgectl operations set`.",
	"operation_settings_same_release":          "Use `edgectl operations set`: the version is live.",
	"operation_settings_dedupe_mismatch":       "This deployment was asked for with other settings. Follow its ticket, or submit the project again.",
	"secret_limit_reached":                     "Delete a secret that is not used: `edgectl secrets list`.",
	"service_account_limit_reached":            "Delete an account that is not used: `edgectl accounts list`.",
	"worker_control_unavailable":               "Nothing was changed. " + tryLater,
	"control_not_recorded":                     "Nothing was changed. " + tryLater,
	"worker_changing":                          "Nothing was changed. " + tryLater,
}

func nextStep(refused *client.Error) string {
	if step, ok := codeSteps[refused.Code]; ok {
		return step
	}
	switch status := refused.Status; {
	case status == http.StatusUnauthorized:
		return "Get a valid token (see `edgectl token --help`) and give it with --token or EDGE_WORKERS_TOKEN."
	case status == http.StatusForbidden:
		return "Use a token that has the role which this needs."
	case status == http.StatusNotFound:
		return "Check the id: `edgectl versions` lists the versions, `edgectl status` shows the Worker."
	case status == http.StatusConflict:
		return "Look at the state with `edgectl status` and `edgectl versions`, then try again."
	case status < http.StatusInternalServerError:
		return "Correct the input and try again."
	}
	return tryLater + " If it stays, give the request id to the platform's operators."
}
