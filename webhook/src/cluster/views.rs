//! The fields that are kept of watched objects.
//!
//! A spec is kept as JSON and decoded by [`croft_policy::stored`], so that an invalid object never breaks the watch of all.

use std::borrow::Cow;

use croft_policy::{
    definitions::{POOL_ANNOTATION, POOLS_ANNOTATION, parameter::MUTATION},
    model,
    stored::{self, Decoded},
    taint::{Effect, Taint},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, Resource};
use serde::Deserialize;
use serde_json::Value;

macro_rules! view {
    ($name:ident, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        impl Resource for $name {
            type DynamicType = ();
            type Scope = ClusterResourceScope;
            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }
            fn group((): &()) -> Cow<'_, str> {
                $group.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                $version.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

view!(TenantView, "croft.dev", "v1alpha1", "Tenant", "tenants");
view!(PoolView, "croft.dev", "v1alpha1", "TenantPool", "tenantpools");
view!(ConfigView, "croft.dev", "v1alpha1", "CroftConfig", "croftconfigs");
view!(NodeView, "", "v1", "Node", "nodes");

/// A Tenant.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TenantView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

/// A TenantPool.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PoolView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

/// A CroftConfig.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ConfigView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
}

/// A Node.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeView {
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: NodeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpec {
    taints: Vec<NodeTaint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct NodeTaint {
    key: String,
    value: String,
    effect: String,
}

fn name(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn created(metadata: &ObjectMeta) -> Option<i64> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second())
}

impl TenantView {
    pub(crate) fn decode(self) -> Decoded<model::Tenant> {
        stored::tenant(name(&self.metadata), created(&self.metadata), &self.spec)
    }
}

impl PoolView {
    pub(crate) fn decode(self) -> Decoded<model::Pool> {
        stored::pool(name(&self.metadata), created(&self.metadata), &self.spec, &self.status)
    }
}

impl ConfigView {
    /// Decodes the settings of a Croft that is installed in `namespace`.
    pub(crate) fn decode(self, namespace: &str) -> Decoded<model::Config> {
        stored::config(&self.spec, namespace)
    }
}

impl From<NodeView> for model::Node {
    fn from(view: NodeView) -> Self {
        let taints = view.spec.taints.into_iter().filter_map(|taint| {
            Some(Taint { effect: Effect::parse(&taint.effect)?, key: taint.key, value: taint.value })
        });
        Self {
            labels: view.metadata.labels.clone().unwrap_or_default(),
            taints: taints.collect(),
            name: name(&view.metadata),
        }
    }
}

/// A namespace, of which only metadata is watched.
pub(crate) fn namespace(metadata: ObjectMeta) -> model::Namespace {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| [POOL_ANNOTATION, POOLS_ANNOTATION, MUTATION].contains(&key.as_str()));
    model::Namespace {
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations,
        name: name(&metadata),
    }
}

#[cfg(test)]
mod tests {
    use croft_policy::OnConflict;
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn newer_fields_and_values_are_ignored() {
        let view: TenantView = from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:07Z"},
            "spec": {"namespaces": ["x"], "pools": ["p"], "onConflict": "Negotiate", "mood": {"good": true},
                "namespaceSelector": {"matchLabels": {"team": "a"}}},
            "status": {"conditions": 3}
        }))
        .unwrap();
        let Decoded { object: tenant, error } = view.decode();
        assert_eq!((tenant.created, tenant.on_conflict, error), (Some(7), OnConflict::Reject, None));
        assert!(tenant.selector.unwrap().matches(|key| (key == "team").then_some("a")));

        let view: ConfigView =
            from_value(json!({"metadata": {"name": "default"}, "spec": {"nonTenantPods": "Maybe"}})).unwrap();
        assert_eq!(view.decode("ours"), Decoded { object: model::Config::installed_in("ours"), error: None });
    }
}
