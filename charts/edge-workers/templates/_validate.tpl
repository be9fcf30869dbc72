{{/*
What a JSON Schema says badly: values that depend on others. All faults at once,
each with the value's name and the way out.
*/}}
{{- define "edge-workers.validate" -}}
{{- $faults := list -}}
{{- $v := .Values -}}
{{- range $path, $value := dict "image.registry" $v.image.registry "auth.jwksUrl" $v.auth.jwksUrl "auth.issuer" $v.auth.issuer "auth.audience" $v.auth.audience -}}
{{- if not $value -}}{{- $faults = append $faults (printf "%s is needed" $path) -}}{{- end -}}
{{- end -}}
{{- $faults = concat $faults (include "edge-workers.providerFaults" . | fromYamlArray) -}}
{{- $faults = concat $faults (include "edge-workers.transportFaults" . | fromYamlArray) -}}
{{- $faults = concat $faults (include "edge-workers.roleFaults" . | fromYamlArray) -}}
{{- if $faults -}}
{{- fail (printf "\n\nThe values of edge-workers are not usable:\n- %s\n" (join "\n- " $faults)) -}}
{{- end -}}
{{- end -}}

{{- define "edge-workers.needed" -}}
{{- range $name, $value := .values }}
{{- if not $value }}
- {{ printf "%s.%s is needed with %s" $.path $name $.why | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "edge-workers.providerFaults" -}}
{{- $v := .Values }}
{{- if eq $v.provider "cloudflare" }}
{{- include "edge-workers.needed" (dict "path" "cloudflare" "why" "provider=cloudflare" "values" (pick $v.cloudflare "accountId" "dispatchNamespace" "gatewayUrl" "r2Bucket")) }}
{{- if has $v.cloudflare.dispatchNamespace $v.cloudflare.sharedNamespaces }}
- "cloudflare.sharedNamespaces has the environment's own dispatchNamespace: leave it out"
{{- end }}
{{- else }}
{{- include "edge-workers.needed" (dict "path" "onprem" "why" "provider=onprem" "values" (pick $v.onprem "identity" "artifactsBucket")) }}
{{- if not $v.edgehost.enabled }}
{{- include "edge-workers.needed" (dict "path" "onprem" "why" "edgehost.enabled=false: the edge host is elsewhere" "values" (pick $v.onprem "scriptApiUrl" "dispatchUrl")) }}
{{- else }}
{{- if or $v.onprem.scriptApiUrl $v.onprem.dispatchUrl }}
- "onprem.scriptApiUrl and onprem.dispatchUrl are for an edge host elsewhere: set edgehost.enabled=false, or leave them empty"
{{- end }}
{{- if not $v.edgehost.isolation }}
- "edgehost.isolation is needed, on or off: with on the container is root with capabilities, with off workerd's own sandbox is the only wall between departments"
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "edge-workers.transportFaults" -}}
{{- $t := .Values.transport }}
{{- $why := printf "transport.type=%s" $t.type }}
{{- if eq $t.type "pubsub" }}
{{- include "edge-workers.needed" (dict "path" "transport.pubsub" "why" $why "values" (pick $t.pubsub "project" "topic" "subscription")) }}
{{- else if eq $t.type "sqs" }}
{{- include "edge-workers.needed" (dict "path" "transport.sqs" "why" $why "values" (pick $t.sqs "queueUrl")) }}
{{- else if eq $t.type "batch" }}
{{- include "edge-workers.needed" (dict "path" "transport.batch" "why" $why "values" (pick $t.batch "jobQueue" "jobDefinition")) }}
{{- if and (eq .Values.provider "onprem") .Values.edgehost.enabled }}
- "transport.type=batch with provider=onprem: jobs of AWS Batch cannot reach this release's edge host; use sqs, or an edge host elsewhere"
{{- end }}
{{- end }}
{{- if has $t.type (list "sqs" "batch") }}
{{- include "edge-workers.needed" (dict "path" "transport.aws" "why" $why "values" (pick $t.aws "region")) }}
{{- end }}
{{- range $type, $values := dict "pubsub" (dict "project" $t.pubsub.project "topic" $t.pubsub.topic "subscription" $t.pubsub.subscription "endpoint" $t.pubsub.endpoint) "sqs" (dict "queueUrl" $t.sqs.queueUrl) "batch" (dict "jobQueue" $t.batch.jobQueue "jobDefinition" $t.batch.jobDefinition) }}
{{- if ne $type $t.type }}
{{- range $name, $value := $values }}
{{- if $value }}
- {{ printf "transport.%s.%s is set, but transport.type is %s: leave it empty, or choose %s" $type $name $t.type $type | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "edge-workers.roleFaults" -}}
{{- $v := .Values }}
{{- $pods := has $v.transport.type (list "pubsub" "sqs") }}
{{- if and $v.deployer.autoscaling.enabled (not $pods) }}
- {{ printf "deployer.autoscaling.enabled with transport.type=%s: there are no deployers in the cluster to scale" $v.transport.type | quote }}
{{- end }}
{{- if and $pods (le (int $v.deployer.terminationGracePeriodSeconds) (int $v.transport.drainTimeoutSeconds)) }}
- {{ printf "deployer.terminationGracePeriodSeconds (%d) must exceed transport.drainTimeoutSeconds (%d): the deployment in flight would be killed" (int $v.deployer.terminationGracePeriodSeconds) (int $v.transport.drainTimeoutSeconds) | quote }}
{{- end }}
{{- range $role := list "api" "gateway" "deployer" }}
{{- $scaling := (index $v $role).autoscaling }}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) }}
- {{ printf "%s.autoscaling.minReplicas exceeds maxReplicas" $role | quote }}
{{- end }}
{{- end }}
{{- if ne (empty $v.edge.trustedProxies) (empty $v.edge.clientAddressHeader) }}
- "edge.trustedProxies and edge.clientAddressHeader are needed both, or neither"
{{- end }}
{{- if and $v.ingress.enabled (not $v.ingress.host) }}
- "ingress.host is needed with ingress.enabled=true"
{{- end }}
{{- if and $v.monitoring.rules.enabled (not $v.monitoring.serviceMonitor.enabled) }}
- "monitoring.rules.enabled without monitoring.serviceMonitor.enabled: the rules look at what that one collects"
{{- end }}
{{- end -}}
