package artifacttest

import (
	"io"
	"net"
	"net/http"
	"strconv"
)

// Action is what goes wrong.
type Action string

// The actions. "Applied" means that the request has its effect all the same.
const (
	// Answer gives Status and Code instead of doing what was asked.
	Answer Action = "answer"
	// Reset breaks the connection before anything is done.
	Reset Action = "reset"
	// LoseReply applies the request and breaks the connection without an answer.
	LoseReply Action = "lose the reply"
	// Misreport applies the request and answers Status and Code.
	Misreport Action = "misreport"
	// StallRequest does not read the request's body.
	StallRequest Action = "stall the request"
	// StallReply applies the request and sends no header.
	StallReply Action = "stall the reply"
	// StallBody sends the first Bytes bytes of the object and then nothing.
	StallBody Action = "stall the body"
	// BreakBody sends the first Bytes bytes of the object and breaks the connection.
	BreakBody Action = "break the body"
	// Undeclared sends the object without its length, and Bytes more bytes.
	Undeclared Action = "send more, undeclared"
	// IgnoreRange sends the whole object to who asked for a part.
	IgnoreRange Action = "ignore the range"
	// Redirect sends the caller elsewhere.
	Redirect Action = "redirect"
)

// Fault is one thing that goes wrong, once. The zero fault changes nothing.
type Fault struct {
	Method string // of the request that it waits for; "" any
	Do     Action
	Status int
	Code   string
	Bytes  int
}

// Times repeats a fault.
func (f Fault) Times(n int) []Fault {
	all := make([]Fault, n)
	for i := range all {
		all[i] = f
	}
	return all
}

// early does what a fault does before the request is looked at, and tells
// whether that was all.
func (s *S3) early(w http.ResponseWriter, r *http.Request, f Fault) bool {
	switch f.Do {
	case Answer:
		_, _ = io.Copy(io.Discard, r.Body) // an answer before the body's end would break the connection
		refuse(w, r, f.Status, f.Code)
	case Redirect:
		w.Header().Set("Location", "https://elsewhere.invalid"+r.URL.Path)
		refuse(w, r, http.StatusTemporaryRedirect, "TemporaryRedirect")
	case Reset:
		breakOff(w, true)
	case StallRequest:
		s.stall(r)
		breakOff(w, false)
	default:
		return false
	}
	return true
}

// late does what a fault does after a request was applied, and tells whether
// that was the answer.
func (s *S3) late(w http.ResponseWriter, r *http.Request, f Fault) bool {
	switch f.Do {
	case LoseReply:
		breakOff(w, true)
	case Misreport:
		refuse(w, r, f.Status, f.Code)
	case StallReply:
		s.stall(r)
		breakOff(w, false)
	default:
		return false
	}
	return true
}

// sendBody sends an object's bytes, as the fault says.
func (s *S3) sendBody(w http.ResponseWriter, r *http.Request, content []byte, status int, f Fault) {
	if f.Do != Undeclared {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	switch f.Do {
	case StallBody, BreakBody:
		_, _ = w.Write(content[:min(len(content), f.Bytes)]) // the caller may be gone
		flush(w)
		if f.Do == StallBody {
			s.stall(r)
		}
		breakOff(w, false)
	case Undeclared:
		flush(w) // without a length the reply is chunked
		_, _ = w.Write(append(content[:len(content):len(content)], make([]byte, f.Bytes)...))
	default:
		_, _ = w.Write(content)
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// breakOff closes the connection, with a reset where that is asked for.
func breakOff(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // the reply has begun in a way that cannot be taken over
	}
	inner := conn
	if over, ok := conn.(interface{ NetConn() net.Conn }); ok {
		inner = over.NetConn()
	}
	if tcp, ok := inner.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	_ = inner.Close()
}
