package edgehost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/teamsync/edge-workers/pkg/edgehost/scriptstore"
	"github.com/teamsync/edge-workers/pkg/provider"
)

// partOverhead is the room for boundaries and headers of an upload.
const partOverhead = 16 << 10

var tagPattern = regexp.MustCompile(`\A` + provider.TagPrefix + `[0-9a-f]{64}\z`)

// uploadMetadata is the metadata part: the full desired state and nothing
// else. keep_bindings and migrations are unknown fields here (S2-163).
type uploadMetadata struct {
	MainModule         *string                     `json:"main_module"`
	CompatibilityDate  *string                     `json:"compatibility_date"`
	CompatibilityFlags *[]string                   `json:"compatibility_flags"`
	Bindings           *[]provider.Binding         `json:"bindings"`
	Exports            *map[string]provider.Export `json:"exports"`
	Tags               *[]string                   `json:"tags"`
}

func rejectUpload(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, codeRejected, fmt.Sprintf(format, args...)}
}

// readUpload reads the two parts of an upload within their bounds and checks
// them (S2-156 to S2-163).
func readUpload(w http.ResponseWriter, r *http.Request, limits Limits) (scriptstore.Release, []byte, error) {
	var release scriptstore.Release
	r.Body = http.MaxBytesReader(w, r.Body, limits.MaxMetadataBytes+limits.MaxBundleBytes+partOverhead)
	reader, err := r.MultipartReader()
	if err != nil {
		return release, nil, rejectUpload("%s: not multipart/form-data", messageMultipart)
	}
	metadata, bundle, err := readParts(reader, limits)
	if err != nil {
		return release, nil, err
	}
	if metadata == nil || bundle == nil {
		return release, nil, rejectUpload("the upload must have exactly the parts metadata and %s", provider.MainModule)
	}
	if !utf8.Valid(bundle) {
		return release, nil, rejectUpload("%s is not UTF-8", provider.MainModule)
	}
	release, err = parseMetadata(metadata)
	return release, bundle, err
}

// readParts returns the metadata and the bundle, nil for what is missing.
func readParts(reader *multipart.Reader, limits Limits) ([]byte, []byte, error) {
	var metadata, bundle []byte
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return metadata, bundle, nil
		}
		if err != nil {
			return nil, nil, unreadable(err)
		}
		mediaType, _, _ := strings.Cut(part.Header.Get("Content-Type"), ";")
		switch name := part.FormName(); {
		case name == "metadata" && metadata == nil && mediaType == "application/json":
			metadata, err = readPart(part, "metadata", limits.MaxMetadataBytes)
		case name == provider.MainModule && bundle == nil && fileName(part) == provider.MainModule && mediaType == "application/javascript+module":
			bundle, err = readPart(part, provider.MainModule, limits.MaxBundleBytes)
		default:
			return nil, nil, rejectUpload("part %.100q is unknown, repeated, or has a wrong file name or content type", name)
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// fileName is the name as it was sent; Part.FileName gives its last element.
func fileName(part *multipart.Part) string {
	_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params["filename"]
}

func readPart(part io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(part, limit+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if int64(len(data)) > limit {
		return nil, &refusal{http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("%s is larger than %d bytes", name, limit)}
	}
	return data, nil
}

func unreadable(err error) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &refusal{http.StatusRequestEntityTooLarge, codeTooLarge, "the upload is too large"}
	}
	return rejectUpload("%s", messageMultipart)
}

// parseMetadata accepts exactly the one form that the product uploads and
// names the first field that differs.
func parseMetadata(raw []byte) (scriptstore.Release, error) {
	var m uploadMetadata
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return scriptstore.Release{}, rejectUpload("metadata: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return scriptstore.Release{}, rejectUpload("metadata: more than one JSON value")
	}
	if err := m.check(); err != nil {
		return scriptstore.Release{}, err
	}
	return scriptstore.Release{
		MainModule: *m.MainModule, CompatibilityDate: *m.CompatibilityDate, CompatibilityFlags: *m.CompatibilityFlags,
		Bindings: *m.Bindings, Exports: *m.Exports, Tags: *m.Tags,
	}, nil
}

func (m uploadMetadata) check() error {
	switch {
	case m.MainModule == nil || *m.MainModule != provider.MainModule:
		return rejectUpload("metadata: main_module must be %q", provider.MainModule)
	case m.CompatibilityDate == nil || !isDate(*m.CompatibilityDate):
		return rejectUpload("metadata: compatibility_date must be a date YYYY-MM-DD")
	case m.CompatibilityFlags == nil || *m.CompatibilityFlags == nil || len(*m.CompatibilityFlags) > 0:
		return rejectUpload("metadata: compatibility_flags must be an empty list")
	case m.Bindings == nil || !slices.Equal(*m.Bindings, provider.Bindings()):
		return rejectUpload("metadata: bindings must be exactly the Durable Object namespace %s of class %s", provider.BindingName, provider.StorageClass)
	case m.Exports == nil || !maps.Equal(*m.Exports, provider.Exports()):
		return rejectUpload("metadata: exports must be exactly the SQLite Durable Object %s", provider.StorageClass)
	case m.Tags == nil || len(*m.Tags) != 1 || !tagPattern.MatchString((*m.Tags)[0]):
		return rejectUpload("metadata: tags must be exactly one %s<64 hex digits>", provider.TagPrefix)
	}
	return nil
}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}
