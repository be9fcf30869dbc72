package npmtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Real starts a registry with the packages that are really published: it asks
// the registry of EDGE_TEST_NPM_REGISTRY, or else the one that npm is configured
// for, once for each package and keeps the answers in the repository's .cache,
// so that later runs need no network. What it serves is checked by whoever asks,
// against the sha512 of a lock file.
func Real(t testing.TB) string {
	t.Helper()
	m := &mirror{dir: filepath.Join(repository(t), ".cache", "npm-tarballs"), client: &http.Client{Timeout: time.Minute}}
	m.upstream = strings.TrimSuffix(upstream(t), "/")
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return server.URL
}

func upstream(t testing.TB) string {
	t.Helper()
	if address := os.Getenv("EDGE_TEST_NPM_REGISTRY"); address != "" {
		return address
	}
	output, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output()
	if err != nil {
		t.Fatalf("npm is needed to find the registry (or set EDGE_TEST_NPM_REGISTRY): %v", err)
	}
	return strings.TrimSpace(string(output))
}

// repository finds the folder of go.mod above the test's own.
func repository(t testing.TB) string {
	t.Helper()
	folder, err := os.Getwd()
	for err == nil && folder != filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		folder = filepath.Dir(folder)
	}
	t.Fatalf("there is no go.mod above the test's folder: %v", err)
	return ""
}

type mirror struct {
	dir      string
	upstream string
	client   *http.Client
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kept := filepath.Join(m.dir, strings.ReplaceAll(strings.TrimPrefix(r.URL.Path, "/"), "/", "+"))
	content, err := os.ReadFile(kept)
	if err != nil {
		content, err = m.fetch(r, kept)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(content)
}

func (m *mirror) fetch(r *http.Request, kept string) ([]byte, error) {
	request, err := http.NewRequestWithContext(r.Context(), http.MethodGet, m.upstream+r.URL.Path, nil)
	if err != nil {
		return nil, err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %d", request.URL, response.StatusCode)
	}
	if err != nil {
		return nil, err
	}
	return content, keep(kept, content)
}

// keep writes a file in one step: several test packages share the folder.
func keep(path string, content []byte) error {
	err := os.MkdirAll(filepath.Dir(path), 0o750)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(content)
	if closed := temp.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
