// Package observe is what every process shows of itself: JSON logs, Prometheus
// metrics, health, and the HTTP server that serves them.
package observe

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
)

// redacted replaces the value of an attribute that must not be logged.
const redacted = "[redacted]"

// sensitive are parts of attribute keys whose values are never logged. It is
// the last net: whoever logs leaves secrets out in the first place.
var sensitive = []string{"token", "secret", "authorization", "password", "credential", "cookie"}

// NewLogger makes the logger of a process: one JSON object a line on w, times
// in UTC, and the request id of the context where there is one.
//
// The value of an attribute whose key, or whose group's key, contains "token",
// "secret", "authorization", "password", "credential" or "cookie" is shown as
// "[redacted]". That looks at keys only: a secret inside a message or inside a
// logged struct is not found.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	handler := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: redact})
	return slog.New(requestHandler{handler})
}

// Discard makes a logger that writes nothing.
func Discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func redact(groups []string, attribute slog.Attr) slog.Attr {
	if len(groups) == 0 && attribute.Key == slog.TimeKey && attribute.Value.Kind() == slog.KindTime {
		return slog.Time(slog.TimeKey, attribute.Value.Time().UTC())
	}
	if isSensitive(attribute.Key) || slices.ContainsFunc(groups, isSensitive) {
		return slog.String(attribute.Key, redacted)
	}
	return attribute
}

func isSensitive(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc(sensitive, func(part string) bool { return strings.Contains(key, part) })
}

type requestIDKey struct{}

// WithRequestID returns a context whose log lines carry the id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID gives the request id of a context, or "" outside a request.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// requestHandler adds the request id of the context to each record. Under a
// logger with an open group the id is inside that group, as all attributes are.
type requestHandler struct{ slog.Handler }

// Handle adds the id and passes the record on.
func (h requestHandler) Handle(ctx context.Context, record slog.Record) error {
	id := RequestID(ctx)
	if id != "" {
		record = record.Clone()
		record.AddAttrs(slog.String("request_id", id))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs keeps the handler around the one with the attributes.
func (h requestHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return requestHandler{h.Handler.WithAttrs(attributes)}
}

// WithGroup keeps the handler around the one with the group.
func (h requestHandler) WithGroup(name string) slog.Handler {
	return requestHandler{h.Handler.WithGroup(name)}
}
