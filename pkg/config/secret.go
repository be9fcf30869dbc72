package config

import (
	"fmt"
	"io"
	"log/slog"
)

// redacted is what every form of a secret shows.
const redacted = "[redacted]"

// Secret is a value that no log, error, dump or JSON document may show. Only
// Reveal gives it out.
//
// The text is behind a pointer because fmt cannot call the methods of a value
// in an unexported field: it would print a plain string, but only the address
// of a pointer.
type Secret struct{ text *string }

// NewSecret wraps a text.
func NewSecret(text string) Secret { return Secret{text: &text} }

// Reveal gives the text, for the one place that uses it.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet tells whether there is a text.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// UnmarshalText takes the text from the environment.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// Format shows the redaction for every verb of fmt.
func (s Secret) Format(state fmt.State, _ rune) {
	_, _ = io.WriteString(state, redacted) // fmt offers no way to report it
}

// String shows the redaction.
func (s Secret) String() string { return redacted }

// GoString shows the redaction.
func (s Secret) GoString() string { return redacted }

// MarshalText shows the redaction, in JSON too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON shows the redaction.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue shows the redaction.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
