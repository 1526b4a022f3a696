{{/* Settings that must agree, and names that this chart takes itself: each is refused by its name. */}}
{{- define "balancedstream.checkAgreement" -}}
{{- $values := .Values }}
{{- range $setting, $namespaces := dict
  "networkPolicy.streams.namespaces" $values.networkPolicy.streams.namespaces
  "monitoring.podMonitor.namespaces" $values.monitoring.podMonitor.namespaces }}
{{- range $namespaces }}
{{- if and $values.watch.namespaces (not (has . $values.watch.namespaces)) }}
{{- fail (printf "%s: the operator does not watch %s; add it to watch.namespaces, or leave it out" $setting .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $most := sub $values.replicas 1 | int }}
{{- if and $most (gt (int $values.podDisruptionBudget.minAvailable) $most) }}
{{- fail (printf "podDisruptionBudget.minAvailable: at most %d of %d replicas, or no node can be drained" $most (int $values.replicas)) }}
{{- end }}
{{- if and $values.serviceAccount.annotations (not $values.serviceAccount.create) }}
{{- fail "serviceAccount.annotations: the chart annotates only an account that it creates; annotate that one yourself" }}
{{- end }}
{{- if and $values.prometheus.sigv4.region $values.prometheus.serviceAccountToken.enabled }}
{{- fail "prometheus.sigv4.region: a request is signed or has a token; leave prometheus.serviceAccountToken off" }}
{{- end }}

{{- $setBy := dict
  "--all-namespaces" "watch.namespaces"
  "--namespace" "watch.namespaces"
  "--lease" "fullnameOverride"
  "--prometheus-url" "prometheus.url"
  "--prometheus-credentials" "prometheus.credentialsSecret"
  "--prometheus-token-file" "prometheus.serviceAccountToken"
  "--prometheus-sigv4-region" "prometheus.sigv4.region"
  "--max-executors" "streams.maxExecutors"
  "--max-cores" "streams.maxCores"
  "--max-memory" "streams.maxMemory"
  "--cost-executor-hour" "cost.executorHour"
  "--cost-currency" "cost.currency" }}
{{- range $values.extraArgs }}
{{- $option := splitList "=" . | first }}
{{- if hasKey $setBy $option }}
{{- fail (printf "extraArgs: %s is what %s sets; set that" $option (get $setBy $option)) }}
{{- end }}
{{- end }}

{{- $taken := dict
  "POD_NAME" "the chart sets it itself"
  "POD_NAMESPACE" "the chart sets it itself"
  "LOG_LEVEL" "set logLevel"
  "LOG_FORMAT" "set logFormat" }}
{{- range $values.extraEnv }}
{{- if hasKey $taken .name }}
{{- fail (printf "extraEnv: %s: %s" .name (get $taken .name)) }}
{{- end }}
{{- $_ := set $taken .name "it is there twice" }}
{{- end }}

{{- $taken = dict }}
{{- range list "tmp" "prometheus-credentials" "prometheus-token" }}
{{- $_ := set $taken . "the chart has a volume of this name" }}
{{- end }}
{{- range $values.extraVolumes }}
{{- if hasKey $taken .name }}
{{- fail (printf "extraVolumes: %s: %s; name it otherwise" .name (get $taken .name)) }}
{{- end }}
{{- $_ := set $taken .name "it is there twice" }}
{{- end }}

{{- $taken = dict }}
{{- range list "/tmp" "/etc/prometheus-credentials" "/var/run/secrets/balancedstream.io/prometheus" }}
{{- $_ := set $taken . "the chart mounts a volume there" }}
{{- end }}
{{- range $values.extraVolumeMounts }}
{{- $path := clean .mountPath }}
{{- if hasKey $taken $path }}
{{- fail (printf "extraVolumeMounts: %s: %s; mount it elsewhere" $path (get $taken $path)) }}
{{- end }}
{{- $_ := set $taken $path "it is there twice" }}
{{- end }}
{{- end }}
