package awsclient_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/teamsync/edge-workers/pkg/awsclient"
)

// anIdentity is what STS answers to a pod's token.
const anIdentity = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>ROLE-KEY</AccessKeyId><SecretAccessKey>role-secret</SecretAccessKey><SessionToken>session</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

// A pod gets its credentials by the way that its cluster gave it: a token for STS
// (IRSA), or an agent (pod identity, and Batch's job role).
func TestRoles(t *testing.T) {
	var asked, sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch {
		case strings.Contains(string(body), "AssumeRoleWithWebIdentity"):
			asked = append(asked, string(body))
			_, _ = io.WriteString(w, anIdentity)
		case r.URL.Path == "/agent":
			asked = append(asked, r.Header.Get("Authorization"))
			_, _ = io.WriteString(w, `{"AccessKeyId":"ROLE-KEY","SecretAccessKey":"role-secret","Token":"session","Expiration":"2100-01-01T00:00:00Z"}`)
		default:
			sent = append(sent, r.Header.Get("Authorization")+" "+r.Header.Get("X-Amz-Security-Token"))
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()
	folder := t.TempDir()
	token := filepath.Join(folder, "token")
	if err := os.WriteFile(token, []byte("pods-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, environment := range map[string]map[string]string{
		"IRSA":                       {"AWS_ROLE_ARN": "arn:aws:iam::1:role/edge-workers", "AWS_WEB_IDENTITY_TOKEN_FILE": token, "AWS_ENDPOINT_URL_STS": server.URL},
		"pod identity, and job role": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": server.URL + "/agent", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": token},
	} {
		t.Run(name, func(t *testing.T) {
			for _, unset := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
				t.Setenv(unset, "")
			}
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(folder, "none"))
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(folder, "none"))
			for variable, value := range environment {
				t.Setenv(variable, value)
			}
			asked, sent = nil, nil
			c, err := awsclient.Service{Region: "eu-west-1", Endpoint: server.URL}.Config(t.Context(), wire, 1, time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err = sqs.NewFromConfig(c).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: aws.String("q"), MessageBody: aws.String("m")})
				if err == nil || !strings.HasPrefix(awsclient.Kind(err), "HTTP 400") {
					t.Fatal(err)
				}
			}
			if len(asked) != 1 || !strings.Contains(asked[0], "pods-token") {
				t.Errorf("asked for credentials: %q", asked)
			}
			if len(sent) != 2 || !strings.Contains(sent[1], "Credential=ROLE-KEY/") || !strings.HasSuffix(sent[1], " session") {
				t.Errorf("sent %q", sent)
			}
		})
	}
}
