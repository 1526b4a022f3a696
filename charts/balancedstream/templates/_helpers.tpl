{{/* The alias of a dependency is its name, and may be none of Kubernetes. */}}
{{- define "balancedstream.name" -}}
{{- $name := default .Chart.Name .Values.nameOverride | lower | replace "_" "-" }}
{{- $name | trimAll "-" | trunc 63 | trimAll "-" }}
{{- end }}

{{- define "balancedstream.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else }}
{{- $name := include "balancedstream.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimAll "-." }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimAll "-." }}
{{- end }}
{{- end }}
{{- end }}

{{/* Of what belongs to the whole cluster. No name of ours has a colon, and names of RBAC may. */}}
{{- define "balancedstream.clusterName" -}}
{{- printf "%s:%s" (include "balancedstream.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "balancedstream.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "balancedstream.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: set the name of an existing account, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "balancedstream.image" -}}
{{- $image := .Values.image }}
{{- $repository := list $image.registry $image.repository | compact | join "/" }}
{{- if $image.digest }}
{{- printf "%s@%s" $repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion $image.tag) }}
{{- end }}
{{- end }}

{{- define "balancedstream.selectorLabels" -}}
app.kubernetes.io/name: {{ include "balancedstream.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end }}

{{/* `kubectl bst doctor` finds the operator by its chart, also under an alias. */}}
{{- define "balancedstream.labels" -}}
{{ include "balancedstream.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "balancedstream-%s" .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/*
Labels of an object, as YAML: the chart's own with those of the user, which must be others, because
selectors, Helm and the doctor know objects by them.

Arguments: `root`; optionally `given`, what a setting gives by the setting's name, and `own`, more
labels of the chart.
*/}}
{{- define "balancedstream.allLabels" -}}
{{- $own := include "balancedstream.labels" .root | fromYaml | merge (dict) (default dict .own) }}
{{- $all := deepCopy $own }}
{{- range $given := list (dict "commonLabels" .root.Values.commonLabels) (default dict .given) }}
{{- range $setting, $labels := $given }}
{{- range $key, $value := $labels }}
{{- if hasKey $own $key }}
{{- fail (printf "%s: the chart sets the label %s itself; leave it out" $setting $key) }}
{{- end }}
{{- $_ := set $all $key $value }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/* Annotations, as YAML, of a list of maps; what comes later wins, and the user's come last. */}}
{{- define "balancedstream.annotations" -}}
{{- $all := dict }}
{{- range . }}
{{- range $key, $value := . }}
{{- $_ := set $all $key $value }}
{{- end }}
{{- end }}
{{- toYaml $all }}
{{- end }}

{{/*
Metadata of an object, as YAML.

Arguments: `root` and `name`; optionally `namespace`, `given` and `own` as above, and `annotations`.
*/}}
{{- define "balancedstream.metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "balancedstream.allLabels" . | nindent 2 }}
{{- with include "balancedstream.annotations" (list .root.Values.commonAnnotations .annotations) | fromYaml }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Permissions in each watched namespace; in a Role or in the ClusterRole. */}}
{{- define "balancedstream.rules" -}}
- apiGroups: [balancedstream.io]
  resources: [balancedstreams]
  verbs: [get, list, watch, patch]
- apiGroups: [balancedstream.io]
  resources: [balancedstreams/status]
  verbs: [get, patch]
# OwnerReferencesPermissionEnforcement: only those who may change an owner's finalizers may set
# blockOwnerDeletion.
- apiGroups: [balancedstream.io]
  resources: [balancedstreams/finalizers]
  verbs: [update]
# The objects of a stream. Kubernetes deletes them with their owner; the operator does not.
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, update]
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: [get, list, watch, create, patch, update]
# The secret of a stream's Spark. It is not read, and not written again.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, update]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, update]
# The operator reads pods, deletes drivers of an old revision, and asks in a dry run why pods are
# refused. It makes no pod: these verbs are for the drivers' Roles, too, and Kubernetes lets no account
# grant permissions that it does not have.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
# For the Roles of drivers whose executors have claims of their own.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create]
# Jobs that write a stream's state anew, for another number of state partitions. One of an earlier
# change is deleted before the next.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, create, patch, delete]
# Whether the driver of an application that another operator runs needs a Role (spec.targetRef).
- apiGroups: [authorization.k8s.io]
  resources: [localsubjectaccessreviews]
  verbs: [create]
{{- if .Values.prometheus.streamSecrets }}
# To authenticate to Prometheus as a stream, with the Secret that it names.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
