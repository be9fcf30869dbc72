package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The Node.js of the package comes first, then one in PATH that is new enough;
// else the error says what to install.
func TestFindNode(t *testing.T) {
	fakes := t.TempDir()
	t.Setenv("PATH", fakes)
	node := filepath.Join(fakes, "node")
	script := func(path, version string) {
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+version+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	folder := t.TempDir()
	for version, good := range map[string]bool{"v22.5.0": true, "v22.23.5": true, "v24.0.1": true, "v22.4.9": false, "v20.20.2": false, "no": false} {
		script(node, version)
		found, err := findNode(t.Context(), folder)
		if good && (err != nil || found != node) || !good && (err == nil || !strings.Contains(err.Error(), "make tools-sqs") || !strings.Contains(err.Error(), version)) {
			t.Errorf("%s: %q, %v", version, found, err)
		}
	}
	packed := filepath.Join(folder, "node_modules", "node-"+runtime.GOOS+"-"+map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH], "bin")
	if err := os.MkdirAll(packed, 0o700); err != nil {
		t.Fatal(err)
	}
	script(filepath.Join(packed, "node"), "v22.23.5")
	if found, err := findNode(t.Context(), folder); err != nil || found != filepath.Join(packed, "node") {
		t.Errorf("%q, %v", found, err)
	}
}

// A server that does not start ends with the end of its log.
func TestSQSThatDoesNotStart(t *testing.T) {
	fakes, folder := t.TempDir(), t.TempDir()
	t.Setenv("PATH", fakes+string(os.PathListSeparator)+os.Getenv("PATH"))
	script := "#!/bin/sh\n[ \"$1\" = --version ] && { echo v24.0.0; exit; }\necho the port is on fire\nexit 1\n"
	if err := os.WriteFile(filepath.Join(fakes, "node"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := SQS(t.Context(), t.TempDir(), folder); err == nil || !strings.Contains(err.Error(), "the port is on fire") || !strings.Contains(err.Error(), "sqs ended while it was starting") {
		t.Errorf("%v", err)
	}
}
