package control

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	maxKeyFile   = 16 << 10
)

// ParsePrivateKey reads one Ed25519 key in PEM PKCS#8.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != privateBlock {
		return nil, errors.New("signing key is not a PEM PRIVATE KEY")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("signing key is not PKCS#8") // the cause could quote the key
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("signing key is %T, want Ed25519", parsed)
	}
	return key, nil
}

// ParsePublicKey reads one Ed25519 key in PEM PKIX: the next key of a signer.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != publicBlock {
		return nil, errors.New("next key is not a PEM PUBLIC KEY")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("next key: %w", err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("next key is %T, want Ed25519", parsed)
	}
	return key, nil
}

// LoadKey reads a private key file that nobody but its owner may access, or
// that root lends to the process's group.
func LoadKey(path string) (ed25519.PrivateKey, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	if !info.Mode().IsRegular() || !private(info.Mode().Perm(), owner(info), os.Geteuid()) {
		return nil, fmt.Errorf("signing key %s must be a file with mode 0600 (0640 when root owns it and the process is not root), it has %s", path, info.Mode())
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("signing key: %w", err)
	}
	return ParsePrivateKey(text)
}

// private tells whether a key file is out of reach of others: mode 0600 or less;
// or 0640 or less when it is root's and the process is not. Kubernetes gives the
// files of a Secret no other owner than root, so the group is the only way to
// lend one to a process. PostgreSQL has the same rule for its key.
func private(mode fs.FileMode, owner, self int) bool {
	if owner == 0 && self != 0 {
		return mode&0o037 == 0
	}
	return mode&0o077 == 0
}

// owner gives the uid of a file's owner, and -1 where there is none.
func owner(info fs.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Uid)
}

// LoadOrCreateKey is LoadKey that makes a new key when the file is missing.
// Of several processes that do so at once one wins and all get its key.
func LoadOrCreateKey(path string) (ed25519.PrivateKey, error) {
	key, err := LoadKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := createKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create signing key: %w", err)
	}
	return LoadKey(path)
}

// createKey writes a complete file beside path and links it to its name, so
// that nobody ever reads half a key and no existing key is replaced.
func createKey(path string) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".signing-key-*") // mode 0600
	if err != nil {
		return err
	}
	// Should this fail, the name that stays is as protected as the key's own.
	defer func() { _ = os.Remove(file.Name()) }()
	err = pem.Encode(file, &pem.Block{Type: privateBlock, Bytes: der})
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Link(file.Name(), path)
}
