{{/*
`helm upgrade --reuse-values` brings the values that an older chart has stored, without those that came
later, and `null` takes a value away. Each template begins by adding what is missing, so that none asks
whether a value is there. Not here are the security contexts and the resources, which every chart had:
without them there are none.
*/}}
{{- define "balancedstream.defaults" -}}
image: {registry: "", repository: balancedstream-operator, tag: "", digest: "", pullPolicy: IfNotPresent}
imagePullSecrets: []
replicas: 1
nameOverride: ""
fullnameOverride: ""
commonLabels: {}
commonAnnotations: {}
crds: {install: true}
watch: {namespaces: []}
prometheus:
  url: ""
  labels: {}
  credentialsSecret: ""
  allowedUrls: []
  serviceAccountToken: {enabled: false, audience: ""}
  sigv4: {region: ""}
  streamSecrets: false
  streamQueries: false
streams:
  forbidEscalation: false
  allowedServiceAccounts: []
  maxExecutors: 0
  maxCores: 0
  maxMemory: ""
cost: {executorHour: 0, currency: ""}
serviceAccount: {create: true, name: "", annotations: {}}
rbac: {create: true, aggregate: true}
deploymentAnnotations: {}
podAnnotations: {}
podLabels: {}
priorityClassName: ""
runtimeClassName: ""
nodeSelector: {}
tolerations: []
affinity: {}
topologySpreadConstraints: []
dnsPolicy: ClusterFirst
dnsConfig: {}
hostAliases: []
podDisruptionBudget: {minAvailable: 1}
logLevel: INFO
logFormat: text
extraArgs: []
extraVolumes: []
extraVolumeMounts: []
extraEnv: []
extraObjects: []
networkPolicy:
  enabled: true
  from: []
  apiServer: {ports: [443, 6443], to: []}
  prometheus: {ports: [9090], to: []}
  dns: {ports: [53], to: []}
  streams: {namespaces: [], metricsFrom: [], uiFrom: []}
monitoring:
  scrapeAnnotations: true
  podMonitor:
    enabled: false
    interval: 15s
    namespaces: []
    relabelings: []
    metricRelabelings: []
    labels: {}
  rules: {enabled: false, labels: {}}
  dashboard: {enabled: false, labels: {grafana_dashboard: "1"}, annotations: {}}
{{- end }}

{{- define "balancedstream.addDefaults" -}}
{{- $defaults := include "balancedstream.defaults" . | fromYaml }}
{{- include "balancedstream.addMissing" (dict "values" .Values "defaults" $defaults) }}
{{- end }}

{{/* Sections are added to; a map of the user's, such as labels, is taken as it is. */}}
{{- define "balancedstream.addMissing" -}}
{{- $values := .values }}
{{- range $name, $default := .defaults }}
{{- if kindIs "invalid" (index $values $name) }}
{{- $_ := set $values $name $default }}
{{- else if and (kindIs "map" $default) (ne $name "labels") }}
{{- include "balancedstream.addMissing" (dict "values" (index $values $name) "defaults" $default) }}
{{- end }}
{{- end }}
{{- end }}
