package scriptapi

import (
	"encoding/json"
	"errors"
	"strings"
)

// envelope is the provider's answer form.
type envelope struct {
	Success *bool           `json:"success"`
	Errors  []envelopeError `json:"errors"`
	Result  json.RawMessage `json:"result"`
}

// envelopeError's code is a number of the provider or a text of this product.
type envelopeError struct {
	Code    json.RawMessage `json:"code"`
	Message string          `json:"message"`
}

func (e envelopeError) code() string { return strings.Trim(string(e.Code), `"`) }

func parseEnvelope(raw []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, err
	}
	if e.Success == nil {
		return e, errors.New("the answer has no success field")
	}
	return e, nil
}

// result decodes the result of a 2xx answer into an object.
func result(got reply, into any) error {
	answer, err := parseEnvelope(got.raw)
	if err == nil && (!*answer.Success || len(answer.Errors) > 0) {
		err = errors.New("the answer says that the call failed")
	}
	if err == nil && !strings.HasPrefix(strings.TrimSpace(string(answer.Result)), "{") {
		err = errors.New("the answer has no result object")
	}
	if err == nil {
		err = json.Unmarshal(answer.Result, into)
	}
	if err != nil {
		return got.malformed(err)
	}
	return nil
}
