package chart

import (
	"strings"
	"testing"
)

// refusal is a change to a value set after which nothing is rendered, and what
// the message says.
type refusal struct {
	what    string
	set     string
	changes []any
	says    []string
}

var schemaRefusals = []refusal{
	{"a secret's value", "legacy-cloud", []any{"secrets.databaseUrl.value", "user:password@tcp(db)/x"}, []string{"secrets", "databaseUrl", "value"}},
	{"a secret as a text", "legacy-cloud", []any{"secrets.redisUrl", "redis://:password@redis"}, []string{"redisUrl", "object"}},
	{"a secret's content as a key", "legacy-cloud", []any{"secrets.databaseUrl.key", "user:password@tcp(db:3306)/x"}, []string{"databaseUrl/key", "does not match"}},
	{"a password in the proxy's URL", "legacy-cloud", []any{"proxy.https", "http://user:password@proxy:3128"}, []string{"proxy/https"}},
	{"a password in the key set's URL", "legacy-cloud", []any{"auth.jwksUrl", "https://user:password@id.example.com/"}, []string{"auth/jwksUrl"}},
	{"a key set over http", "legacy-cloud", []any{"auth.jwksUrl", "http://id.example.com/"}, []string{"auth/jwksUrl"}},
	{"an unknown transport", "legacy-cloud", []any{"transport.type", "kafka"}, []string{"transport/type", "'legacy', 'pubsub', 'sqs', 'batch'"}},
	{"an unknown provider", "legacy-cloud", []any{"provider", "aws"}, []string{"provider", "'cloudflare', 'onprem'"}},
	{"a misspelt value", "legacy-cloud", []any{"transports.type", "sqs"}, []string{"transports", "not allowed"}},
	{"a misspelt value of a role", "legacy-cloud", []any{"api.replicaCount", 3}, []string{"/api", "replicaCount"}},
	{"no replicas", "legacy-cloud", []any{"api.replicas", 0}, []string{"api/replicas"}},
	{"two edge hosts on one folder", "legacy-onprem", []any{"edgehost.replicas", 2}, []string{"edgehost", "replicas"}},
	{"an edge host for many nodes", "legacy-onprem", []any{"edgehost.storage.accessMode", "ReadWriteMany"}, []string{"edgehost/storage/accessMode"}},
	{"an account that is none", "legacy-cloud", []any{"cloudflare.accountId", "my-account"}, []string{"cloudflare/accountId"}},
	{"a gateway over http", "legacy-cloud", []any{"cloudflare.gatewayUrl", "http://workers.example.com"}, []string{"cloudflare/gatewayUrl"}},
	{"an address as a trusted proxy", "legacy-cloud", []any{"edge.trustedProxies", []any{"10.0.0.1"}}, []string{"edge/trustedProxies"}},
	{"an api that is killed while it drains", "legacy-cloud", []any{"api.terminationGracePeriodSeconds", 30}, []string{"api/terminationGracePeriodSeconds"}},
	{"an edge host that is killed while it drains", "legacy-onprem", []any{"edgehost.terminationGracePeriodSeconds", 60}, []string{"edgehost/terminationGracePeriodSeconds"}},
	{"a private key as the next public one", "legacy-cloud", []any{"control.nextPublicKey", "-----BEGIN PRIVATE KEY-----"}, []string{"control/nextPublicKey"}},
	{"a log level that is none", "legacy-cloud", []any{"logLevel", "trace"}, []string{"logLevel"}},
	{"a number as an annotation", "legacy-cloud", []any{"api.podAnnotations", map[string]any{"a": 1}}, []string{"api/podAnnotations"}},
}

var ruleRefusals = []refusal{
	{"no registry", "legacy-cloud", []any{"image.registry", ""}, []string{"image.registry is needed"}},
	{"no callers", "legacy-cloud", []any{"auth", nil}, // the chart's own are empty
		[]string{"auth.jwksUrl is needed", "auth.issuer is needed", "auth.audience is needed"}},
	{"no account", "legacy-cloud", []any{"cloudflare.accountId", "", "cloudflare.r2Bucket", ""}, []string{"cloudflare.accountId is needed with provider=cloudflare", "cloudflare.r2Bucket is needed"}},
	{"a shared namespace that is the own one", "legacy-cloud", []any{"cloudflare.sharedNamespaces", []any{"edge-production"}}, []string{"cloudflare.sharedNamespaces has the environment's own"}},
	{"onprem without a host's name", "legacy-onprem", []any{"onprem.identity", ""}, []string{"onprem.identity is needed with provider=onprem"}},
	{"isolation that nobody decided on", "legacy-onprem", []any{"edgehost.isolation", ""}, []string{"edgehost.isolation is needed, on or off"}},
	{"an edge host elsewhere without an address", "legacy-onprem", []any{"edgehost.enabled", false}, []string{"onprem.scriptApiUrl is needed with edgehost.enabled=false", "onprem.dispatchUrl is needed"}},
	{"an edge host here and elsewhere", "legacy-onprem", []any{"onprem.scriptApiUrl", "http://host:8787"}, []string{"set edgehost.enabled=false, or leave them empty"}},
	{"pubsub without a project", "pubsub-cloud", []any{"transport.pubsub.project", ""}, []string{"transport.pubsub.project is needed with transport.type=pubsub"}},
	{"pubsub without a topic", "pubsub-cloud", []any{"transport.pubsub.topic", ""}, []string{"transport.pubsub.topic is needed"}},
	{"pubsub without a subscription", "pubsub-cloud", []any{"transport.pubsub.subscription", ""}, []string{"transport.pubsub.subscription is needed"}},
	{"sqs without a queue", "sqs-cloud", []any{"transport.sqs.queueUrl", ""}, []string{"transport.sqs.queueUrl is needed"}},
	{"sqs without a region", "sqs-cloud", []any{"transport.aws.region", ""}, []string{"transport.aws.region is needed with transport.type=sqs"}},
	{"batch without a definition", "batch-cloud", []any{"transport.batch.jobDefinition", ""}, []string{"transport.batch.jobDefinition is needed"}},
	{"a queue that is not used", "sqs-cloud", []any{"transport.type", "legacy"}, []string{"transport.sqs.queueUrl is set, but transport.type is legacy"}},
	{"deployers with legacy", "legacy-cloud", []any{"deployer.autoscaling.enabled", true}, []string{"deployer.autoscaling.enabled with transport.type=legacy: there are no deployers"}},
	{"deployers in the cluster with batch", "batch-cloud", []any{"deployer.autoscaling.enabled", true}, []string{"with transport.type=batch: there are no deployers"}},
	{"jobs of AWS for an edge host in the cluster", "legacy-onprem", []any{"transport.type", "batch", "transport.batch.jobQueue", "q", "transport.batch.jobDefinition", "d", "transport.aws.region", "eu-central-1"}, []string{"cannot reach this release's edge host"}},
	{"a deployer that is killed while it drains", "sqs-cloud", []any{"deployer.terminationGracePeriodSeconds", 3300}, []string{"must exceed transport.drainTimeoutSeconds (3300)"}},
	{"more replicas at least than at most", "sqs-cloud", []any{"api.autoscaling.minReplicas", 20}, nil}, // off: taken
	{"more replicas at least than at most, on", "sqs-cloud", []any{"api.autoscaling.enabled", true, "api.autoscaling.minReplicas", 20}, []string{"api.autoscaling.minReplicas exceeds maxReplicas"}},
	{"proxies without a header", "sqs-cloud", []any{"edge.clientAddressHeader", ""}, []string{"are needed both, or neither"}},
	{"an ingress without a host", "sqs-cloud", []any{"ingress.host", ""}, []string{"ingress.host is needed"}},
	{"alerts on what nobody collects", "legacy-cloud", []any{"monitoring.rules.enabled", true}, []string{"monitoring.rules.enabled without monitoring.serviceMonitor.enabled"}},
}

// Wrong values are refused before anything is sent to the cluster, and the
// message names the value. What is only a schema's matter is said by the schema.
func TestRefusals(t *testing.T) {
	t.Parallel()
	sets := valueSets(t)
	for _, r := range append(schemaRefusals, ruleRefusals...) {
		_, err := render(t.Context(), with(t, sets[r.set], r.changes...), kubeVersions[0])
		if len(r.says) == 0 {
			if err != nil {
				t.Errorf("%s: refused: %v", r.what, err)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: taken", r.what)
			continue
		}
		for _, text := range r.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: the message has no %q:\n%v", r.what, text, err)
			}
		}
	}
}

// All faults are told at once.
func TestRefusalsAreTold(t *testing.T) {
	t.Parallel()
	_, err := render(t.Context(), map[string]any{}, kubeVersions[0])
	if err == nil || strings.Count(err.Error(), "\n- ") != 8 {
		t.Errorf("the chart's own values lack 8 others:\n%v", err)
	}
}
