package daemon

import (
	"context"
	"fmt"
	"net/url"

	"github.com/redis/go-redis/v9"
)

// Redis starts a private Redis in dir, which must exist, and returns it with
// its URL. It keeps nothing on disk: killed and started again it is empty.
func Redis(ctx context.Context, dir string) (*Daemon, string, error) {
	server, err := Find("redis-server")
	if err != nil {
		return nil, "", err
	}
	socket, err := socketIn(dir, "r.sock")
	if err != nil {
		return nil, "", err
	}
	args := []string{
		"--port", "0",
		"--unixsocket", socket, "--unixsocketperm", "700",
		"--save", "", "--appendonly", "no",
		"--dir", dir,
		"--daemonize", "no",
	}
	address := (&url.URL{Scheme: "unix", Path: socket}).String()
	d, err := launch(ctx, dir, "redis", server, args, func(ctx context.Context) error { return pingRedis(ctx, address) })
	if err != nil {
		return nil, "", err
	}
	return d, address, nil
}

func pingRedis(ctx context.Context, address string) error {
	options, err := redis.ParseURL(address)
	if err != nil {
		return fmt.Errorf("parse %q: %w", address, err)
	}
	options.MaxRetries = -1
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }() // a pool of one connection that only pinged
	return client.Ping(ctx).Err()
}
