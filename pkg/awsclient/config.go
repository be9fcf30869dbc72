package awsclient

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Service says where a service is and who asks.
type Service struct {
	Region string
	// Endpoint is the origin of another service that speaks the same protocol;
	// empty: AWS's own of the region.
	Endpoint string
	// Credentials; nil: the SDK's standard chain, which finds those of a pod
	// or a job (IRSA, pod identity, job role) and an operator's own.
	Credentials aws.CredentialsProvider
}

const (
	// chainTimeout bounds the reading of where the chain's credentials come
	// from; they are fetched later, within the first call.
	chainTimeout = 10 * time.Second
	// fetchTimeout bounds one request of the chain, such as the one to STS.
	fetchTimeout = 10 * time.Second
)

// Config gives the SDK's configuration: attempts bounds the tries of a call,
// backoff the pause between them. Of the process's environment and files it
// takes the credentials and nothing else.
func (s Service) Config(ctx context.Context, wire Wire, attempts int, backoff time.Duration) (aws.Config, error) {
	err := s.check()
	if err != nil {
		return aws.Config{}, err
	}
	credentials := s.Credentials
	if credentials == nil {
		ctx, cancel := context.WithTimeout(ctx, chainTimeout)
		defer cancel()
		chain, err := config.LoadDefaultConfig(ctx, config.WithRegion(s.Region), config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(fetchTimeout)))
		if err != nil {
			return aws.Config{}, fmt.Errorf("AWS credentials: %w", err)
		}
		credentials = chain.Credentials
	}
	c := aws.Config{
		Region: s.Region, Credentials: credentials, HTTPClient: wire.Client(),
		Retryer: func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, backoff })
		},
	}
	if s.Endpoint != "" {
		c.BaseEndpoint = &s.Endpoint
	}
	return c, nil
}

func (s Service) check() error {
	if s.Region == "" {
		return errors.New("no AWS region: set the one that the service is in")
	}
	if s.Endpoint == "" {
		return nil
	}
	parsed, err := url.Parse(s.Endpoint)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return errors.New("the AWS endpoint is not a URL such as http://127.0.0.1:4566; leave it empty for AWS's own")
	}
	return nil
}
