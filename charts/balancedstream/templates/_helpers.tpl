{{- define "balancedstream.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "balancedstream.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "balancedstream.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "balancedstream.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "balancedstream.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: set the name of an existing account, or set serviceAccount.create" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "balancedstream.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "balancedstream.selectorLabels" -}}
app.kubernetes.io/name: {{ include "balancedstream.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "balancedstream.labels" -}}
{{ include "balancedstream.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
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
