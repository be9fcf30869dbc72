package live

import (
	"context"
	"slices"

	"github.com/teamsync/edge-workers/pkg/fault"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// complete checks that the request has a row for each operation of the live
// release and for no other.
func complete(in settings.TableRequest, ids []string) error {
	problems := strangers(in, ids, "operation_id is not present in the live release manifest", "body")
	for _, id := range ids {
		if _, listed := in.Operations[id]; !listed {
			problems = append(problems, fault.Problem{Type: "missing", Loc: []any{"body", "operations", id}, Msg: "Field required"})
		}
	}
	if len(problems) > 0 {
		return fault.Refuse(problems...)
	}
	return nil
}

// strangers are the listed operations that the release does not have.
func strangers(in settings.TableRequest, ids []string, msg string, loc ...any) []fault.Problem {
	var problems []fault.Problem
	for id := range in.Operations {
		if !slices.Contains(ids, id) {
			problems = append(problems, fault.Problem{Type: "operation_not_found", Loc: append(slices.Clone(loc), "operations", id), Msg: msg})
		}
	}
	slices.SortFunc(problems, func(a, b fault.Problem) int { return slices.Compare(texts(a.Loc), texts(b.Loc)) })
	return problems
}

func texts(loc []any) []string {
	var out []string
	for _, part := range loc {
		text, _ := part.(string)
		out = append(out, text)
	}
	return out
}

// knownAccounts checks that each account that the request names exists, which
// means that its credentials were put (S2-104).
func (d *Desk) knownAccounts(ctx context.Context, of release, by By, in settings.TableRequest, loc ...any) error {
	named := in.Accounts(loc...)
	if len(named) == 0 {
		return nil
	}
	known, err := d.accounts(ctx, of, by)
	if err != nil {
		return err
	}
	for _, account := range known {
		delete(named, account.ID)
	}
	var problems []fault.Problem
	for _, place := range named {
		problems = append(problems, fault.Problem{Type: "service_account_not_found", Loc: place, Msg: "the service account has no credentials"})
	}
	if len(problems) == 0 {
		return nil
	}
	slices.SortFunc(problems, func(a, b fault.Problem) int { return slices.Compare(texts(a.Loc), texts(b.Loc)) })
	return fault.Refuse(problems...)
}
