{{/*
The parts of a pod that all roles share. The user is the one of the images.
*/}}
{{- define "edge-workers.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "edge-workers.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/*
An edge host that gives each Worker a uid and a network namespace of its own is
root, with what this takes: a namespace (SYS_ADMIN), other uids (SETUID, SETGID)
and their folders (CHOWN, DAC_OVERRIDE), no core dumps (SYS_RESOURCE), and to end
their processes (KILL).
*/}}
{{- define "edge-workers.isolatingPodSecurity" -}}
runAsUser: 0
runAsGroup: 0
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "edge-workers.isolatingContainerSecurity" -}}
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [CHOWN, DAC_OVERRIDE, KILL, SETGID, SETUID, SYS_ADMIN, SYS_RESOURCE]
{{- end -}}

{{- define "edge-workers.isolating" -}}
{{- if and (eq .role "edgehost") (eq .root.Values.edgehost.isolation "on") -}}true{{- end -}}
{{- end -}}

{{- define "edge-workers.probes" -}}
# The process opens its ports when the database has its tables, or when an edge
# host has swept its folder.
startupProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 2
  failureThreshold: 150
  timeoutSeconds: 5
livenessProbe:
  httpGet: { path: /healthz, port: metrics }
  periodSeconds: 10
  failureThreshold: 6
  timeoutSeconds: 5
readinessProbe:
  httpGet: { path: /readyz, port: metrics }
  periodSeconds: 5
  failureThreshold: 3
  timeoutSeconds: 10
{{- end -}}

{{- define "edge-workers.ports" -}}
{{- if has .role (list "api" "gateway") }}
- { name: http, containerPort: 8080 }
{{- else if eq .role "edgehost" }}
- { name: script-api, containerPort: 8787 }
- { name: dispatch, containerPort: 8788 }
{{- end }}
- { name: metrics, containerPort: 9090 }
{{- end -}}

{{- define "edge-workers.volumeMounts" -}}
- { name: tmp, mountPath: /tmp }
{{- if eq .role "edgehost" }}
- { name: data, mountPath: /var/lib/edge-host }
{{- else }}
- { name: control-key, mountPath: /etc/edge-workers/control, readOnly: true }
{{- end }}
{{- if eq .role "api" }}
- { name: npm-cache, mountPath: /var/cache/edge-workers }
{{- end }}
{{- end -}}

{{/*
The key belongs to root and is readable by the process's group alone: Kubernetes
gives a Secret's file no other owner.
*/}}
{{- define "edge-workers.volumes" -}}
- name: tmp
  emptyDir: { sizeLimit: 1Gi }
{{- if ne .role "edgehost" }}
{{- $key := .root.Values.secrets.controlSigningKey }}
- name: control-key
  secret:
    secretName: {{ $key.existingSecret | default .root.Values.secrets.existingSecret }}
    defaultMode: 0440
    items:
      - { key: {{ $key.key | quote }}, path: signing-key.pem }
{{- end }}
{{- if eq .role "api" }}
- name: npm-cache
  emptyDir: { sizeLimit: {{ .root.Values.npm.cacheSize }} }
{{- end }}
{{- end -}}

{{- define "edge-workers.topologySpread" -}}
{{- $own := (index .root.Values .role).topologySpreadConstraints -}}
{{- if $own }}
{{- toYaml $own }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "edge-workers.selector" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The pod template of a role. */}}
{{- define "edge-workers.podTemplate" -}}
{{- $values := index .root.Values .role }}
metadata:
  labels:
    {{- include "edge-workers.labels" . | nindent 4 }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .role }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "edge-workers.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- include (ternary "edge-workers.isolatingPodSecurity" "edge-workers.podSecurity" (eq (include "edge-workers.isolating" .) "true")) . | nindent 4 }}
  containers:
    - name: {{ .role }}
      image: {{ include "edge-workers.image" . | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      securityContext:
        {{- include (ternary "edge-workers.isolatingContainerSecurity" "edge-workers.containerSecurity" (eq (include "edge-workers.isolating" .) "true")) . | nindent 8 }}
      env:
        {{- include "edge-workers.env" . | trim | nindent 8 }}
      ports:
        {{- include "edge-workers.ports" . | trim | nindent 8 }}
      {{- include "edge-workers.probes" . | nindent 6 }}
      {{- if has .role (list "api" "gateway") }}
      lifecycle:
        preStop:
          sleep: { seconds: 5 } # until the Service sends nothing more
      {{- end }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "edge-workers.volumeMounts" . | trim | nindent 8 }}
  volumes:
    {{- include "edge-workers.volumes" . | trim | nindent 4 }}
  topologySpreadConstraints:
    {{- include "edge-workers.topologySpread" . | trim | nindent 4 }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
