{{/* Labels of every object. */}}
{{- define "croft.labels" -}}
app.kubernetes.io/part-of: croft
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels of an object of one of the processes, by the context (root, name). */}}
{{- define "croft.processLabels" -}}
app.kubernetes.io/name: {{ .name }}
{{ include "croft.labels" .root }}
{{- end }}

{{/* The image of one of the processes, by the context (root, values). */}}
{{- define "croft.image" -}}
{{- $image := .values.image }}
{{- with .root.Values.imageRegistry }}{{ . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* A value as the text of an environment variable: a list is separated by commas, a number has no exponent. */}}
{{- define "croft.text" -}}
{{- if kindIs "slice" . }}{{ join "," . }}{{ else if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The environment of one of the processes, by the context (values, variables): who it is, its settings, and further variables. */}}
{{- define "croft.environment" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
{{- range $setting, $value := .values.settings }}
{{- if not (or (kindIs "invalid" $value) (and (kindIs "slice" $value) (empty $value))) }}
- name: {{ required (printf "there is no setting %s: see docs/reference/chart.md for those there are" $setting) (get $.variables $setting) }}
  value: {{ include "croft.text" $value | quote }}
{{- end }}
{{- end }}
{{- with .values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where the pods of one of the processes run, by the context (values, name). */}}
{{- define "croft.placement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $name := .name }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
{{- $constraint := . }}
{{- if not (hasKey . "labelSelector") }}
{{- $constraint = merge (dict "labelSelector" (dict "matchLabels" (dict "app.kubernetes.io/name" $name)) "matchLabelKeys" (list "pod-template-hash")) . }}
{{- end }}
- {{ toYaml $constraint | indent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* How pods are replaced: on the node's network a new one needs the ports of an old one, maybe on the same node. */}}
{{- define "croft.rollingUpdate" -}}
{{- if .hostNetwork }}{maxSurge: 0, maxUnavailable: 1}{{ else }}{maxSurge: 1, maxUnavailable: 0}{{ end }}
{{- end }}

{{/* Pod fields that depend on the network, by the context (root, values). */}}
{{- define "croft.network" -}}
{{- if .values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with .values.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The rule of a NetworkPolicy for the health port, whose metrics have each tenant's cost: the scrapers. Traffic of a pod's own node,
and so a kubelet's probes, passes in any case. */}}
{{- define "croft.scrapes" -}}
{{- with .Values.scrapers }}
- from:
  {{- toYaml . | nindent 2 }}
  ports: [{port: health, protocol: TCP}]
{{- end }}
{{- end }}

{{/* The Secret with the files of the webhook's certificate is mounted here. */}}
{{- define "croft.certificateFolder" -}}/etc/croft/certificate{{- end }}

{{/* What the values, each of which is valid, may not say together. */}}
{{- define "croft.validate" -}}
{{- $webhook := .Values.webhook }}
{{- $controller := .Values.controller }}
{{- if eq (int $webhook.ports.reviews) (int $webhook.ports.health) }}
{{- fail (printf "webhook.ports.reviews and webhook.ports.health are both %d: choose two ports" (int $webhook.ports.health)) }}
{{- end }}
{{- range $name, $values := dict "webhook" $webhook "controller" $controller "page" .Values.page }}
{{- $others := list (int $values.ports.health) }}
{{- with $values.ports.reviews }}{{ $others = append $others (int .) }}{{ end }}
{{- with $values.ports.page }}{{ $others = append $others (int .) }}{{ end }}
{{- with $values.ports.forward }}{{ $others = append $others (int .) }}{{ end }}
{{- if and (not $values.hostNetwork) (has (int $values.ports.admin) $others) }}
{{- fail (printf "%s.ports.admin is %d, as another port of the process: choose another one" $name (int $values.ports.admin)) }}
{{- end }}
{{- end }}
{{- if and $webhook.hostNetwork $controller.hostNetwork }}
{{- if has (int $controller.ports.health) (list (int $webhook.ports.health) (int $webhook.ports.reviews)) }}
{{- fail (printf "webhook and controller both use port %d of the node's network: set controller.ports.health to another port, such as 8082" (int $controller.ports.health)) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.page.certificate.mode "cert-manager") (not .Values.page.certificate.issuerRef.name) }}
{{- fail "page.certificate.mode is cert-manager, but page.certificate.issuerRef has no name: write the name of the issuer" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (empty .Values.scrapers) }}
{{- range $name, $values := dict "webhook" $webhook "controller" $controller }}
{{- if and $values.networkPolicy.enabled (not $values.hostNetwork) }}
{{- fail (printf "serviceMonitor.enabled needs scrapers, since the NetworkPolicy croft-%s admits no other pod to /metrics: write where Prometheus runs, such as scrapers: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (ne .Values.certificates.mode "cert-manager") .Values.certificates.certManager.issuerRef }}
{{- fail (printf "certificates.certManager.issuerRef is set, but certificates.mode is %s: set certificates.mode to cert-manager, or remove issuerRef" .Values.certificates.mode) }}
{{- end }}
{{- if and .Values.certificates.certManager.issuerRef (not .Values.certificates.certManager.issuerRef.name) }}
{{- fail "certificates.certManager.issuerRef has no name: write the name of the issuer" }}
{{- end }}
{{- end }}

{{/* By this annotation cert-manager writes the caBundle of a webhook configuration. */}}
{{- define "croft.injectedAuthority" -}}
{{- if eq .Values.certificates.mode "cert-manager" }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/croft-webhook
{{- end }}
{{- end }}
