package workerd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Bounds on what a Worker may write to the log: the length of a line in bytes
// and lines for each second, with a burst of as many.
const (
	maxLine       = 16 << 10
	linesPerSec   = 100
	missingClass  = "no such Durable Object class"
	mainErrorMark = "service main: "
	v8AbortMark   = "V8 fatal error"
)

// awaitListen reads the JSON lines of the control descriptor until each of
// the sockets listens. It is false when the pipe ends before that.
func awaitListen(control io.Reader, sockets ...string) bool {
	missing := map[string]bool{}
	for _, name := range sockets {
		missing[name] = true
	}
	for decoder := json.NewDecoder(io.LimitReader(control, 64<<10)); len(missing) > 0; {
		var event struct{ Event, Socket string }
		if err := decoder.Decode(&event); err != nil {
			return false
		}
		if event.Event == "listen" {
			delete(missing, event.Socket)
		}
	}
	return true
}

// output is what a process wrote: logged line by line within bounds, and the
// first error and the missing-class warning kept for the start's verdict.
type output struct {
	logger *slog.Logger

	mu    sync.Mutex
	found findings

	window  time.Time
	lines   int
	dropped int
}

func newOutput(logger *slog.Logger) *output { return &output{logger: logger} }

func (o *output) read(from io.Reader) {
	reader := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := reader.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if len(line) > 0 {
			o.line(strings.TrimRight(string(line), "\r\n"), cut)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = reader.ReadSlice('\n') // the rest of a long line is dropped
		}
		if err != nil {
			return
		}
	}
}

// record is one line of workerd's structured log. Source is set on workerd's
// own lines and absent on what the Worker wrote with console.*.
type record struct {
	Level   string `json:"level"`
	Source  string `json:"source"`
	Message string `json:"message"`
}

func (o *output) line(text string, cut bool) {
	rec := record{Level: "error", Source: "unstructured", Message: text}
	var parsed record
	if json.Unmarshal([]byte(text), &parsed) == nil && parsed.Level != "" {
		rec = parsed
	}
	o.keep(rec)
	o.log(rec, cut)
}

func (o *output) keep(rec record) {
	if rec.Source == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if strings.Contains(rec.Message, missingClass) {
		o.found.missingClass = true
		return
	}
	if strings.Contains(rec.Message, v8AbortMark) {
		o.found.outOfMemory = true // after many lines of V8's own at any level
	}
	if o.found.firstError == "" && rec.Level == "error" {
		o.found.firstError = rec.Message
	}
}

// findings is what the lines so far say about the start.
type findings struct {
	firstError   string
	missingClass bool
	outOfMemory  bool
}

func (o *output) findings() findings {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found
}

// log is called by the one reading goroutine only.
func (o *output) log(rec record, cut bool) {
	if o.logger == nil {
		return
	}
	now := time.Now()
	if now.Sub(o.window) >= time.Second {
		if o.dropped > 0 {
			o.logger.Warn("worker log lines dropped", "count", o.dropped)
		}
		o.window, o.lines, o.dropped = now, 0, 0
	}
	if o.lines++; o.lines > linesPerSec {
		o.dropped++
		return
	}
	origin := "worker"
	if rec.Source != "" {
		origin = "workerd"
	}
	o.logger.Log(context.Background(), level(rec.Level), "worker log", "origin", origin, "line", rec.Message, "cut", cut)
}

func level(name string) slog.Level {
	switch name {
	case "error":
		return slog.LevelError
	case "warn":
		return slog.LevelWarn
	case "debug", "trace":
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
