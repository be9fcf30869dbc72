package edgehost

import (
	"encoding/json"
	"net/http"
)

// Codes of the script API, those of the cloud provider where it has one.
const (
	codeRoute         = 7003  // no such path, account or namespace
	codeAuth          = 10000 // missing or wrong token
	codeNotFound      = 10007 // no such script
	codeInternal      = 10013 // the outcome may be unknown
	codeBadName       = 10016 // not a script name
	codeRejected      = 10021 // metadata or bundle refused
	codeTooLarge      = 10027 // a part is too large
	codeHasStorage    = 10064 // deletion would lose data
	codeBusy          = 971   // too many uploads at once
	codeCapacity      = "edge_host_capacity_exhausted"
	codeFenced        = "edge_host_fenced"
	codeFenceConflict = "edge_host_fence_conflict"
	messageNotFound   = "This Worker does not exist on this edge host."
	messageInternal   = "internal error"
	messageCapacity   = "the edge host has no room for this script"
	messageStopping   = "the edge host is stopping"
	messageBusy       = "too many uploads at once"
	messageBadName    = "script name must be dw- followed by 48 lower-case hex digits"
	messageAuth       = "Authentication error"
	messageRoute      = "Could not route to the requested path"
	messageMultipart  = "could not read the multipart body"
)

// envelope is the provider's answer form.
type envelope struct {
	Success    bool            `json:"success"`
	Errors     []envelopeError `json:"errors"`
	Messages   []string        `json:"messages"`
	Result     any             `json:"result"`
	ResultInfo any             `json:"result_info,omitempty"`
}

// envelopeError's Code is the provider's number, or one of this product's own
// codes as a text.
type envelopeError struct {
	Code    any    `json:"code"`
	Message string `json:"message"`
}

// refusal is an error with its answer.
type refusal struct {
	status  int
	code    any
	message string
}

func (r *refusal) Error() string { return r.message }

func writeResult(w http.ResponseWriter, result, info any) {
	writeEnvelope(w, http.StatusOK, envelope{Success: true, Errors: []envelopeError{}, Messages: []string{}, Result: result, ResultInfo: info})
}

func writeRefusal(w http.ResponseWriter, r *refusal) {
	writeEnvelope(w, r.status, envelope{Errors: []envelopeError{{Code: r.code, Message: r.message}}, Messages: []string{}})
}

func writeEnvelope(w http.ResponseWriter, status int, body envelope) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
