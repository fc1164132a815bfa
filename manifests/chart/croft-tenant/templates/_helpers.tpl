{{/* Values that the schema can't refuse with a sentence, or that the API server would refuse only once the namespaces are there. */}}
{{- define "croft-tenant.validate" -}}
{{- if empty .Values.pools }}
{{- fail "pools is empty: write the TenantPools of the tenant, such as pools: [{name: shop}] for one that exists" }}
{{- end }}
{{- if not (or .Values.namespaces .Values.namespaceSelector .Values.namespaceCreation) }}
{{- fail "the tenant has no namespaces: write namespaces, such as namespaces: [{name: shop}], namespaceSelector or namespaceCreation" }}
{{- end }}
{{- if and .Values.namespaceCreation (empty .Values.owners) }}
{{- fail "the tenant's owners create its namespaces: write owners beside namespaceCreation" }}
{{- end }}
{{- $strictness := dict "privileged" 1 "baseline" 2 "restricted" 3 }}
{{- range .Values.namespaces }}
{{- $name := .name }}
{{- $labels := .labels | default dict }}
{{- if hasKey $labels "croft.dev/tenancy" }}
{{- fail (printf "the namespace %s has the label croft.dev/tenancy, which is kept by Croft alone: leave it out" $name) }}
{{- end }}
{{- range $key, $_ := .annotations }}
{{- if hasPrefix "policy.croft.dev/" $key }}
{{- fail (printf "the namespace %s has the annotation %s, which is kept by Croft alone: leave it out" $name $key) }}
{{- end }}
{{- end }}
{{- range $mode, $least := $.Values.podSecurity }}
{{- $label := printf "pod-security.kubernetes.io/%s" $mode }}
{{- with get $labels $label }}
{{- if lt (get $strictness . | default 3) (get $strictness $least) }}
{{- fail (printf "the namespace %s has the label %s: %s, and Croft writes %s there again by podSecurity.%s: write that or a stricter level, or leave the label out" $name $label . $least $mode) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
