{{- define "harvest.fullname" -}}
{{- if contains "harvest" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-harvest" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "harvest.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "harvest.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "harvest.fullname" .) }}
{{- end }}

{{/* Labels that select; never changed, because a selector cannot be. */}}
{{- define "harvest.selector" -}}
app.kubernetes.io/name: harvest
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "harvest.labels" -}}
{{ include "harvest.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The five services: key in the values -> name of binary and workload. */}}
{{- define "harvest.services" -}}
frontend: frontend
history: history
matching: matching
timerScanner: timer-scanner
config: config
{{- end }}

{{- define "harvest.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "harvest.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- define "harvest.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "harvest.databaseEnv" -}}
- name: HARVEST_DATABASE_URL
  valueFrom:
    secretKeyRef: { name: {{ .Values.database.existingSecret | quote }}, key: {{ .Values.database.key | quote }} }
{{- end }}
