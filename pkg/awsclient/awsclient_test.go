package awsclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/teamsync/edge-workers/pkg/awsclient"
)

var wire = awsclient.Wire{Connect: 5 * time.Second, Silence: 10 * time.Second, MaxIdle: 2}

// answer is one reply of the scripted service: a status, or a connection that
// breaks without one.
type answer struct {
	status int
	body   string
}

const lost = 0

// call sends a message to a service that gives these answers.
func call(t *testing.T, answers ...answer) (*awsclient.Witness, int64, error) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		one := answers[min(int(n.Add(1)), len(answers))-1]
		if one.status == lost {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(one.status)
		_, _ = w.Write([]byte(one.body))
	}))
	t.Cleanup(server.Close)
	c, err := awsclient.Service{Region: "eu-west-1", Endpoint: server.URL, Credentials: pair("ID", "SECRET")}.Config(t.Context(), wire, 3, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	witness := &awsclient.Witness{}
	_, err = sqs.NewFromConfig(c).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("q"), MessageBody: aws.String("m")}, sqs.WithAPIOptions(witness.Watch))
	return witness, n.Load(), err
}

func pair(id, secret string) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: id, SecretAccessKey: secret}, nil
	})
}

const denied = `{"__type":"com.amazonaws.sqs#AccessDenied","message":"the canary"}`

// A rejection after an attempt without an answer proves nothing.
func TestWitness(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers  []answer
		attempts int64
		open     bool
	}{
		"rejected":             {[]answer{{400, denied}}, 1, false},
		"too many requests":    {[]answer{{429, `{"__type":"ThrottlingException"}`}}, 3, false},
		"in trouble":           {[]answer{{500, ""}}, 3, true},
		"lost":                 {[]answer{{status: lost}}, 3, true},
		"lost, then rejected":  {[]answer{{status: lost}, {403, denied}}, 2, true},
		"request timeout":      {[]answer{{408, ""}}, 1, true},
		"redirected":           {[]answer{{307, ""}}, 1, true},
		"accepted, but broken": {[]answer{{200, `{"MD5OfMessageBody":"x","MessageId":"1"}`}}, 1, true},
	} {
		witness, attempts, err := call(t, test.answers...)
		if err == nil || witness.MayHaveHappened() != test.open || attempts != test.attempts {
			t.Errorf("%s: open %v after %d attempts, %v", name, witness.MayHaveHappened(), attempts, err)
		}
		if text := awsclient.Failure("SendMessage", err).Error(); strings.Contains(text, "canary") || !strings.HasPrefix(text, "SendMessage: ") {
			t.Errorf("%s: %s", name, text)
		}
	}
	_, _, err := call(t, answer{400, denied})
	failed := awsclient.Failure("SendMessage", err)
	if failed.Error() != "SendMessage: HTTP 400 AccessDenied" || !errors.Is(failed, err) {
		t.Errorf("%v", failed)
	}
}

// Of the process's environment the credentials are taken and nothing else.
func TestEnvironment(t *testing.T) {
	var authorization string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "POD-KEY", "AWS_SECRET_ACCESS_KEY": "pod-secret", "AWS_REGION": "us-west-2",
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "9",
		"AWS_CONFIG_FILE": t.TempDir() + "/none", "AWS_SHARED_CREDENTIALS_FILE": t.TempDir() + "/none",
	} {
		t.Setenv(name, value)
	}
	for id, credentials := range map[string]aws.CredentialsProvider{"POD-KEY": nil, "GIVEN": pair("GIVEN", "secret")} {
		c, err := awsclient.Service{Region: "eu-west-1", Endpoint: server.URL, Credentials: credentials}.Config(t.Context(), wire, 1, time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		api := sqs.NewFromConfig(c)
		if api.Options().Retryer.MaxAttempts() != 1 {
			t.Errorf("%d attempts", api.Options().Retryer.MaxAttempts())
		}
		_, err = api.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("q"), MessageBody: aws.String("m")})
		if err == nil || !strings.Contains(authorization, "Credential="+id+"/") || !strings.Contains(authorization, "/eu-west-1/sqs/") {
			t.Errorf("%s: %q, %v", id, authorization, err)
		}
	}
}

// Without credentials nothing is sent, so nothing can have happened.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	broken := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errors.New("no role") })
	c, err := awsclient.Service{Region: "eu-west-1", Endpoint: "http://127.0.0.1:1", Credentials: broken}.Config(t.Context(), wire, 1, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	witness := &awsclient.Witness{}
	_, err = sqs.NewFromConfig(c).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("q"), MessageBody: aws.String("m")}, sqs.WithAPIOptions(witness.Watch))
	if err == nil || !strings.Contains(err.Error(), "no role") || witness.MayHaveHappened() {
		t.Errorf("%v, open %v", err, witness.MayHaveHappened())
	}
}

func TestService(t *testing.T) {
	t.Parallel()
	for _, s := range []awsclient.Service{{}, {Endpoint: "http://x"}, {Region: "r", Endpoint: "x:1"}, {Region: "r", Endpoint: "ftp://x"}, {Region: "r", Endpoint: "http://"}, {Region: "r", Endpoint: "http://a b"}} {
		s.Credentials = pair("a", "b")
		if _, err := s.Config(t.Context(), wire, 1, time.Second); err == nil {
			t.Errorf("%+v was accepted", s)
		}
	}
	c, err := awsclient.Service{Region: "r", Credentials: pair("a", "b")}.Config(t.Context(), wire, 1, time.Second)
	if err != nil || c.BaseEndpoint != nil || c.Region != "r" {
		t.Errorf("%+v, %v", c, err)
	}
}
