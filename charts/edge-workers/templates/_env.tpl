{{/*
The environment of each role. docs/configuration.md says what the variables
mean; a variable that is empty counts as unset, so it is left out.
*/}}
{{- define "edge-workers.variable" -}}
{{- if .value }}
- name: {{ .name }}
  value: {{ .value | toString | quote }}
{{- end }}
{{- end -}}

{{- define "edge-workers.secretVariable" -}}
{{- $from := index .root.Values.secrets .secret }}
- name: {{ .name }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.existingSecret | default .root.Values.secrets.existingSecret }}
      key: {{ $from.key }}
{{- end -}}

{{- define "edge-workers.providerEnv" -}}
{{- $v := .root.Values }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_PROVIDER" "value" $v.provider) }}
{{- if eq $v.provider "cloudflare" }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID" "value" $v.cloudflare.accountId) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE" "value" $v.cloudflare.dispatchNamespace) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES" "value" (join "," $v.cloudflare.sharedNamespaces)) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL" "value" $v.cloudflare.gatewayUrl) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_CLOUDFLARE_API_TOKEN" "secret" "cloudflareApiToken") }}
{{- else }}
{{- $host := include "edge-workers.roleName" (dict "root" .root "role" "edgehost") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_EDGE_HOST_IDENTITY" "value" $v.onprem.identity) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_EDGE_HOST_URL" "value" (ternary (printf "http://%s:8787" $host) $v.onprem.scriptApiUrl $v.edgehost.enabled)) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_EDGE_HOST_DISPATCH_URL" "value" (ternary (printf "http://%s:8788" $host) $v.onprem.dispatchUrl $v.edgehost.enabled)) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_EDGE_HOST_API_TOKEN" "secret" "edgeHostApiToken") }}
{{- end }}
{{- end -}}

{{- define "edge-workers.artifactsEnv" -}}
{{- $v := .root.Values }}
{{- if eq $v.provider "cloudflare" }}
{{- include "edge-workers.variable" (dict "name" "S3_PROVIDER" "value" "r2") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_R2_BUCKET" "value" $v.cloudflare.r2Bucket) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_R2_ACCESS_KEY_ID" "secret" "r2AccessKeyId") }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_R2_SECRET_ACCESS_KEY" "secret" "r2SecretAccessKey") }}
{{- else }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL" "value" "http://edge-workers-artifacts:9000") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_ARTIFACTS_BUCKET" "value" $v.onprem.artifactsBucket) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID" "secret" "artifactsAccessKeyId") }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY" "secret" "artifactsSecretAccessKey") }}
{{- end }}
{{- end -}}

{{/* Only a deployer is told the subscription and its time limits. */}}
{{- define "edge-workers.transportEnv" -}}
{{- $t := .root.Values.transport }}
{{- $deployer := eq .role "deployer" }}
{{- include "edge-workers.variable" (dict "name" "DEFAULT_BACKGROUND_WORKER_TYPE" "value" $t.type) }}
{{- if eq $t.type "pubsub" }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_PUBSUB_PROJECT" "value" $t.pubsub.project) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_PUBSUB_TOPIC" "value" $t.pubsub.topic) }}
{{- if $deployer }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_PUBSUB_SUBSCRIPTION" "value" $t.pubsub.subscription) }}
{{- end }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_PUBSUB_ENDPOINT" "value" $t.pubsub.endpoint) }}
{{- else if eq $t.type "sqs" }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_SQS_QUEUE_URL" "value" $t.sqs.queueUrl) }}
{{- else if eq $t.type "batch" }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_BATCH_JOB_QUEUE" "value" $t.batch.jobQueue) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_BATCH_JOB_DEFINITION" "value" $t.batch.jobDefinition) }}
{{- end }}
{{- if has $t.type (list "sqs" "batch") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_AWS_REGION" "value" $t.aws.region) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_AWS_ENDPOINT" "value" $t.aws.endpoint) }}
{{- end }}
{{- if $deployer }}
{{- include "edge-workers.variable" (dict "name" "PUBSUB_MAX_LEASE_SECONDS" "value" (int $t.maxLeaseSeconds)) }}
{{- include "edge-workers.variable" (dict "name" "PUBSUB_DRAIN_TIMEOUT_SECONDS" "value" (int $t.drainTimeoutSeconds)) }}
{{- end }}
{{- end -}}

{{/* What only an api has: its listener, callers, and what builds need. */}}
{{- define "edge-workers.apiEnv" -}}
{{- $v := .root.Values }}
{{- $roles := "management,gateway" }}
{{- if eq .role "gateway" }}{{ $roles = "gateway" }}{{ else if $v.gateway.enabled }}{{ $roles = "management" }}{{ end }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_LISTEN_ADDR" "value" ":8080") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_ROLES" "value" $roles) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_AUTH_JWKS_URL" "value" $v.auth.jwksUrl) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_AUTH_ISSUER" "value" $v.auth.issuer) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_AUTH_AUDIENCE" "value" $v.auth.audience) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_TRUSTED_PROXIES" "value" (join "," $v.edge.trustedProxies)) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CLIENT_ADDRESS_HEADER" "value" $v.edge.clientAddressHeader) }}
{{- if eq .role "api" }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_NPM_REGISTRY" "value" $v.npm.registry) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_NPM_CACHE_DIR" "value" "/var/cache/edge-workers/npm") }}
{{- end }}
{{- end -}}

{{- define "edge-workers.controlPlaneEnv" -}}
{{- $v := .root.Values }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_METRICS_ADDR" "value" ":9090") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_LOG_LEVEL" "value" $v.logLevel) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_DATABASE_URL" "secret" "databaseUrl") }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_REDIS_URL" "secret" "redisUrl") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE" "value" "/etc/edge-workers/control/signing-key.pem") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY" "value" $v.control.nextPublicKey) }}
{{- include "edge-workers.providerEnv" . }}
{{- if ne .role "gateway" }}{{/* a gateway reads and writes no artifacts */}}
{{- include "edge-workers.artifactsEnv" . }}
{{- end }}
{{- include "edge-workers.transportEnv" . }}
{{- if has .role (list "api" "gateway") }}
{{- include "edge-workers.apiEnv" . }}
{{- end }}
{{- include "edge-workers.variable" (dict "name" "HTTPS_PROXY" "value" $v.proxy.https) }}
{{- include "edge-workers.variable" (dict "name" "HTTP_PROXY" "value" $v.proxy.http) }}
{{- include "edge-workers.variable" (dict "name" "NO_PROXY" "value" $v.proxy.none) }}
{{- end -}}

{{- define "edge-workers.edgehostEnv" -}}
{{- $v := .root.Values }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_DATA_DIR" "value" "/var/lib/edge-host") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_API_ADDR" "value" ":8787") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_DISPATCH_ADDR" "value" ":8788") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_METRICS_ADDR" "value" ":9090") }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_ISOLATION" "value" $v.edgehost.isolation) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_HOST_EGRESS_ALLOW" "value" (join "," $v.edgehost.egressAllow)) }}
{{- include "edge-workers.variable" (dict "name" "EDGE_WORKERS_LOG_LEVEL" "value" $v.logLevel) }}
{{- include "edge-workers.secretVariable" (dict "root" .root "name" "EDGE_WORKERS_HOST_API_TOKEN" "secret" "edgeHostApiToken") }}
{{- end -}}

{{- define "edge-workers.env" -}}
{{- if eq .role "edgehost" }}
{{- include "edge-workers.edgehostEnv" . }}
{{- else }}
{{- include "edge-workers.controlPlaneEnv" . }}
{{- end }}
{{- end -}}
