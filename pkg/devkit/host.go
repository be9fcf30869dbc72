package devkit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/teamsync/edge-workers/pkg/edgehost"
	"github.com/teamsync/edge-workers/pkg/edgehost/workerd"
	"github.com/teamsync/edge-workers/pkg/observe"
)

// edgeHost is the embedded edge host with its two listeners on loopback.
type edgeHost struct {
	host                    *edgehost.Host
	controlURL, dispatchURL string
	stop                    context.CancelFunc
	serving                 sync.WaitGroup
}

func startEdgeHost(ctx context.Context, k *kit, token string) (*edgeHost, error) {
	binary, err := workerd.Find(k.p.Workerd)
	if err != nil {
		return nil, err
	}
	core, err := edgehost.New(edgehost.Params{
		DataDir: k.path("edgehost"), Workerd: binary, Token: token, Logger: k.p.Log, Registerer: k.registry,
	})
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // outlives the jobs that use it
	h := &edgeHost{host: core, stop: stop}
	for _, l := range []struct {
		name    string
		handler http.Handler
		url     *string
	}{{"edge host control", core.ControlHandler(), &h.controlURL}, {"edge host dispatch", core.DispatchHandler(), &h.dispatchURL}} {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, h.close(ctx))
		}
		*l.url = "http://" + listener.Addr().String()
		h.serving.Go(func() {
			err := observe.Serve(serving, observe.ServerParams{Name: l.name, Listener: listener, Handler: l.handler, Log: k.p.Log, Grace: stopGrace})
			if err != nil {
				k.p.Log.Warn("listener ended", "listener", l.name, "error", err)
			}
		})
	}
	return h, nil
}

func (h *edgeHost) close(ctx context.Context) error {
	h.stop()
	h.serving.Wait()
	return h.host.Close(ctx)
}
