{{/* One rule: a port, and peers unless everyone is one. */}}
{{- define "edge-workers.egressRule" -}}
- ports: [{ protocol: TCP, port: {{ .port }} }]
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "edge-workers.controlPlaneEgress" -}}
{{- $v := .root.Values -}}
{{- $policy := $v.networkPolicy -}}
{{- include "edge-workers.egressRule" $policy.database }}
{{ include "edge-workers.egressRule" $policy.redis }}
{{ include "edge-workers.egressRule" (dict "port" 443 "to" $policy.https.to) }}
{{- if eq $v.provider "onprem" }}
{{ include "edge-workers.egressRule" (dict "port" 9000 "to" $policy.artifacts.to) }}
{{- if $v.edgehost.enabled }}
- to:
    - podSelector:
        matchLabels:
          {{- include "edge-workers.selector" (dict "root" .root "role" "edgehost") | nindent 10 }}
  ports:
    - { protocol: TCP, port: script-api }
    - { protocol: TCP, port: dispatch }
{{- end }}
{{- end }}
{{- if eq $v.transport.type "pubsub" }}
# Workload identity: Google's metadata service, and its stand-in on each node.
- to: [{ ipBlock: { cidr: 169.254.169.254/32 } }, { ipBlock: { cidr: 169.254.169.252/32 } }]
  ports: [{ protocol: TCP, port: 80 }, { protocol: TCP, port: 988 }]
{{- else if has $v.transport.type (list "sqs" "batch") }}
# EKS Pod Identity; IRSA needs port 443 only.
- to: [{ ipBlock: { cidr: 169.254.170.23/32 } }]
  ports: [{ protocol: TCP, port: 80 }]
{{- end }}
{{- with $policy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The edge host refuses private addresses by itself, after resolving a name; this
is the second wall.
*/}}
{{- define "edge-workers.workersEgress" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/4, 240.0.0.0/4]
    - ipBlock:
        cidr: "::/0"
        except: ["::/96", "64:ff9b::/96", "fc00::/7", "fe80::/10", "ff00::/8"]
    {{- range .root.Values.edgehost.egressAllow }}
    - ipBlock: { cidr: {{ . | quote }} }
    {{- end }}
  ports: [{ protocol: TCP, port: 80 }, { protocol: TCP, port: 443 }]
{{- end -}}
