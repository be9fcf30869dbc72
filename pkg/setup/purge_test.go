package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/config"
	"github.com/teamsync/edge-workers/pkg/control"
	"github.com/teamsync/edge-workers/pkg/deploy"
	"github.com/teamsync/edge-workers/pkg/observe"
	"github.com/teamsync/edge-workers/pkg/version"
)

// S1-117, S1-118, S1-129: the task's purge goes to the gateway of the settings,
// in the deployment's name. Without usable settings it reaches nobody.
func TestPurgeGoesThroughTheGateway(t *testing.T) {
	t.Parallel()
	var asked []string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var claims jwt.MapClaims
		_, _, err := jwt.NewParser().ParseUnverified(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &claims)
		if err != nil {
			t.Error(err)
		}
		asked = append(asked, fmt.Sprint(r.URL.Path, " ", claims["sub"], " ", claims["op"]))
		w.WriteHeader(http.StatusConflict)
		_ = json.NewEncoder(w).Encode(map[string]any{"detail": map[string]string{"code": "release_generation_mismatch", "message": "m"}})
	}))
	t.Cleanup(gateway.Close)
	key, err := control.LoadOrCreateKey(filepath.Join(t.TempDir(), "key.pem"))
	must(t, err)
	signer, err := control.NewSigner(key, nil)
	must(t, err)
	s, err := newServing(config.Provider{
		Name: "onprem", EdgeHostURL: "http://127.0.0.1:1", EdgeHostDispatchURL: gateway.URL,
		EdgeHostAPIToken: config.NewSecret(strings.Repeat("t", 64)), EdgeHostIdentity: "host-1",
	}, signer, observe.Discard(), nil)
	must(t, err)
	script := "dw-" + strings.Repeat("0", 48)
	target := deploy.Purge{ScriptName: script, Generation: strings.Repeat("a", 64), Policy: builder.V2_7}
	err = s.PurgeSecrets(t.Context(), target)
	if want := "/" + script + "/__control system:edge-worker-deploy secrets.purge"; !errors.Is(err, deploy.ErrPurgeUnconfirmed) || len(asked) != 1 || asked[0] != want {
		t.Errorf("%v, asked %v", err, asked)
	}
	none, err := newServing(config.Provider{Name: "onprem"}, signer, observe.Discard(), nil)
	must(t, err)
	err = none.PurgeSecrets(t.Context(), target)
	if !errors.Is(err, version.ErrProviderInvalid) || len(asked) != 1 {
		t.Errorf("without settings: %v, asked %v", err, asked)
	}
}
