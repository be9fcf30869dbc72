{{/*
Names and labels. A role's helpers take (dict "root" $ "role" "api").
*/}}
{{- define "edge-workers.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "edge-workers.fullname" -}}
{{- $name := include "edge-workers.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "edge-workers.roleName" -}}
{{- printf "%s-%s" (include "edge-workers.fullname" .root) .role -}}
{{- end -}}

{{- define "edge-workers.releaseSelector" -}}
app.kubernetes.io/name: {{ include "edge-workers.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "edge-workers.selector" -}}
{{ include "edge-workers.releaseSelector" .root }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "edge-workers.commonLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/part-of: edge-workers
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "edge-workers.labels" -}}
{{ include "edge-workers.selector" . }}
{{ include "edge-workers.commonLabels" .root }}
{{- end -}}

{{- define "edge-workers.serviceAccount" -}}
{{- $account := (index .root.Values .role).serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (include "edge-workers.roleName" .) -}}
{{- else -}}
{{- $account.name | default "default" -}}
{{- end -}}
{{- end -}}

{{/* The image of a role; the gateway is an api. */}}
{{- define "edge-workers.image" -}}
{{- $program := ternary "api" .role (eq .role "gateway") -}}
{{- printf "%s/%s:%s" (trimSuffix "/" .root.Values.image.registry) $program (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}

{{/*
The roles of this release, as a YAML list. Only a broker has deployers and
reconcilers; with batch the deployers are no pods.
*/}}
{{- define "edge-workers.roles" -}}
- api
{{- if .Values.gateway.enabled }}
- gateway
{{- end }}
{{- if has .Values.transport.type (list "pubsub" "sqs") }}
- deployer
{{- end }}
{{- if ne .Values.transport.type "legacy" }}
- reconciler
{{- end }}
{{- if and (eq .Values.provider "onprem") .Values.edgehost.enabled }}
- edgehost
{{- end }}
{{- end -}}
