//! Schemas of what a tenant is given: quotas, defaults, owners.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{QUALIFIED, amounts, push, resource_name, rule, rule_of_keys, schema};

/// Resources of a ResourceQuota that are counted. Source: kubernetes, pkg/apis/core/helper (`standardQuotaResources`).
const COUNTED: &str = "['pods', 'services', 'replicationcontrollers', 'resourcequotas', 'secrets', 'configmaps', 'persistentvolumeclaims', 'services.nodeports', 'services.loadbalancers']";
/// Resources of a ResourceQuota that are amounts.
const MEASURED: &str = "['cpu', 'memory', 'ephemeral-storage', 'requests.cpu', 'requests.memory', 'requests.storage', 'requests.ephemeral-storage', 'limits.cpu', 'limits.memory', 'limits.ephemeral-storage']";
/// The most entries of a container's amounts: a rule compares each with another.
const CONTAINER_AMOUNTS: u32 = 8;
/// The most entries of a quota.
const QUOTA_AMOUNTS: u32 = 16;

/// The hard limits of a ResourceQuota.
pub(crate) fn quota(_: &mut SchemaGenerator) -> Schema {
    let mut quota = amounts(rule_of_keys(
        &format!(
            "k in {COUNTED} || k in {MEASURED} || k.startsWith('hugepages-') || k.startsWith('requests.hugepages-') || (k.contains('/') && size(k) <= 317 && k.matches('{QUALIFIED}') && (k.startsWith('requests.') || k.startsWith('count/') || k.contains('.storageclass.storage.k8s.io/')))"
        ),
        "write the names that a ResourceQuota has: requests.cpu, requests.memory, limits.cpu, limits.memory, pods, persistentvolumeclaims, requests.storage, requests.nvidia.com/gpu, count/deployments.apps and the like",
    ));
    if let Some(fields) = quota.as_object_mut() {
        fields.insert("maxProperties".to_owned(), QUOTA_AMOUNTS.into());
    }
    push(
        &mut quota,
        rule_of_keys(
            &format!(
                "!(k in {COUNTED} || k.startsWith('count/')) || type(self[k]) == int || quantity(self[k]).isInteger()"
            ),
            "objects are counted in whole numbers: write for example pods: 50",
        ),
    );
    schema(quota)
}

/// Requests or limits of a container.
pub(crate) fn container_amounts(_: &mut SchemaGenerator) -> Schema {
    let mut found = amounts(rule_of_keys(
        &resource_name("").replace(", 'pods'", ""),
        "containers ask for cpu, memory, ephemeral-storage, hugepages-* and devices such as nvidia.com/gpu: write one of these",
    ));
    if let Some(fields) = found.as_object_mut() {
        fields.insert("maxProperties".to_owned(), CONTAINER_AMOUNTS.into());
    }
    schema(found)
}

fn text(longest: u32, rules: Value) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": longest, "x-kubernetes-validations": rules})
}

/// The name of a user or a group.
pub(crate) fn subject(_: &mut SchemaGenerator) -> Schema {
    schema(text(
        253,
        json!([rule(
            "self.matches('^[^*[:space:]]+$')",
            "write the exact name of a user or a group, without blanks and '*': names are compared as they are",
        )]),
    ))
}

/// Names of ClusterRoles, each once.
pub(crate) fn cluster_roles(_: &mut SchemaGenerator) -> Schema {
    let name = text(
        200,
        json!([rule(
            "self.matches('^[A-Za-z0-9][-A-Za-z0-9:._]*$')",
            "write the exact name of a ClusterRole, such as admin, edit or view",
        )]),
    );
    schema(json!({
        "type": "array",
        "items": name,
        "minItems": 1,
        "maxItems": 8,
        "x-kubernetes-list-type": "set",
    }))
}

/// The prefix of namespaces that owners may create.
pub(crate) fn namespace_prefix(_: &mut SchemaGenerator) -> Schema {
    schema(text(
        40,
        json!([
            rule(
                "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?-$')",
                "write the beginning of the namespaces' names with '-' at its end, such as shop-: lower-case letters, digits and '-'",
            ),
            rule(
                "!self.startsWith('kube-')",
                "Kubernetes keeps names that begin with kube- for itself: write a prefix of the tenant's own, such as shop-",
            ),
        ]),
    ))
}

/// The number of namespaces that owners may create.
pub(crate) fn namespace_maximum(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": 1_000}))
}

/// Owners.
pub(crate) fn owners<Owner: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": generator.subschema_for::<Owner>(),
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
    }))
}
