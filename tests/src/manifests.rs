//! Manifests of platform teams and tenants.

use serde_json::{Value, json};

/// A CustomResourceDefinition that takes any object of a kind of another project: as far as applying one needs it.
fn any_object(group: &str, kind: &str) -> Value {
    definition(group, kind, &json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
}

/// A CustomResourceDefinition of another project's kind, with this schema.
fn definition(group: &str, kind: &str, schema: &Value) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// cert-manager's kinds.
#[must_use]
pub fn cert_manager() -> String {
    joined(&["Issuer", "Certificate"].map(|kind| any_object("cert-manager.io", kind)))
}

/// The Prometheus Operator's ServiceMonitor, and its PrometheusRule with the fields that Croft's alerts have: a wrong name or
/// type is refused, as the operator's own definition refuses it.
#[must_use]
pub fn prometheus_operator() -> String {
    let text = json!({"type": "string"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let of_rules = json!({
        "type": "array",
        "items": {
            "type": "object", "required": ["expr"],
            "properties": {
                "alert": text, "record": text, "for": text, "annotations": texts, "labels": texts,
                "expr": {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true},
            },
        },
    });
    let groups = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object", "required": ["name"],
            "properties": {"name": text, "interval": text, "rules": of_rules},
        },
    });
    let schema = json!({
        "type": "object", "required": ["spec"],
        "properties": {"spec": {"type": "object", "properties": {"groups": groups}}},
    });
    let group = "monitoring.coreos.com";
    joined(&[any_object(group, "ServiceMonitor"), definition(group, "PrometheusRule", &schema)])
}

/// Several documents as input of kubectl.
#[must_use]
pub fn joined<'a>(documents: impl IntoIterator<Item = &'a Value>) -> String {
    documents.into_iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n")
}

/// An EC2NodeClass that resolves in the simulated cloud.
#[must_use]
pub fn class(name: &str) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": name},
        "spec": {
            "role": "croft-node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"croft.dev/discovery": "croft"}}],
            "securityGroupSelectorTerms": [{"tags": {"croft.dev/discovery": "croft"}}],
        },
    })
}

/// A namespace, its tenant of the same name, and the tenant's only pool.
#[must_use]
pub fn tenant(name: &str, pool: &str, spec: &Value) -> [Value; 3] {
    let [namespace, tenant] = tenant_of(name, &[pool]);
    let pool = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": pool}, "spec": spec});
    [namespace, pool, tenant]
}

/// A namespace and its tenant of the same name, which may use `pools`.
#[must_use]
pub fn tenant_of(name: &str, pools: &[&str]) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name},
            "spec": {"namespaces": [name], "pools": pools},
        }),
    ]
}

/// A pool's spec: on-demand instances of `types` (any if empty) with the class `default`. Unless `disruption` says more, pods are
/// moved for small savings: clusters of tests are small, and their pods young.
#[must_use]
pub fn on_demand(types: &[&str], mut disruption: Value) -> Value {
    if let Value::Object(fields) = &mut disruption {
        fields.entry("preference").or_insert_with(|| json!("Cheapest"));
    }
    let mut requirements =
        vec![json!({"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]})];
    if !types.is_empty() {
        requirements
            .push(json!({"key": "node.kubernetes.io/instance-type", "operator": "In", "values": types}));
    }
    let template = json!({"spec": {"nodeClassRef": {"name": "default"}, "requirements": requirements}});
    json!({"template": template, "disruption": disruption})
}

/// A Deployment whose pods have the label `app` with its name, request this much, and terminate quickly.
#[must_use]
pub fn deployment(namespace: &str, name: &str, replicas: usize, cpu: &str, memory: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "c", "image": "registry.example/app:1",
                        "resources": {"requests": {"cpu": cpu, "memory": memory}},
                    }],
                },
            },
        },
    })
}

/// A DaemonSet whose pods have the label `app` with its name, and `spec` over that of one container.
#[must_use]
pub fn daemon_set(namespace: &str, name: &str, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "c", "image": "registry.example/agent:1"}]});
    if let (Some(into), Value::Object(from)) = (pod.as_object_mut(), spec) {
        into.extend(from);
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

/// A budget with minAvailable for pods with the label `app` and its name.
#[must_use]
pub fn budget(namespace: &str, name: &str, min_available: usize) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": name}}},
    })
}
