package providertest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

// Server is an in-memory model of the script API: it keeps what was uploaded
// and gives it back at both ends. It validates nothing; the edge host is the
// real counterpart.
type Server struct {
	mu      sync.Mutex
	scripts map[string]map[string]any // metadata by script name
	etags   map[string]string
}

// NewServer returns an empty server.
func NewServer() *Server {
	return &Server{scripts: map[string]map[string]any{}, etags: map[string]string{}}
}

// ServeHTTP serves PUT, GET …/settings, GET and DELETE below any account and
// namespace. As the cloud provider's, its answer to DELETE has no body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, rest, found := strings.Cut(r.URL.Path, "/scripts/")
	name, end, _ := strings.Cut(rest, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	metadata, exists := s.scripts[name]
	switch {
	case !found || name == "":
		writeError(w, http.StatusNotFound, 7003)
	case r.Method == http.MethodPut && end == "":
		s.put(w, r, name)
	case (r.Method == http.MethodGet || r.Method == http.MethodDelete) && !exists:
		writeError(w, http.StatusNotFound, 10007)
	case r.Method == http.MethodGet && end == "settings":
		writeResult(w, pick(metadata, "bindings", "compatibility_date", "compatibility_flags", "tags"))
	case r.Method == http.MethodGet && end == "":
		script := pick(metadata, "compatibility_date", "compatibility_flags", "exports", "tags")
		script["id"], script["etag"] = name, s.etags[name]
		writeResult(w, map[string]any{"script": script})
	case r.Method == http.MethodDelete && end == "":
		delete(s.scripts, name)
		delete(s.etags, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		writeError(w, http.StatusMethodNotAllowed, 10405)
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, name string) {
	upload, err := parseUpload(r)
	if err != nil {
		writeError(w, http.StatusBadRequest, 10021)
		return
	}
	s.scripts[name] = upload.metadata
	s.etags[name] = canonical.SHA256(upload.bundle)
	writeResult(w, map[string]any{"id": name, "etag": s.etags[name], "startup_time_ms": 1})
}

type upload struct {
	names    []string
	metadata map[string]any
	bundle   []byte
}

func parseUpload(r *http.Request) (upload, error) {
	var u upload
	reader, err := r.MultipartReader()
	if err != nil {
		return u, err
	}
	for {
		part, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return u, nil
		}
		if err != nil {
			return u, err
		}
		raw, err := io.ReadAll(io.LimitReader(part, 16<<20))
		if err != nil {
			return u, err
		}
		u.names = append(u.names, part.FormName()+"|"+part.FileName()+"|"+part.Header.Get("Content-Type"))
		if part.FormName() != "metadata" {
			u.bundle = raw
			continue
		}
		if err := json.Unmarshal(raw, &u.metadata); err != nil {
			return u, err
		}
	}
}

func pick(from map[string]any, keys ...string) map[string]any {
	out := map[string]any{}
	for _, key := range keys {
		out[key] = from[key]
	}
	return out
}

func writeResult(w http.ResponseWriter, result any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"success": true, "errors": []any{}, "messages": []any{}, "result": result})
}

func writeError(w http.ResponseWriter, status int, code any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"success": false, "errors": []any{map[string]any{"code": code, "message": "refused"}}, "messages": []any{}, "result": nil,
	})
}
