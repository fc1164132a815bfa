//! What is read of the objects that are watched: the fields that decide, and nothing else.
//!
//! Unknown fields and unknown values are passed over, unlike in `croft-api`, which refuses them in files: in
//! the cluster they mean that the CRDs are newer than this program, and a watch that breaks on one object
//! would blind the webhook for all. An unknown value is read as the strictest known one.

use std::borrow::Cow;

use croft_policy::{
    model::{self, OnConflict, Provisioner, Unassigned},
    selector::{Requirement, Selector, Test},
    taint::{Effect, Taint},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{ClusterResourceScope, Resource};
use serde::Deserialize;

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
pub(super) struct TenantView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: TenantSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TenantSpec {
    namespaces: Vec<String>,
    namespace_selector: Option<LabelSelector>,
    pools: Vec<String>,
    on_conflict: String,
}

/// A TenantPool.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: PoolSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PoolSpec {
    key: Option<String>,
    value: Option<String>,
    effects: Vec<String>,
    provisioner: String,
    shared_with: Vec<String>,
}

/// A CroftConfig.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ConfigView {
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: ConfigSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigSpec {
    unassigned: String,
    exempt_namespaces: Option<Vec<String>>,
    schedulers: Option<Vec<String>>,
    shared_with: Vec<String>,
}

/// A Node.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NodeView {
    pub(super) metadata: ObjectMeta,
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

fn name(metadata: ObjectMeta) -> String {
    metadata.name.unwrap_or_default()
}

fn created(metadata: &ObjectMeta) -> Option<i64> {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second())
}

/// `None` for an operator that nobody knows, so that the selector matches nothing.
fn selector(selector: LabelSelector) -> Option<Selector> {
    let labels = selector.match_labels.into_iter().flatten();
    let exact = labels.map(|(key, value)| Some(Requirement { key, test: Test::In(vec![value]) }));
    let expressions = selector.match_expressions.into_iter().flatten().map(|expression| {
        let test = Test::parse(&expression.operator, expression.values.unwrap_or_default())?;
        Some(Requirement { key: expression.key, test })
    });
    exact.chain(expressions).collect::<Option<Vec<_>>>().filter(|all| !all.is_empty()).map(Selector::new)
}

impl From<TenantView> for model::Tenant {
    fn from(view: TenantView) -> Self {
        let spec = view.spec;
        Self {
            created: created(&view.metadata),
            name: name(view.metadata),
            namespaces: spec.namespaces,
            selector: spec.namespace_selector.and_then(selector),
            pools: spec.pools,
            on_conflict: if spec.on_conflict == "Override" {
                OnConflict::Override
            } else {
                OnConflict::Reject
            },
        }
    }
}

impl From<PoolView> for model::Pool {
    fn from(view: PoolView) -> Self {
        let spec = view.spec;
        let created = created(&view.metadata);
        let name = name(view.metadata);
        Self {
            created,
            key: spec.key.unwrap_or_else(|| model::MARK_KEY.to_owned()),
            value: spec.value.unwrap_or_else(|| name.clone()),
            effects: spec.effects.iter().filter_map(|effect| Effect::parse(effect)).collect(),
            shared_with: spec.shared_with,
            provisioner: match spec.provisioner.as_str() {
                "Karpenter" => Provisioner::Karpenter,
                "None" => Provisioner::None,
                // Also an unknown one: its nodes are guarded as Croft's own are, which is the most.
                _ => Provisioner::Croft,
            },
            name,
        }
    }
}

impl From<ConfigView> for model::Config {
    fn from(view: ConfigView) -> Self {
        let (spec, defaults) = (view.spec, Self::default());
        Self {
            unassigned: match spec.unassigned.as_str() {
                "Allow" => Unassigned::Allow,
                "Reject" => Unassigned::Reject,
                _ => Unassigned::KeepOut,
            },
            exempt: spec.exempt_namespaces.unwrap_or(defaults.exempt),
            schedulers: spec.schedulers.unwrap_or(defaults.schedulers),
            shared_with: spec.shared_with,
        }
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
            name: name(view.metadata),
        }
    }
}

/// A namespace, of which only the metadata is watched.
pub(super) fn namespace(metadata: ObjectMeta) -> model::Namespace {
    let mut annotations = metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key == model::POOL_ANNOTATION);
    model::Namespace {
        labels: metadata.labels.clone().unwrap_or_default(),
        annotations,
        name: name(metadata),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn newer_fields_and_values_are_passed_over() {
        let tenant: TenantView = from_value(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:07Z"},
            "spec": {"namespaces": ["x"], "pools": ["p"], "onConflict": "Negotiate", "mood": {"good": true},
                "namespaceSelector": {"matchLabels": {"team": "a"}}},
            "status": {"conditions": 3}
        }))
        .unwrap();
        let tenant = model::Tenant::from(tenant);
        assert_eq!((tenant.created, tenant.on_conflict), (Some(7), OnConflict::Reject));
        assert!(tenant.selector.unwrap().matches(|key| (key == "team").then_some("a")));

        let pool: PoolView = from_value(json!({
            "metadata": {"name": "p"}, "spec": {"effects": ["NoExecute", "Tickle"], "provisioner": "Magic"}
        }))
        .unwrap();
        let pool = model::Pool::from(pool);
        assert_eq!((pool.key.as_str(), pool.value.as_str()), (model::MARK_KEY, "p"));
        assert_eq!(pool.effects, [Effect::NoExecute].into_iter().collect());
        assert_eq!(pool.provisioner, Provisioner::Croft);

        let config: ConfigView =
            from_value(json!({"metadata": {"name": "default"}, "spec": {"unassigned": "Maybe"}})).unwrap();
        assert_eq!(model::Config::from(config), model::Config::default());
    }

    #[test]
    fn a_selector_that_is_not_understood_claims_nothing() {
        let read = |value| selector(from_value(value).unwrap());
        assert_eq!(
            read(json!({"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]})),
            None
        );
        assert_eq!(read(json!({})), None, "an empty one would claim every namespace");
    }
}
