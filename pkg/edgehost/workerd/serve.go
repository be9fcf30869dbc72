package workerd

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// maxSocketPath is the room of sun_path without its final NUL (Linux 108,
// macOS 104).
const maxSocketPath = 103

// EgressSocket is the name of the socket in a run folder at which a serving
// process expects the egress proxy.
const EgressSocket = "e.sock"

// Spec is one serving process.
type Spec struct {
	Logger            *slog.Logger // output of this Worker
	Bundle            []byte
	CompatibilityDate string
	UniqueKey         string // identity of the storage, hex; never changes
	StorageDir        string // exists; at most one process may ever use it
	RunDir            string // exists, belongs to this process alone, holds EgressSocket
	// Lock is the locked file that guards StorageDir. The child inherits it, so
	// that the lock lasts as long as the child even when the host is killed.
	Lock *os.File
	UID  uint32 // run isolated under this uid; 0: as the host
}

// CheckRunDir refuses a folder whose path is too long for unix sockets.
func CheckRunDir(dir string) error {
	if n := len(filepath.Join(dir, EgressSocket)); n > maxSocketPath {
		return fmt.Errorf("run folder %s: socket paths would have %d bytes, at most %d are possible", dir, n, maxSocketPath)
	}
	return nil
}

// Server is a serving process.
type Server struct {
	*Process
	mainSocket   string
	healthClient *http.Client
}

// Start starts a serving process and waits until it listens. *Rejected: the
// bundle does not start. Any other error is the host's. After an error no
// process is left.
func (r *Runner) Start(ctx context.Context, spec Spec) (*Server, error) {
	if err := CheckRunDir(spec.RunDir); err != nil {
		return nil, err
	}
	config, err := renderConfig(spec.CompatibilityDate, spec.UniqueKey, r.p.MaxHeapMiB, true)
	if err != nil {
		return nil, err
	}
	if err := writeFiles(spec.RunDir, config, spec.Bundle, spec.UID); err != nil {
		return nil, err
	}
	if err := giveAll(spec); err != nil {
		return nil, err
	}
	p, err := r.launch(launchSpec{
		binary: r.p.Binary, dir: spec.RunDir, uid: spec.UID, logger: spec.Logger, extra: []*os.File{spec.Lock},
		args: append(socketArgs(spec.RunDir),
			"--directory-path="+storageDisk+"="+spec.StorageDir,
			"--external-addr="+egressService+"=unix:"+filepath.Join(spec.RunDir, EgressSocket)),
	})
	if err != nil {
		return nil, err
	}
	end := r.watchStart(ctx, p, r.p.MaxMemoryBytes)
	if end == endListening {
		return newServer(p, spec.RunDir), nil
	}
	p.Kill()
	<-p.done
	message, err := verdict(ctx, p, end, r.p.StartTimeout)
	if err != nil {
		return nil, err
	}
	if end == endTimeout {
		return nil, fmt.Errorf("workerd did not listen within %s", r.p.StartTimeout)
	}
	return nil, &Rejected{Message: oneLine(message)}
}

// giveAll makes an isolated process the owner of its storage and its egress
// socket.
func giveAll(spec Spec) error {
	if spec.UID == 0 {
		return nil
	}
	if err := give(filepath.Join(spec.RunDir, EgressSocket), spec.UID); err != nil {
		return err
	}
	return filepath.WalkDir(spec.StorageDir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return give(path, spec.UID)
	})
}

func newServer(p *Process, runDir string) *Server {
	return &Server{
		Process:    p,
		mainSocket: filepath.Join(runDir, "m.sock"),
		healthClient: &http.Client{Transport: &http.Transport{
			DialContext:       unixDialer(filepath.Join(runDir, "h.sock")),
			DisableKeepAlives: true, // a blocked event loop must show at connect or read
		}},
	}
}

// Dial connects to the bundle's socket; it fits http.Transport.DialContext.
func (s *Server) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return unixDialer(s.mainSocket)(ctx, network, address)
}

// Healthy asks the health service, which shares the event loop with the
// bundle, within timeout.
func (s *Server) Healthy(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://health/", nil)
	if err != nil {
		return fmt.Errorf("health request: %w", err)
	}
	resp, err := s.healthClient.Do(req)
	if err != nil {
		return fmt.Errorf("health: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("health: status %d", resp.StatusCode)
	}
	return nil
}

func unixDialer(path string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", path)
	}
}
