package config

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const hidden = "hunter2-hunter2-hunter2"

// leaks finds the secret as text, in hexadecimal and as decimal bytes.
func leaks(text string) bool {
	return strings.Contains(text, hidden) ||
		strings.Contains(strings.ToLower(text), fmt.Sprintf("%x", hidden)) ||
		strings.Contains(text, strings.Trim(fmt.Sprintf("%d", []byte(hidden)), "[]"))
}

func TestLeaksFindsTheSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a " + hidden, fmt.Sprintf("%X", hidden), fmt.Sprintf("%d", []byte(hidden)), fmt.Sprintf("%q", hidden)} {
		if !leaks(text) {
			t.Errorf("not found in %q", text)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	t.Parallel()
	secret := NewSecret(hidden)
	holders := map[string]any{
		"value":            secret,
		"pointer":          &secret,
		"field":            struct{ S Secret }{secret},
		"unexported field": struct{ s Secret }{secret},
		"nested":           &struct{ inner struct{ s *Secret } }{struct{ s *Secret }{&secret}},
		"slice":            []Secret{secret},
		"map":              map[string]Secret{"s": secret},
		"settings":         Settings{Provider: Provider{EdgeHostAPIToken: secret}},
	}
	for name, holder := range holders {
		for _, verb := range "vTtbcdoOqxXUeEfFgGsp" {
			for _, flags := range []string{"", "+", "#", "-40", " "} {
				format := "%" + flags + string(verb)
				if text := fmt.Sprintf(format, holder); leaks(text) {
					t.Errorf("%s with %s: %s", name, format, text)
				}
			}
		}
	}
	if text := fmt.Sprint(secret, secret.String(), secret.GoString()); strings.Count(text, redacted) != 3 {
		t.Errorf("printed %q", text)
	}
	if err := fmt.Errorf("refused: %w %v", errors.New("x"), secret); leaks(err.Error()) {
		t.Error(err)
	}
}

func TestSecretIsNotEncoded(t *testing.T) {
	t.Parallel()
	secret := NewSecret(hidden)
	document, err := json.Marshal(map[string]any{"value": secret, "pointer": &secret, "struct": struct{ S Secret }{secret}})
	if err != nil || leaks(string(document)) || strings.Count(string(document), redacted) != 3 {
		t.Errorf("JSON %s, %v", document, err)
	}
	keyed, err := json.Marshal(map[Secret]int{secret: 1})
	if err != nil || leaks(string(keyed)) {
		t.Errorf("JSON key %s, %v", keyed, err)
	}
	type element struct{ S Secret }
	markup, err := xml.Marshal(element{secret})
	if err != nil || leaks(string(markup)) {
		t.Errorf("XML %s, %v", markup, err)
	}
	var out bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(handler).Info("started", "value", secret, "pointer", &secret, "settings", Settings{Redis: Redis{URL: secret}})
	}
	if leaks(out.String()) || strings.Count(out.String(), redacted) < 4 {
		t.Errorf("log %s", out.String())
	}
}

func TestSecretReveals(t *testing.T) {
	t.Parallel()
	var secret Secret
	if secret.Reveal() != "" || secret.IsSet() || secret.String() != redacted {
		t.Error("the zero secret is not empty")
	}
	err := secret.UnmarshalText([]byte(hidden))
	if err != nil || secret.Reveal() != hidden || !secret.IsSet() {
		t.Errorf("revealed %q, %v", secret.Reveal(), err)
	}
}
