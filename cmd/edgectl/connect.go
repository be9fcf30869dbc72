package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/teamsync/edge-workers/pkg/client"
)

const (
	envURL   = "EDGE_WORKERS_API_URL"
	envToken = "EDGE_WORKERS_TOKEN"
	// defaultData is where `edgectl dev` keeps its state.
	defaultData  = ".edge-workers"
	readyName    = "ready.json"
	maxReadyFile = 64 << 10
)

// apiFlags say which API to talk to, and as whom.
type apiFlags struct {
	url       string
	token     string
	devData   string
	allowHTTP bool
}

func (s *cli) addAPIFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&s.api.url, "api-url", "", "URL of the API (default $"+envURL+", then the running edgectl dev)")
	flags.StringVar(&s.api.token, "token", "", "bearer token (default $"+envToken+", then the one of edgectl dev)")
	flags.StringVar(&s.api.devData, "dev-data", defaultData, "folder of edgectl dev, whose "+readyName+" gives the defaults")
	flags.BoolVar(&s.api.allowHTTP, "allow-http", false, "let the token travel unencrypted to another host")
}

// ready is what `edgectl dev` writes when all is up.
type ready struct {
	APIURL            string `json:"api_url"`
	ConsoleURL        string `json:"console_url"`
	GatewayURL        string `json:"gateway_url"`
	CompanyID         string `json:"company_id"`
	DepartmentID      string `json:"department_id"`
	ManagerToken      string `json:"manager_token"`
	CompanyAdminToken string `json:"company_admin_token"`
	PlatformToken     string `json:"platform_admin_token"`
}

// readReady gives the dev ready file; a missing one is an empty value.
func (s *cli) readReady() (ready, error) {
	name := filepath.Join(s.api.devData, readyName)
	file, err := os.Open(name) // #nosec G304 -- the user names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return ready{}, nil
	}
	if err != nil {
		return ready{}, fmt.Errorf("open the ready file: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxReadyFile))
	err = errors.Join(err, file.Close())
	if err != nil {
		return ready{}, fmt.Errorf("read %s: %w", name, err)
	}
	var r ready
	err = json.Unmarshal(raw, &r)
	if err != nil {
		return ready{}, fmt.Errorf("%s is not a ready file of `edgectl dev`: %w", name, err)
	}
	return r, nil
}

// connect makes the client. Flags win over the environment, that over the dev
// ready file, whose token is only ever given to its own API.
func (s *cli) connect() (*client.Client, error) { return s.connectAs(managerOf) }

// managerOf and companyAdminOf choose the token of `edgectl dev`.
func managerOf(r ready) string      { return r.ManagerToken }
func companyAdminOf(r ready) string { return r.CompanyAdminToken }

func (s *cli) connectAs(devToken func(ready) string) (*client.Client, error) {
	r, err := s.readReady()
	if err != nil {
		return nil, err
	}
	s.api.url = first(s.api.url, s.getenv(envURL), r.APIURL)
	if s.api.url == "" {
		return nil, &failure{
			what: "there is no API to talk to",
			next: "Give --api-url or " + envURL + ", or start `edgectl dev` in this folder.", exit: exitUsage,
		}
	}
	s.api.token = first(s.api.token, s.getenv(envToken))
	if s.api.token == "" && s.api.url == r.APIURL {
		s.api.token = devToken(r)
	}
	if s.api.token == "" {
		return nil, &failure{
			what: "there is no token", where: s.api.url,
			next: "Give --token or " + envToken + "; `edgectl token` makes one from a local key.", exit: exitUsage,
		}
	}
	c, err := client.New(client.Params{BaseURL: s.api.url, Token: s.api.token, AllowHTTP: s.api.allowHTTP, UserAgent: "edgectl", Pause: s.pause})
	if err != nil {
		return nil, &failure{what: err.Error(), where: s.api.url, next: "Correct --api-url, or allow plain http with --allow-http.", exit: exitUsage}
	}
	return c, nil
}

func first(values ...string) string {
	for _, value := range values {
		if value != "" {
			return value
		}
	}
	return ""
}
