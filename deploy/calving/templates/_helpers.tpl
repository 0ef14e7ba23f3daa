{{/* What selects the pods of all sinks. */}}
{{- define "calving.selector" -}}
app.kubernetes.io/name: calving
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "calving.labels" -}}
{{ include "calving.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- end }}

{{- define "calving.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) | quote }}
{{- end }}

{{/* The file of a sink: its keys, and those of the status server, which fit the pod. The sink's own spark.master counts,
     flat or nested. */}}
{{- define "calving.sink" -}}
{{- $http := dict "iceberg.http.port" 8083 "iceberg.http.host" "0.0.0.0" -}}
{{- $_ := set $http "iceberg.http.advertised-url" "http://${env:POD_IP}:8083/" -}}
{{- $_ := set $http "iceberg.http.token" "${env:CALVING_TOKEN}" -}}
{{- $own := dict "name" .name -}}
{{- $spark := get .sink.config "spark" -}}
{{- if not (and (kindIs "map" $spark) (hasKey $spark "master")) -}}
{{- $_ := set $own "spark.master" .sink.master -}}
{{- end -}}
{{- merge $http (deepCopy .sink.config) $own | toPrettyJson -}}
{{- end }}
