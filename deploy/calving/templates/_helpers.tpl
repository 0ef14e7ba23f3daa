{{/* What selects the pods of all sinks. */}}
{{- define "calving.selector" -}}
app.kubernetes.io/name: calving
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "calving.labels" -}}
{{ include "calving.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "calving.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* The file of a sink: its keys, and those of the status server, which fit the pod. */}}
{{- define "calving.sink" -}}
{{- $http := dict "iceberg.http.port" 8083 "iceberg.http.host" "0.0.0.0" -}}
{{- $_ := set $http "iceberg.http.advertised-url" "http://${env:POD_IP}:8083/" -}}
{{- $_ := set $http "iceberg.http.token" "${env:CALVING_TOKEN}" -}}
{{- $own := dict "name" .name "spark.master" .sink.master -}}
{{- merge $http (deepCopy .sink.config) $own | toPrettyJson -}}
{{- end }}
