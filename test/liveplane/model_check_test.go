package liveplane_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/pkg/settings"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// check compares the end of a run with the model.
func (w *world) check() {
	sent := w.Front.Sent()
	rows := w.rows()
	w.checkSent(sent, rows)
	facts := w.facts(rows)
	w.checkAnswers(rows, facts)
	w.checkReceipts(rows)
	fold(w, facts).compare()
	w.checkSecrecy(sent)
	w.count()
}

// rows are the control rows by the request that made them.
func (w *world) rows() map[string]models.Outbox {
	var found []models.Outbox
	w.Must(w.DB.Read(context.Background()).Where("operation = ?", models.OperationControlAudit).Find(&found).Error)
	rows := map[string]models.Outbox{}
	for _, row := range found {
		p := w.payload(row)
		if other, twice := rows[p.RequestID]; twice {
			w.T.Errorf("two rows of one request: %s %s", other.ID, row.ID)
		}
		rows[p.RequestID] = row
		if row.NextAttemptAt != nil || row.LeaseOwner != "" || (row.Status != models.OutboxCompleted && row.Status != models.OutboxFailed) {
			w.T.Errorf("row %s is %s, due %v", row.ID, row.Status, row.NextAttemptAt)
		}
	}
	return rows
}

func (w *world) payload(row models.Outbox) outbox.ControlPayload {
	p, err := outbox.DecodeControl(row)
	w.Must(err)
	return p
}

// checkSent: a mutation leaves the control plane once, and of however many
// copies the Worker takes one (S1-163).
func (w *world) checkSent(sent []liveplane.Sent, rows map[string]models.Outbox) {
	known := map[string]bool{}
	for _, row := range rows {
		known[row.ID] = true
	}
	times := map[string]int{}
	for _, s := range sent {
		if s.MutationID == "" {
			continue
		}
		times[s.MutationID]++
		if s.Operation != "operation_settings.stage" && !known[s.MutationID] {
			w.T.Errorf("%s %s was sent without a row", s.Operation, s.MutationID)
		}
	}
	for id, n := range times {
		good := len(w.accepted(id))
		if n != 1 || good > 1 {
			w.T.Errorf("mutation %s was sent %d times and accepted %d times", id, n, good)
		}
	}
	if len(times) == 0 {
		w.T.Error("no mutation was sent")
	}
}

// accepted tells of each answer that did not refuse the mutation whether it
// conflicted.
func (w *world) accepted(id string) []bool {
	var conflicts []bool
	for _, a := range w.Front.Answers(id) {
		if a.Status != http.StatusOK {
			continue
		}
		var body struct {
			Result struct {
				Conflict *bool `json:"conflict"`
			} `json:"result"`
		}
		w.Must(json.Unmarshal(a.Body, &body))
		conflicts = append(conflicts, *body.Result.Conflict)
	}
	return conflicts
}

// facts are the applied changes by their mutation ids: each completed row has
// one fact under its id, no other row has one, and there are no more (S1-164,
// S1-165, S1-190).
func (w *world) facts(rows map[string]models.Outbox) map[string]applied {
	asked := map[string]*change{}
	for _, c := range w.changes {
		asked[c.request] = c
	}
	byID, total := map[string]models.AuditLog{}, 0
	for _, fact := range w.Facts() {
		if settings.Operation(strings.TrimSuffix(fact.Action, ".noop")).Known() {
			byID[fact.ID] = fact
			total++
		}
	}
	facts := map[string]applied{}
	for request, row := range rows {
		p, c := w.payload(row), asked[request]
		fact, is := byID[row.ID]
		if is != (row.Status == models.OutboxCompleted) || c == nil {
			w.T.Errorf("row %s of %v is %s, its fact: %t", row.ID, c, row.Status, is)
			continue
		}
		if said := w.accepted(row.ID); len(said) > 0 && said[0] == is {
			w.T.Errorf("the Worker had a conflict: %t, there is a fact: %t: %v", said[0], is, c)
		}
		if !is {
			continue
		}
		stored, err := settings.ReadStored(c.operation, p.Command)
		w.Must(err)
		noOp := strings.HasSuffix(fact.Action, ".noop")
		if strings.TrimSuffix(fact.Action, ".noop") != string(c.operation) || fact.RequestID != request || fact.ResourceID != w.Worker().ID || fact.Result != "succeeded" {
			w.T.Errorf("fact %+v of %v", fact, c)
		}
		facts[row.ID] = applied{change: c, row: row.ID, generation: p.ReleaseGeneration, stored: stored, noOp: noOp}
	}
	if total != len(facts) || total == 0 {
		w.T.Errorf("%d facts of %d applied changes", total, len(facts))
	}
	return facts
}

// checkAnswers: whoever was told that a change was made, or was not, was told
// the truth.
func (w *world) checkAnswers(rows map[string]models.Outbox, facts map[string]applied) {
	for _, c := range w.changes {
		fact, is := facts[rows[c.request].ID]
		revision := c.base + 1
		if c.noOp {
			revision = c.base
		}
		switch {
		case c.outcome == succeeded && (!is || fact.noOp != c.noOp):
			w.T.Errorf("said to be applied, and is: %t, no-op: %t: %v", is, fact.noOp, c)
		case c.outcome == succeeded && c.kind() != "secrets" && c.kind() != "service_accounts" && c.left != revision:
			w.T.Errorf("the answer's revision is another: %v", c)
		case c.outcome == refused && is, c.fate == diesBefore && is:
			w.T.Errorf("said not to be applied, and is: %v", c)
		case c.outcome == unknown && rows[c.request].ID == "":
			w.T.Errorf("there is no row to find out from: %v", c)
		}
	}
}

// checkReceipts: what is done with has no receipt left (S1-229).
func (w *world) checkReceipts(rows map[string]models.Outbox) {
	for _, row := range rows {
		result := w.Command(control.ReceiptGet, map[string]string{"mutationId": row.ID, "commandDigest": w.payload(row).CommandDigest})
		var answer struct {
			Found *bool `json:"found"`
		}
		w.Must(json.Unmarshal(result, &answer))
		if answer.Found == nil || *answer.Found {
			w.T.Errorf("row %s is %s and the Worker has a receipt: %s", row.ID, row.Status, result)
		}
	}
}

// count shows that the run was of some worth.
func (w *world) count() {
	n := map[outcome]int{}
	for _, c := range w.changes {
		n[c.outcome]++
	}
	w.T.Logf("%d changes: %v; %d releases", len(w.changes), n, len(w.releases))
	for _, o := range []outcome{succeeded, refused, unknown, died} {
		if n[o] == 0 {
			w.T.Errorf("no change was %s", o)
		}
	}
}
