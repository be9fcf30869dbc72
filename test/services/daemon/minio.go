package daemon

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// minioKey and minioSecret are the administrator of a MinIO that lives as long
// as a test run and answers on the loopback interface only.
const (
	minioKey    = "edge-test-key"
	minioSecret = "edge-test-secret"
)

// MinIO starts a private MinIO from its binary in dir, which must exist, and
// returns it with its address, in which the administrator's key pair is:
// http://KEY:SECRET@127.0.0.1:PORT. It has a static key for encryption, so
// that it takes objects with server-side encryption.
func MinIO(ctx context.Context, dir, binary string) (*Daemon, string, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, "", err
	}
	data := filepath.Join(dir, "minio")
	err = os.MkdirAll(filepath.Join(data, "objects"), 0o700)
	if err != nil {
		return nil, "", fmt.Errorf("make a folder for MinIO: %w", err)
	}
	address, err := freePort(ctx)
	if err != nil {
		return nil, "", err
	}
	encryption := make([]byte, 32)
	_, _ = rand.Read(encryption) // never fails
	args := []string{
		"server", "--quiet", "--address", address,
		"--certs-dir", filepath.Join(data, "certs"), // or it would look into the user's home
		filepath.Join(data, "objects"),
	}
	d, err := launch(ctx, dir, "minio", binary, args,
		func(ctx context.Context) error { return askMinIO(ctx, "http://"+address+"/minio/health/ready") },
		"MINIO_ROOT_USER="+minioKey, "MINIO_ROOT_PASSWORD="+minioSecret,
		"MINIO_KMS_SECRET_KEY=edge-test:"+base64.StdEncoding.EncodeToString(encryption),
		"MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CI_CD=1", // the last: any disk will do
	)
	if err != nil {
		return nil, "", err
	}
	return d, (&url.URL{Scheme: "http", User: url.UserPassword(minioKey, minioSecret), Host: address}).String(), nil
}

// freePort gives an address that was free just now. MinIO cannot be told to
// take any port and say which.
func freePort(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for MinIO: %w", err)
	}
	address := listener.Addr().String()
	return address, listener.Close()
}

func askMinIO(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: readyPoll * 20}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // of no interest
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("MinIO answers %s", response.Status)
	}
	return nil
}
