package devkit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/control"
)

// folderLock keeps a second process away from a data folder. The kernel lets
// go of it when the process ends, however it ends.
type folderLock struct{ file *os.File }

func lockFolder(data string) (*folderLock, error) {
	err := os.MkdirAll(data, 0o700)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(data, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another edgectl dev; stop it, or give another folder with --data", data)
		}
		return nil, fmt.Errorf("lock the data folder: %w", err)
	}
	return &folderLock{file: file}, nil
}

// release unlocks before it closes: a child that is being forked has a copy of
// the file, which would keep the lock.
func (l *folderLock) release() {
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}

// keys are the secrets of a development system. They are made once and live in
// files that only their owner can read.
type keys struct {
	controlFile, authFile   string
	hostToken, hostIdentity string
}

func loadKeys(folder string) (keys, error) {
	err := os.MkdirAll(folder, 0o700)
	if err != nil {
		return keys{}, fmt.Errorf("key folder: %w", err)
	}
	k := keys{controlFile: filepath.Join(folder, "control.pem"), authFile: filepath.Join(folder, "auth.pem")}
	_, err = control.LoadOrCreateKey(k.controlFile)
	if err != nil {
		return keys{}, err
	}
	_, err = os.Stat(k.authFile)
	if errors.Is(err, os.ErrNotExist) {
		err = createAuthKey(k.authFile)
	}
	if err != nil {
		return keys{}, err
	}
	k.hostToken, err = loadOrCreateText(filepath.Join(folder, "edge-host.token"))
	if err != nil {
		return keys{}, err
	}
	k.hostIdentity, err = loadOrCreateText(filepath.Join(folder, "edge-host.identity"))
	return k, err
}

// createAuthKey makes the key under another name first: one that a crash left
// half written would stop every later start.
func createAuthKey(name string) error {
	unfinished := name + ".new"
	err := os.Remove(unfinished)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an unfinished key: %w", err)
	}
	_, err = auth.GenerateKeyFile(unfinished)
	if err != nil {
		return err
	}
	return os.Rename(unfinished, name)
}

// loadOrCreateText reads a random text of 64 hex digits, or makes it. A file
// that a crash left half written is never seen: it gets its name when whole.
func loadOrCreateText(name string) (string, error) {
	raw, err := os.ReadFile(name)
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read %s: %w", filepath.Base(name), err)
	}
	text, err := randomText()
	if err != nil {
		return "", err
	}
	return text, writeWhole(name, []byte(text+"\n"))
}

// randomText makes a secret of 256 bits as 64 hex digits.
func randomText() (string, error) {
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	if err != nil {
		return "", fmt.Errorf("make a secret: %w", err)
	}
	return hex.EncodeToString(secret), nil
}

// writeWhole puts a file in place in one step.
func writeWhole(name string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.Write(data)
	if err == nil {
		err = temp.Sync()
	}
	err = errors.Join(err, temp.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	return os.Rename(temp.Name(), name)
}
