// Package cloudflare is the provider for Cloudflare Workers for Platforms. It
// speaks the script API through the same client core as the edge host's
// provider (D16) and gives each outcome its error class (D14, cloud column).
package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/teamsync/edge-workers/pkg/provider"
	"github.com/teamsync/edge-workers/pkg/provider/scriptapi"
)

var scriptPattern = regexp.MustCompile(`\Adw-[0-9a-f]{48}\z`)

// Provider implements provider.Provider. It is safe for concurrent use. One
// process needs one Provider for a token: its gate knows of the rate limit
// that all calls share.
type Provider struct {
	own  string
	apis map[string]*scriptapi.Client // by dispatch namespace
	gate *Gate
}

// New checks p and returns a provider; it sends nothing.
func New(p Params) (*Provider, error) {
	p, err := p.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("cloudflare provider: %w", err)
	}
	built := &Provider{own: p.Namespace, apis: map[string]*scriptapi.Client{}, gate: NewGate(p.Now)}
	for _, namespace := range append([]string{p.Namespace}, p.Shared...) {
		built.apis[namespace], err = scriptapi.New(scriptapi.Params{
			Origin: p.Origin, Account: p.AccountID, Namespace: namespace, Token: p.Token,
			UploadTimeout: p.UploadTimeout, ReadTimeout: p.ReadTimeout, RootCAs: p.RootCAs, RequireJSON: true,
		})
		if err != nil {
			return nil, fmt.Errorf("cloudflare provider: %w", err)
		}
	}
	return built, nil
}

// target is the client of the release's namespace. Another namespace is
// refused, and so is an unnamed one when there are several: a guess would
// replace another environment's script.
func (p *Provider) target(release provider.Release) (*scriptapi.Client, error) {
	if !scriptPattern.MatchString(release.ScriptName) {
		return nil, fmt.Errorf("script name %.80q is not one of ours", release.ScriptName)
	}
	namespace := release.Namespace
	if namespace == "" && len(p.apis) == 1 {
		namespace = p.own
	}
	api, ok := p.apis[namespace]
	if !ok {
		return nil, fmt.Errorf("dispatch namespace %.80q is not one of this environment", namespace)
	}
	return api, nil
}

// Upload sends the full desired state in one attempt. While the token is
// blocked it sends nothing and answers *provider.RateLimitedError at once, with
// the time that remains.
func (p *Provider) Upload(ctx context.Context, release provider.Release) error {
	api, err := p.target(release)
	if err != nil {
		return &provider.TerminalError{Code: CodeRejected, Cause: err}
	}
	if left := p.gate.Remaining(); left > 0 {
		return &provider.RateLimitedError{Code: CodeRateLimited, RetryAfter: left, Cause: errBlocked}
	}
	ack, err := api.Put(ctx, release)
	if err != nil {
		return classify(p.note(err))
	}
	if ack.ID != release.ScriptName || ack.ETag == "" {
		return &provider.UncertainError{Code: CodeUncertain, Cause: errors.New("the acknowledgement names another script or no etag")}
	}
	return nil
}

// ReadBack compares both ends with the release (S2-165 to S2-173). A script
// that does not exist is provably different (S2-211). While the token is
// blocked it waits until ctx ends: a read that is refused for the rate limit
// would leave a deployment uncertain that is none.
func (p *Provider) ReadBack(ctx context.Context, release provider.Release) error {
	api, err := p.target(release)
	if err == nil {
		err = p.gate.Wait(ctx)
	}
	if err != nil {
		return &provider.UnreadableError{Cause: err}
	}
	err = p.note(api.ReadBack(ctx, release))
	if errors.Is(err, provider.ErrNotFound) {
		return &provider.MismatchError{Detail: "no script"}
	}
	return err
}

// RetryIn is how long the token is still blocked for its rate limit, as far as
// this process was told; 0 when it is not. An attempt before that is wasted.
func (p *Provider) RetryIn() time.Duration { return p.gate.Remaining() }

// What CheckNamespace refuses.
var (
	// ErrTrusted says that the namespace runs Workers in trusted mode, in which
	// they share caches and see more of a request than a tenant may.
	ErrTrusted = errors.New("it is in trusted mode: set trusted_workers to false and deploy its Workers again")
	// ErrNoNamespace says that the account has no such namespace.
	ErrNoNamespace = errors.New("it does not exist")
)

// CheckNamespace reads each dispatch namespace in one attempt and refuses it
// unless it is the configured one and provably not in trusted mode. Errors that
// wrap ErrTrusted or ErrNoNamespace need an operator; any other one says that
// the provider could not be asked.
func (p *Provider) CheckNamespace(ctx context.Context) error {
	for _, namespace := range slices.Sorted(maps.Keys(p.apis)) {
		err := p.checkNamespace(ctx, namespace)
		if err != nil {
			return fmt.Errorf("dispatch namespace %s: %w", namespace, err)
		}
	}
	return nil
}

func (p *Provider) checkNamespace(ctx context.Context, namespace string) error {
	if p.gate.Remaining() > 0 {
		return errBlocked
	}
	got, err := p.apis[namespace].Namespace(ctx)
	switch {
	case errors.Is(err, provider.ErrNotFound), hasCode(err, codeNoNamespace):
		return fmt.Errorf("%w: %w", ErrNoNamespace, err)
	case err != nil:
		return p.note(err)
	case got.Name != namespace:
		return fmt.Errorf("the answer is about %.80q", got.Name)
	case got.Trusted == nil:
		return errors.New("the answer does not tell whether it is trusted")
	case *got.Trusted:
		return ErrTrusted
	}
	return nil
}

// note closes the gate when err tells of a rate limit, whatever the call was:
// the provider blocks the token for all of them. It returns err.
func (p *Provider) note(err error) error {
	if failure := limited(err); failure != nil {
		p.gate.Block(retryAfter(failure))
	}
	return err
}
