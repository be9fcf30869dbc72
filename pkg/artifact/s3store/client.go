package s3store

import (
	"context"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/teamsync/edge-workers/pkg/awsclient"
)

// client is what stores with equal options share: the SDK's client with its
// connections, and the retry budget that it keeps.
type client struct {
	api       *s3.Client
	transport *http.Transport
}

// maxIdleConns bounds the connections kept open for the next request: two
// uploads of a submission at once, for a few submissions.
const maxIdleConns = 16

// newClient makes a client from options alone. The SDK's own way of making one
// would read its environment variables and shared files (S0-30).
func newClient(o Options, l limits) *client {
	transport := newTransport(o.Network, l)
	pair := aws.Credentials{AccessKeyID: o.Credentials.id, SecretAccessKey: o.Credentials.reveal()}
	api := s3.New(s3.Options{
		BaseEndpoint: aws.String(o.Endpoint),
		Region:       o.Region,
		UsePathStyle: o.PathStyle,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return pair, nil
		}),
		HTTPClient: awsclient.ClientOf(transport),
		// The default adds checksum headers and trailers that R2 and older
		// services refuse.
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
		ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		Retryer: retry.NewStandard(func(s *retry.StandardOptions) {
			s.MaxAttempts = l.attempts
			s.MaxBackoff = l.backoff
		}),
		// Bodies are small; waiting for a 100 Continue costs a round trip.
		ContinueHeaderThresholdBytes: -1,
		APIOptions:                   []func(*middleware.Stack) error{signPayload, plainHeaders},
	})
	return &client{api: api, transport: transport}
}

func newTransport(network *Network, l limits) *http.Transport {
	wire := awsclient.Wire{Connect: l.connect, Silence: l.read, MaxIdle: maxIdleConns}
	if network != nil {
		wire.RootCAs, wire.Dial = network.RootCAs, network.Dial
	}
	return wire.Transport()
}

// signPayload signs the body's hash over TLS too, where the SDK would leave it
// unsigned: the service then refuses a body that was damaged on the way.
func signPayload(stack *middleware.Stack) error {
	step := &v4.ComputePayloadSHA256{}
	_, err := stack.Finalize.Swap(step.ID(), step)
	return err
}

// userAgent names this product to the service.
const userAgent = "edge-workers"

// plainHeaders takes out what the SDK makes of the process's environment: the
// execution environment's name and a trace id.
func plainHeaders(stack *middleware.Stack) error {
	return stack.Finalize.Add(middleware.FinalizeMiddlewareFunc("PlainHeaders",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			request, ok := in.Request.(*smithyhttp.Request)
			if ok {
				request.Header.Set("User-Agent", userAgent)
				request.Header.Del("X-Amzn-Trace-Id")
			}
			return next.HandleFinalize(ctx, in)
		}), middleware.Before)
}
