package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
)

// maxSettingsFile bounds a file or a standard input that a change is made of,
// in bytes: the API takes less.
const maxSettingsFile = 128 << 10

// unseen is the revision of a change whose author gave none: the command reads
// the current one itself.
const unseen = -1

func addRevision(cmd *cobra.Command, revision *int64) {
	cmd.Flags().Int64Var(revision, "revision", unseen, "the revision as you saw it: the API refuses if somebody was faster (default: as it is now)")
}

// revisionOr gives the revision that the user saw, or else the one that read
// finds.
func revisionOr(seen int64, read func() (int64, error)) (int64, error) {
	if seen != unseen {
		return seen, nil
	}
	return read()
}

// change runs a command that changes the live Worker; look is the one that
// shows what there is.
func (s *cli) change(ctx context.Context, look string, do func(context.Context, *client.Client) error) error {
	api, err := s.connect()
	if err != nil {
		return err
	}
	return s.unchanged(do(ctx, api), look)
}

// unchanged tells of a change whose outcome is not known, and where to look
// when somebody was faster.
func (s *cli) unchanged(err error, look string) error {
	var refused *client.Error
	switch {
	case client.OutcomeUnknown(err):
		f := s.explain(err)
		f.what = "it is not known whether the change was made: " + f.what
		f.next = "Run `edgectl " + look + "` and see, before you change it again."
		f.exit = exitUnreachable
		return f
	case errors.As(err, &refused) && refused.Status == http.StatusConflict && (refused.Code == "" || refused.Code == "revision_stale"):
		f := s.explain(err)
		f.next = "Somebody was faster. Run `edgectl " + look + "`, then decide again."
		return f
	}
	return err
}

// printKey prints a key, alone, for a script to take, and says beside it that
// it is not shown again.
func (s *cli) printKey(key string, whole any) error {
	_, _ = io.WriteString(s.err, "This key is shown once; keep it now. The key before it opens nothing any more.\n")
	if s.json {
		return s.printJSON(whole)
	}
	return s.printf("%s\n", key)
}

// printTable prints rows of cells in columns.
func (s *cli) printTable(rows [][]string) error {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, err := io.WriteString(table, strings.Join(row, "\t")+"\n")
		if err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	err := table.Flush()
	if err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// readSettings reads a file, or the standard input for "-".
func (s *cli) readSettings(name string) ([]byte, error) {
	var content []byte
	var err error
	if name == "-" {
		content, err = s.readInput(maxSettingsFile)
	} else {
		content, err = readFile(name, maxSettingsFile)
	}
	if err != nil {
		return nil, err
	}
	if len(content) > maxSettingsFile {
		return nil, usageError("%s is larger than 128 KiB", name)
	}
	return content, nil
}

// readObject reads a file with one JSON object and gives its text.
func (s *cli) readObject(name string) (json.RawMessage, error) {
	content, err := s.readSettings(name)
	if err != nil {
		return nil, err
	}
	content = bytes.TrimSpace(content)
	if !utf8.Valid(content) || !json.Valid(content) || !bytes.HasPrefix(content, []byte("{")) {
		return nil, usageError("%s is not a JSON object", name)
	}
	return content, nil
}

// readSecret reads what must not stand on a command line: a file as it is, or
// the standard input without the line break at its end.
func (s *cli) readSecret(file, what string) (string, error) {
	name := first(file, "-")
	content, err := s.readSettings(name)
	if err != nil {
		return "", err
	}
	text := string(content)
	if name == "-" {
		text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r")
	}
	switch {
	case text == "":
		return "", usageError("give the %s on the standard input", what)
	case !utf8.ValidString(text):
		return "", usageError("the %s is not UTF-8", what)
	}
	return text, nil
}

// withRevision gives a settings object with a base revision: its own, or the one
// that the user saw, or else the one that read finds.
func withRevision(object json.RawMessage, seen int64, read func() (int64, error)) (gen.OperationSettingsRequest, error) {
	var given map[string]json.RawMessage
	err := json.Unmarshal(object, &given)
	if err != nil {
		return nil, usageError("the settings are not a JSON object")
	}
	if given["base_revision"] != nil {
		if seen != unseen && string(given["base_revision"]) != strconv.FormatInt(seen, 10) {
			return nil, usageError("the file has another base_revision than the one that is given")
		}
		return object, nil
	}
	base, err := revisionOr(seen, read)
	if err != nil {
		return nil, err
	}
	// Put in by hand: what else the text has is the API's to judge.
	rest := bytes.TrimSpace(object[1:])
	separator := ","
	if bytes.HasPrefix(rest, []byte("}")) {
		separator = ""
	}
	return fmt.Appendf(nil, `{"base_revision":%d%s%s`, base, separator, rest), nil
}

func orNone(text *string) string {
	if text == nil {
		return "none"
	}
	return *text
}
