package settings

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/fault"
)

// Binding is a service-account field of a request: left out it keeps what is
// set now, null clears it (S2-103).
type Binding struct {
	Given bool
	ID    *string
}

// over is the binding over what is set now.
func (b Binding) over(now *string) *string {
	if b.Given {
		return b.ID
	}
	return now
}

// RowRequest is what a request wants for one operation.
type RowRequest struct {
	Access  string
	Account Binding
}

// TableRequest is the object that PUT /worker/operation-settings and a
// deployment take (S2-090).
type TableRequest struct {
	BaseRevision   int64
	DefaultAccount Binding
	Operations     map[string]RowRequest
	// Digest is the SHA-256 of the object's canonical JSON: it tells null from a
	// field that is left out, and not the order of keys (S2-082, S2-083).
	Digest string
}

// ReadRequest reads the object at loc of a request's body. Every fault of it
// is one entry of the 422.
func ReadRequest(raw []byte, loc ...any) (TableRequest, error) {
	r := reader{}
	request := TableRequest{Operations: map[string]RowRequest{}}
	fields := r.object(raw, loc, []string{"base_revision", "operations"}, "default_service_account_id")
	if fields != nil {
		request.BaseRevision = r.revision(fields["base_revision"], at(loc, "base_revision"))
		request.DefaultAccount = r.binding(fields["default_service_account_id"], at(loc, "default_service_account_id"))
		r.rows(fields["operations"], at(loc, "operations"), request.Operations)
	}
	if len(r.problems) > 0 {
		return TableRequest{}, fault.Refuse(r.problems...)
	}
	form, err := canonical.Transform(raw)
	if err != nil {
		return TableRequest{}, fault.Refuse(fault.Problem{Type: "json_invalid", Loc: loc, Msg: "the object is not valid JSON"}).Because(err)
	}
	request.Digest = canonical.SHA256(form)
	return request, nil
}

// at is a place below loc, in a list of its own.
func at(loc []any, names ...any) []any { return append(slices.Clone(loc), names...) }

// reader gathers what is wrong with a request.
type reader struct{ problems []fault.Problem }

func (r *reader) refuse(kind string, loc []any, msg string) {
	r.problems = append(r.problems, fault.Problem{Type: kind, Loc: loc, Msg: msg})
}

// object reads an object that has the required keys and may have the optional
// ones; nil when it is none. A key that is not there has no value in it.
func (r *reader) object(raw []byte, loc []any, required []string, optional ...string) map[string]json.RawMessage {
	found, err := members(raw)
	if err != nil {
		r.refuse("type_error", loc, "an object is required: "+err.Error())
		return nil
	}
	for _, key := range required {
		if found[key] == nil {
			r.refuse("missing", at(loc, key), "Field required")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if !slices.Contains(required, key) && !slices.Contains(optional, key) {
			r.refuse("extra_forbidden", at(loc, key), "Extra inputs are not permitted")
		}
	}
	return found
}

func (r *reader) revision(raw json.RawMessage, loc []any) int64 {
	if raw == nil {
		return 0
	}
	n, err := integer(raw, MaxRevision)
	if err != nil {
		r.refuse("type_error", loc, err.Error())
	}
	return n
}

func (r *reader) binding(raw json.RawMessage, loc []any) Binding {
	if raw == nil {
		return Binding{}
	}
	b := Binding{Given: true}
	err := accountOrNull(raw)
	if err != nil {
		r.refuse("type_error", loc, err.Error())
		return b
	}
	_ = json.Unmarshal(raw, &b.ID) // checked above: a text or null
	return b
}

func (r *reader) rows(raw json.RawMessage, loc []any, into map[string]RowRequest) {
	if raw == nil {
		return
	}
	rows, err := members(raw)
	switch {
	case err != nil:
		r.refuse("type_error", loc, "an object is required: "+err.Error())
		return
	case len(rows) > maxOperations:
		r.refuse("too_many", loc, fmt.Sprintf("at most %d operations are allowed", maxOperations))
		return
	}
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		below := at(loc, id)
		fields := r.object(rows[id], below, []string{"access"}, "service_account_id")
		row := RowRequest{Account: r.binding(fields["service_account_id"], at(below, "service_account_id"))}
		if access := fields["access"]; access != nil {
			err := accessText(access)
			if err != nil {
				r.refuse("type_error", at(below, "access"), err.Error())
			}
			_ = json.Unmarshal(access, &row.Access) // checked above: a text
		}
		into[id] = row
	}
}

// Wanted is a whole table as a command sends it: keys are not part of it, the
// Worker keeps them with their rows.
type Wanted struct {
	DefaultServiceAccountID *string              `json:"defaultServiceAccountId"`
	Operations              map[string]WantedRow `json:"operations"`
}

// WantedRow is one row of it.
type WantedRow struct {
	Access           string  `json:"access"`
	ServiceAccountID *string `json:"service_account_id"`
}

// Over is the request over the live table, for a release with these
// operations: what is listed wins, what is not keeps its live row, and what the
// release does not have is dropped (S2-094 to S2-097, S2-103). Without a request
// the live table is carried over as it is (S2-100 to S2-102).
func (in *TableRequest) Over(live Table, operations []string) Wanted {
	if in == nil {
		in = &TableRequest{}
	}
	out := Wanted{DefaultServiceAccountID: in.DefaultAccount.over(live.DefaultServiceAccountID), Operations: map[string]WantedRow{}}
	for _, id := range operations {
		now, isSet := live.Operations[id]
		wanted, listed := in.Operations[id]
		switch {
		case listed:
			out.Operations[id] = WantedRow{Access: wanted.Access, ServiceAccountID: wanted.Account.over(now.ServiceAccountID)}
		case isSet:
			out.Operations[id] = WantedRow{Access: now.Access, ServiceAccountID: now.ServiceAccountID}
		}
	}
	return out
}

// Accounts gives each service account that the request names, with its place.
func (in *TableRequest) Accounts(loc ...any) map[string][]any {
	out := map[string][]any{}
	for id, row := range in.Operations {
		if row.Account.ID != nil {
			out[*row.Account.ID] = at(loc, "operations", id, "service_account_id")
		}
	}
	if in.DefaultAccount.ID != nil {
		out[*in.DefaultAccount.ID] = at(loc, "default_service_account_id")
	}
	return out
}
