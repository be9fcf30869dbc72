package artifacttest

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/teamsync/edge-workers/pkg/canonical"
)

const metadataPrefix = "X-Amz-Meta-"

// ServeHTTP implements http.Handler.
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault := s.next(r.Method)
	if fault.Do == StallRequest {
		s.log(r, "") // its body never arrives
	}
	if s.early(w, r, fault) {
		if fault.Do != StallRequest {
			s.log(r, "")
		}
		return
	}
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	status, code := s.admit(r, bucket, content)
	s.log(r, code)
	if code != "" {
		refuse(w, r, status, code)
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.put(w, r, key, content, fault)
	case http.MethodGet, http.MethodHead:
		s.get(w, r, key, fault)
	case http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		if !s.late(w, r, fault) {
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		refuse(w, r, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// admit gives the status and code of a refusal, or nothing.
func (s *S3) admit(r *http.Request, bucket string, content []byte) (int, string) {
	if name := unimplemented(r.Header); s.R2 && name != "" {
		return http.StatusNotImplemented, "NotImplemented"
	}
	status, code := s.verify(r, content)
	if code != "" {
		return status, code
	}
	if bucket != s.Bucket {
		return http.StatusNotFound, "NoSuchBucket"
	}
	return 0, ""
}

func (s *S3) put(w http.ResponseWriter, r *http.Request, key string, content []byte, fault Fault) {
	s.mu.Lock()
	_, exists := s.objects[key]
	refused := exists && r.Header.Get("If-None-Match") == "*"
	if !refused {
		metadata := map[string]string{}
		for name, values := range r.Header {
			if meta, ok := strings.CutPrefix(name, metadataPrefix); ok {
				metadata[strings.ToLower(meta)] = values[0]
			}
		}
		s.objects[key] = S3Object{Content: content, ContentType: r.Header.Get("Content-Type"), Metadata: metadata}
	}
	s.mu.Unlock()
	if s.late(w, r, fault) {
		return
	}
	if refused {
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	w.Header().Set("ETag", etag(content))
	w.WriteHeader(http.StatusOK)
}

func (s *S3) get(w http.ResponseWriter, r *http.Request, key string, fault Fault) {
	s.mu.Lock()
	object, exists := s.objects[key]
	s.mu.Unlock()
	if s.late(w, r, fault) {
		return
	}
	if !exists {
		refuse(w, r, http.StatusNotFound, "NoSuchKey")
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != etag(object.Content) {
		refuse(w, r, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	content, status := object.Content, http.StatusOK
	if r.Header.Get("Range") != "" && fault.Do != IgnoreRange {
		var from int
		_, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		if err != nil || from >= len(content) {
			refuse(w, r, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(content)-1, len(content)))
		content, status = content[from:], http.StatusPartialContent
	}
	w.Header().Set("ETag", etag(object.Content))
	w.Header().Set("Content-Type", object.ContentType)
	for name, value := range maps.All(object.Metadata) {
		w.Header().Set(metadataPrefix+name, value)
	}
	s.sendBody(w, r, content, status, fault)
}

func etag(content []byte) string { return `"` + canonical.SHA256(content)[:32] + `"` }

type errorDocument struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

// refuse answers an error as S3 does: without a body to a HEAD. The message
// quotes the request's credentials, as services do, so that a test can show
// that they are not passed on.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	document, err := xml.Marshal(errorDocument{Code: code, Message: "refused " + r.Header.Get("Authorization")})
	if err == nil {
		_, _ = w.Write(document) // the caller may be gone
	}
}
