package scriptapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/teamsync/edge-workers/pkg/provider"
)

// codesAbsent are the error codes with which a script that does not exist is
// reported. 10013 is not among them: it is "unknown error".
var codesAbsent = []string{"10007", "10090", "10092"}

// settings is what GET …/settings tells about a script: the authority for
// bindings (S2-165).
type settings struct {
	Bindings           []json.RawMessage `json:"bindings"`
	CompatibilityDate  string            `json:"compatibility_date"`
	CompatibilityFlags []string          `json:"compatibility_flags"`
	Tags               []string          `json:"tags"`
}

// details is what GET …/scripts/{name} tells: the persisted live exports
// (S2-166).
type details struct {
	Script *struct {
		CompatibilityDate *string                               `json:"compatibility_date"`
		Exports           map[string]map[string]json.RawMessage `json:"exports"`
		Tags              []string                              `json:"tags"`
	} `json:"script"`
}

// ReadBack reads both ends and compares them with the release. nil: both are
// exact. *provider.MismatchError: one is provably different, whatever the
// other is. *provider.UnreadableError: neither could be shown; its cause is
// provider.ErrNotFound for a script that does not exist.
func (c *Client) ReadBack(ctx context.Context, release provider.Release) error {
	tag, err := release.Tag()
	if err != nil {
		return &provider.UnreadableError{Cause: err}
	}
	first := c.compareSettings(ctx, release, tag)
	second := c.compareDetails(ctx, release, tag)
	for _, err := range []error{first, second} {
		if mismatch, ok := errors.AsType[*provider.MismatchError](err); ok {
			return mismatch
		}
	}
	if err := errors.Join(first, second); err != nil {
		return &provider.UnreadableError{Cause: err}
	}
	return nil
}

func (c *Client) get(ctx context.Context, path string, into any) error {
	return c.read(ctx, c.scripts+path, into)
}

// read is one GET; its error wraps provider.ErrNotFound for what does not
// exist.
func (c *Client) read(ctx context.Context, target string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return fmt.Errorf("script API request: %w", err)
	}
	got, err := c.call(ctx, c.p.ReadTimeout, req)
	if failure, ok := errors.AsType[*Failure](err); ok && failure.Status == http.StatusNotFound {
		if slices.ContainsFunc(codesAbsent, failure.Has) {
			return fmt.Errorf("%w: %w", provider.ErrNotFound, failure)
		}
	}
	if err != nil {
		return err
	}
	return result(got, into)
}

func differs(format string, args ...any) error {
	return &provider.MismatchError{Detail: fmt.Sprintf(format, args...)}
}

func (c *Client) compareSettings(ctx context.Context, release provider.Release, tag string) error {
	var got settings
	if err := c.get(ctx, url.PathEscape(release.ScriptName)+"/settings", &got); err != nil {
		return err
	}
	switch {
	case got.CompatibilityDate != release.CompatibilityDate: // S2-167
		return differs("settings compatibility_date is %.40q", got.CompatibilityDate)
	case len(got.CompatibilityFlags) > 0: // S2-168
		return differs("settings have %d compatibility_flags", len(got.CompatibilityFlags))
	case len(got.Bindings) != 1: // S2-169
		return differs("settings have %d bindings", len(got.Bindings))
	}
	if err := compareBinding(got.Bindings[0], release.ScriptName); err != nil {
		return err
	}
	return compareTags("settings", got.Tags, tag)
}

// compareBinding allows what a server adds of its own (namespace_id), but no
// binding to another script.
func compareBinding(raw json.RawMessage, script string) error {
	var got struct {
		provider.Binding
		ScriptName *string `json:"script_name"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		return differs("settings binding has another form")
	}
	if got.Binding != provider.Bindings()[0] {
		return differs("settings binding is %.60q %.60q of class %.60q", got.Type, got.Name, got.ClassName)
	}
	if got.ScriptName != nil && *got.ScriptName != script {
		return differs("settings binding points to another script")
	}
	return nil
}

func (c *Client) compareDetails(ctx context.Context, release provider.Release, tag string) error {
	var got details
	if err := c.get(ctx, url.PathEscape(release.ScriptName), &got); err != nil {
		return err
	}
	if got.Script == nil {
		return &Failure{Status: http.StatusOK, Malformed: true, Cause: errors.New("details have no script")}
	}
	if date := got.Script.CompatibilityDate; date != nil && *date != release.CompatibilityDate {
		return differs("details compatibility_date is %.40q", *date)
	}
	if err := compareExports(got.Script.Exports); err != nil {
		return err
	}
	return compareTags("details", got.Script.Tags, tag)
}

// compareExports wants the one SQLite Durable Object (S2-170). An absent state
// and "created" are equal (S2-171), any other state is drift, an empty text
// and null included (S2-172).
func compareExports(got map[string]map[string]json.RawMessage) error {
	entry, ok := got[provider.StorageClass]
	if !ok || len(got) != 1 {
		return differs("details have %d exports", len(got))
	}
	want := provider.Exports()[provider.StorageClass]
	if text(entry["type"]) != want.Type || text(entry["storage"]) != want.Storage {
		return differs("details export is %.60s with storage %.60s", entry["type"], entry["storage"])
	}
	if state, ok := entry["state"]; ok && text(state) != "created" {
		return differs("details export state is %.60s", state)
	}
	for _, key := range []string{"container", "transfer_from", "transferred_to", "renamed_to"} {
		if _, ok := entry[key]; ok {
			return differs("details export has %s", key)
		}
	}
	return nil
}

// text is the JSON string in raw; anything else gives a text that is equal to
// no expected one.
func text(raw json.RawMessage) string {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "\x00"
	}
	return *s
}

// compareTags wants exactly one release tag, the expected one (S2-173).
func compareTags(end string, tags []string, want string) error {
	found := []string{}
	for _, tag := range tags {
		if strings.HasPrefix(tag, provider.TagPrefix) {
			found = append(found, tag)
		}
	}
	if len(found) != 1 {
		return differs("%s have %d release tags", end, len(found))
	}
	if found[0] != want {
		return differs("%s have the release tag of another release", end)
	}
	return nil
}
