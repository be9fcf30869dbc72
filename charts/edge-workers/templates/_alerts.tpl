{{/*
The alerts. Each has a section of its name in docs/operations.md. A counter
begins with its first event, which is no increase of anything; "unless … offset"
finds that one.
*/}}
{{- define "edge-workers.alerts" -}}
{{- $in := printf "namespace=%q,service=%q" .Release.Namespace (printf "%s-metrics" (include "edge-workers.fullname" .)) -}}
{{- $roles := include "edge-workers.roles" . | fromYamlArray -}}
- alert: EdgeWorkersDown
  expr: up{ {{- $in -}} } == 0
  for: 5m
  severity: critical
  summary: {{ "{{ $labels.pod }} does not answer on its metrics port" | quote }}
- alert: EdgeWorkersDeploymentUncertain
  {{- $series := printf "edge_workers_deployments_total{%s,verdict=\"uncertain\"}" $in }}
  expr: increase({{ $series }}[15m]) > 0 or ({{ $series }} unless {{ $series }} offset 15m) > 0
  severity: critical
  summary: {{ "a deployment ended uncertain ({{ $labels.code }}): its Worker is paused until a company admin repairs it" | quote }}
- alert: EdgeWorkersDeploymentBroken
  {{- $series = printf "edge_workers_deployments_total{%s,code=~\"deployment_internal_error|artifact_integrity_failed|artifact_storage_unavailable\"}" $in }}
  expr: increase({{ $series }}[15m]) > 0 or ({{ $series }} unless {{ $series }} offset 15m) > 0
  severity: warning
  summary: {{ "deployments fail for our own reasons: {{ $labels.code }}" | quote }}
- alert: EdgeWorkersRecoveryStalled
  expr: time() - max by (lane) (edge_workers_recovery_last_success_timestamp_seconds{ {{- $in -}} }) > 600
  for: 5m
  severity: critical
  summary: {{ "the lane {{ $labels.lane }} of the recovery sweep has not ended well for ten minutes" | quote }}
- alert: EdgeWorkersRecoveryAbsent
  expr: absent(edge_workers_recovery_last_success_timestamp_seconds{ {{- $in -}} })
  for: 15m
  severity: critical
  summary: no process runs the recovery sweep
- alert: EdgeWorkersControlOutcomeUnknown
  expr: sum by (operation) (increase(edge_workers_control_changes_total{ {{- $in }},outcome="unknown"}[30m])) > 2
  severity: warning
  summary: {{ "answers to {{ $labels.operation }} are lost on the way from Workers" | quote }}
{{- if ne .Values.transport.type "legacy" }}
- alert: EdgeWorkersMessagesLost
  expr: sum(increase(edge_workers_recovery_rows_total{ {{- $in }},lane="deployments",result="published"}[30m])) > 5
  severity: warning
  summary: deployments are published again by the sweep
{{- end }}
{{- if has "deployer" $roles }}
- alert: EdgeWorkersMessagesMalformed
  expr: increase(edge_workers_messages_total{ {{- $in }},result="malformed"}[1h]) > 0
  severity: warning
  summary: somebody else writes to the deployments' queue
{{- end }}
{{- if has "edgehost" $roles }}
- alert: EdgeHostWorkerStartsFail
  expr: increase(edge_host_worker_starts_total{ {{- $in }},result="failed"}[15m]) > 3
  severity: warning
  summary: Workers do not start on the edge host
- alert: EdgeHostWorkersKilled
  expr: sum by (reason) (increase(edge_host_worker_ends_total{ {{- $in }},reason=~"crash|unresponsive|memory"}[15m])) > 10
  severity: warning
  summary: {{ "Worker processes end again and again: {{ $labels.reason }}" | quote }}
- alert: EdgeHostErrors
  expr: sum by (door) (rate(edge_host_requests_total{ {{- $in }},class="5xx"}[10m])) / sum by (door) (rate(edge_host_requests_total{ {{- $in -}} }[10m])) > 0.1
  for: 10m
  severity: warning
  summary: {{ "more than a tenth of the answers of door {{ $labels.door }} are 5xx" | quote }}
- alert: EdgeHostBackupFence
  expr: max(edge_host_backup_fence{ {{- $in -}} }) > 0
  for: 2h
  severity: warning
  summary: a backup fence has been up for two hours, and no deployment gets through
{{- end }}
{{- end -}}
