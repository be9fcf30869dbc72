package devkit

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// clockStep is how often the in-process Redis is told that time has passed:
// it expires nothing by itself.
const clockStep = 200 * time.Millisecond

// redisServer is a Redis in this process. Nothing in it is the only copy of
// anything, so it starts empty.
type redisServer struct {
	server *miniredis.Miniredis
	url    string
	stop   context.CancelFunc
}

func startRedis(ctx context.Context) (*redisServer, error) {
	server := miniredis.NewMiniRedis()
	password, err := randomText()
	if err != nil {
		return nil, err
	}
	server.RequireAuth(password)
	err = server.Start()
	if err != nil {
		return nil, fmt.Errorf("start the in-process Redis: %w", err)
	}
	clock, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		last := time.Now()
		for clock.Err() == nil {
			select {
			case <-clock.Done():
			case <-time.After(clockStep):
				now := time.Now()
				server.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	address := url.URL{Scheme: "redis", User: url.UserPassword("", password), Host: server.Addr()}
	return &redisServer{server: server, url: address.String(), stop: stop}, nil
}

func (r *redisServer) close() {
	r.stop()
	r.server.Close()
}
