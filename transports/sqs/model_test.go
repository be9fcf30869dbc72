package sqs

import (
	"context"
	"crypto/md5" // SQS's own checksum of a body
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// model is a queue in memory behind SQS's JSON protocol, for what a real server
// cannot be told to do. It shows how our client behaves and proves nothing about
// SQS. Its clock is that of the test's bubble.
type model struct {
	// fault says what becomes of the nth call of an operation, from 1 on.
	fault func(operation string, n int) fault

	mu      sync.Mutex
	changed chan struct{} // closed and renewed by each change of the queue
	calls   []callRecord
	queue   []*stored
	next    int
}

// fault is what goes wrong with a call; the zero value is nothing.
type fault struct {
	status  int    // the answer, with code, and nothing is done
	code    string // SQS's error code
	before  bool   // the connection breaks, and nothing is done
	after   bool   // all is done, and then the connection breaks
	silent  bool   // there is never an answer, and nothing is done
	handout func() // called when a message is about to be handed out
}

// callRecord is a call that arrived.
type callRecord struct {
	operation  string
	at         time.Time
	visibility time.Duration
	receipt    string
}

type stored struct {
	id, body, receipt string
	deliveries        int
	visible           time.Time
	gone              bool
}

// request has the members of all operations that we send.
type request struct {
	MessageBody       string
	MaxNumber         int `json:"MaxNumberOfMessages"`
	WaitTimeSeconds   int
	VisibilityTimeout *int
	ReceiptHandle     string
}

func newModel() *model {
	return &model{changed: make(chan struct{}), fault: func(string, int) fault { return fault{} }}
}

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	var in request
	err := json.NewDecoder(r.Body).Decode(&in)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	wrong := m.fault(operation, m.note(operation, in))
	switch {
	case wrong.silent:
		<-r.Context().Done()
		return
	case wrong.before:
		panic(http.ErrAbortHandler)
	case wrong.status != 0:
		fail(w, wrong.status, wrong.code)
		return
	}
	out, code := m.do(r.Context(), operation, in)
	if wrong.handout != nil {
		wrong.handout()
	}
	if wrong.after {
		panic(http.ErrAbortHandler)
	}
	if code != "" {
		fail(w, http.StatusBadRequest, code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(out) // the client's end is seen by the client
}

func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": "the canary"}) // as above
}

// note records the call and gives its number among those of the operation.
func (m *model) note(operation string, in request) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := callRecord{operation: operation, at: time.Now(), receipt: in.ReceiptHandle}
	if in.VisibilityTimeout != nil {
		one.visibility = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	m.calls = append(m.calls, one)
	n := 0
	for _, c := range m.calls {
		if c.operation == operation {
			n++
		}
	}
	return n
}

// made gives the calls of an operation.
func (m *model) made(operation string) []callRecord {
	m.mu.Lock()
	defer m.mu.Unlock()
	var some []callRecord
	for _, c := range m.calls {
		if c.operation == operation {
			some = append(some, c)
		}
	}
	return some
}

func (m *model) do(ctx context.Context, operation string, in request) (any, string) {
	switch operation {
	case "SendMessage":
		return m.send(in.MessageBody), ""
	case "ReceiveMessage":
		return m.receive(ctx, in), ""
	case "DeleteMessage":
		m.delete(in.ReceiptHandle)
		return map[string]any{}, ""
	case "ChangeMessageVisibility":
		return map[string]any{}, m.hide(in.ReceiptHandle, *in.VisibilityTimeout)
	}
	return nil, "InvalidAction"
}

func (m *model) tell() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *model) send(body string) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	m.queue = append(m.queue, &stored{id: fmt.Sprint("id-", m.next), body: body})
	m.tell()
	return map[string]any{"MessageId": fmt.Sprint("id-", m.next), "MD5OfMessageBody": sum(body)}
}

func sum(body string) string {
	digest := md5.Sum([]byte(body))
	return hex.EncodeToString(digest[:])
}

// receive waits as a long poll does; who went away gets nothing.
func (m *model) receive(ctx context.Context, in request) any {
	limit := time.NewTimer(time.Duration(in.WaitTimeSeconds) * time.Second)
	defer limit.Stop()
	for {
		message, changed, soonest := m.hand(*in.VisibilityTimeout)
		if message != nil {
			return map[string]any{"Messages": []any{message}}
		}
		again := time.NewTimer(soonest)
		select {
		case <-changed:
		case <-again.C:
		case <-limit.C:
			return map[string]any{}
		case <-ctx.Done():
			return map[string]any{}
		}
		again.Stop()
	}
}

// hand gives a message out, or says when to look again.
func (m *model) hand(visibility int) (any, <-chan struct{}, time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	soonest := time.Hour
	for _, s := range m.queue {
		away := time.Until(s.visible)
		if s.gone || away > 0 {
			if !s.gone {
				soonest = min(soonest, away)
			}
			continue
		}
		s.deliveries++
		s.receipt = fmt.Sprintf("%s/%d", s.id, s.deliveries)
		s.visible = time.Now().Add(time.Duration(visibility) * time.Second)
		return map[string]any{
			"MessageId": s.id, "ReceiptHandle": s.receipt, "Body": s.body, "MD5OfBody": sum(s.body),
			"Attributes": map[string]string{"ApproximateReceiveCount": fmt.Sprint(s.deliveries)},
		}, m.changed, 0
	}
	return nil, m.changed, soonest
}

func (m *model) delete(receipt string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.queue {
		s.gone = s.gone || s.receipt == receipt
	}
}

func (m *model) hide(receipt string, seconds int) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.queue {
		if s.receipt == receipt && !s.gone && time.Now().Before(s.visible) {
			s.visible = time.Now().Add(time.Duration(seconds) * time.Second)
			m.tell()
			return ""
		}
	}
	return "MessageNotInflight"
}

// left is how many messages are not deleted.
func (m *model) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, s := range m.queue {
		if !s.gone {
			n++
		}
	}
	return n
}
