package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Answer is what the Worker said, or the host in its place: JSON with a status
// of 2xx, 4xx or 5xx.
type Answer struct {
	Status int
	// Challenge is the WWW-Authenticate of a refused caller, else empty.
	Challenge string
	// Length is the body's in bytes, -1 when it is not known beforehand.
	Length int64
	// Body fails when the Worker's answer breaks off or crosses its bound. What
	// was read until then is not the whole answer.
	Body io.ReadCloser
}

// beginning is how much of an output is read before its status is passed on:
// until then what goes wrong is still an error answer.
const beginning = 32 << 10

// stream begins to read an output; end gives back what it is read from.
func stream(ctx context.Context, response *http.Response, end func()) (Answer, error) {
	answer := Answer{Status: response.StatusCode, Length: response.ContentLength}
	switch {
	case answer.Length > maxOutput:
		return Answer{}, errTooMuch
	case answer.Status != http.StatusNoContent && !isJSON(response.Header.Get("Content-Type")):
		return Answer{}, errUnreachable.Because(fmt.Errorf("status %d without JSON", answer.Status))
	}
	body := &output{ctx: ctx, source: response.Body, end: end, left: maxOutput}
	body.first = make([]byte, min(beginning, sizeHint(answer.Length)))
	n, err := body.read(body.first)
	body.first, body.err = body.first[:n], err
	if err != nil && !errors.Is(err, io.EOF) && n == 0 {
		return Answer{}, err
	}
	answer.Body = body
	return answer, nil
}

// sizeHint makes room for one byte more than is announced, so that one read
// finds the end as well.
func sizeHint(length int64) int64 {
	if length < 0 {
		return beginning
	}
	return length + 1
}

// output reads an answer within its bound.
type output struct {
	ctx    context.Context
	source io.Reader
	end    func()
	left   int    // bytes that may still come
	first  []byte // read already
	err    error  // what comes after first
}

// Read gives the beginning and then the rest.
func (o *output) Read(p []byte) (int, error) {
	if len(o.first) > 0 {
		n := copy(p, o.first)
		o.first = o.first[n:]
		return n, nil
	}
	if o.err != nil {
		return 0, o.err
	}
	var n int
	n, o.err = o.read(p)
	return n, o.err
}

// WriteTo writes the beginning as it is, and needs a buffer only for more.
func (o *output) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(o.first)
	o.first = o.first[n:]
	if err != nil || errors.Is(o.err, io.EOF) {
		return int64(n), err
	}
	rest, err := io.Copy(w, struct{ io.Reader }{o})
	return int64(n) + rest, err
}

// read reads from the Worker.
func (o *output) read(p []byte) (int, error) {
	n, err := o.source.Read(p)
	if n > o.left {
		return o.left, errTooMuch
	}
	o.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		return n, sendError(o.ctx, err)
	}
	return n, err
}

// Close gives the connection back, or breaks it when the end was not reached.
func (o *output) Close() error {
	o.end()
	return nil
}
