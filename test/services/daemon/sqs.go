package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// SQS starts a private server that speaks SQS from the npm package in folder,
// tools/sqs, in dir, which must exist, and returns it with its address,
// http://127.0.0.1:PORT. It takes any credentials.
func SQS(ctx context.Context, dir, folder string) (*Daemon, string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, "", err
	}
	node, err := findNode(ctx, folder)
	if err != nil {
		return nil, "", err
	}
	announced := filepath.Join(dir, "sqs.address")
	d, err := launch(ctx, dir, "sqs", node, []string{filepath.Join(folder, "serve.mjs"), announced}, func(context.Context) error {
		_, err := os.Stat(announced)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	address, err := os.ReadFile(announced)
	if err != nil {
		d.Kill()
		return nil, "", fmt.Errorf("read where SQS is: %w", err)
	}
	return d, string(address), nil
}

// The server needs the SQLite that Node.js has since 22.5.
const nodeMajor, nodeMinor = 22, 5

// findNode gives the Node.js that came with the package, as it does on Linux, or
// the one in PATH.
func findNode(ctx context.Context, folder string) (string, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	packed := filepath.Join(folder, "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	_, err := os.Stat(packed)
	if err == nil {
		return packed, nil
	}
	node, err := Find("node")
	if err != nil {
		return "", tooOld("there is none")
	}
	version, err := exec.CommandContext(ctx, node, "--version").Output() // #nosec G204 -- the Node.js of this machine
	if err != nil {
		return "", fmt.Errorf("ask Node.js for its version: %w", err)
	}
	text := strings.TrimSpace(string(version))
	var major, minor int
	_, err = fmt.Sscanf(text, "v%d.%d", &major, &minor)
	if err != nil || major < nodeMajor || major == nodeMajor && minor < nodeMinor {
		return "", tooOld("it is " + text)
	}
	return node, nil
}

func tooOld(found string) error {
	return fmt.Errorf("the SQS server needs Node.js %d.%d or later in PATH, but %s: install one (macOS: brew install node; Linux: make tools-sqs brings it)", nodeMajor, nodeMinor, found)
}
