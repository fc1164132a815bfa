//! Objects of Croft as a user writes them, for stores and engines.

use serde_json::{Value, json};

/// An EC2NodeClass that selects everything by its defaults.
#[must_use]
pub fn node_class() -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {},
        "spec": {"role": "croft-node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
    })
}

/// A Tenant of one namespace and one pool.
#[must_use]
pub fn tenant(namespace: &str, pool: &str) -> Value {
    json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {},
        "spec": {"namespaces": [namespace], "pools": [pool]}})
}

/// A TenantPool with the key `node-pool`, whose nodes are of the class `class` and have one of these capacity types by a
/// label of this key. It is accepted from the start: the policies that a key must be in force in aren't modelled, and a
/// pool that isn't accepted launches nothing.
#[must_use]
pub fn tenant_pool(capacity_key: &str, capacity_types: &[&str]) -> Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {},
        "spec": {
            "key": "node-pool",
            "template": {"spec": {
                "nodeClassRef": {"name": "class"},
                "requirements": [{"key": capacity_key, "operator": "In", "values": capacity_types}],
            }},
        },
        "status": {"conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    })
}
