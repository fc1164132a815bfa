//! Whether a limit bounds the cost of the nodes of a TenantPool or a Tenant. Called by the controller for its
//! conditions and by `croft check`.

use kube::ResourceExt as _;

use super::{scheduler::bounds_cost, static_capacity::is_fixed};
use crate::{
    Tenant, TenantPool,
    condition::{Statement, UNLIMITED},
    pool::{PoolTemplate, Provisioner},
};

/// The remedy, for both kinds.
pub const REMEDY: &str = "set spec.limits, such as nodes: 20 and costPerHour: \"10\"";

/// The sentence that says that no limit bounds the cost of the nodes of `pool`; `None` if one does. `tenants` are those
/// that name the pool: the limits of each count all of its nodes.
pub fn of_pool<'a>(pool: &TenantPool, tenants: impl IntoIterator<Item = &'a Tenant>) -> Statement {
    if is_fixed(pool) {
        return limited("FixedSize", "replicas bound what its nodes cost".to_owned());
    }
    if is_bounded(pool) {
        return limited("Limited", "spec.limits bound what its nodes cost".to_owned());
    }
    let of_tenant = tenants.into_iter().find(|tenant| bounds_cost(&tenant.spec.limits));
    if let Some(tenant) = of_tenant {
        let message = format!("spec.limits of Tenant {} bound what its nodes cost", tenant.name_any());
        return limited("LimitedByTenant", message);
    }
    unlimited(format!("no limit of the pool or of a Tenant bounds what its nodes cost; {REMEDY}"))
}

/// The sentence that says that no limit bounds the cost of the nodes of `tenant`; `None` if one does. `pools` are those
/// of its pools that exist.
pub fn of_tenant<'a>(tenant: &Tenant, pools: impl IntoIterator<Item = &'a TenantPool>) -> Statement {
    if bounds_cost(&tenant.spec.limits) {
        return limited("Limited", "spec.limits bound what its nodes cost".to_owned());
    }
    let is_open = |pool: &&TenantPool| !is_fixed(pool) && !is_bounded(pool);
    let mut pools = pools.into_iter().filter(|pool| pool.spec.provisioner == Provisioner::Croft).peekable();
    if pools.peek().is_none() {
        return limited("NotProvisioned", "Croft launches no nodes for its pools".to_owned());
    }
    match pools.find(is_open) {
        None => limited("LimitedByPools", "the limits of its pools bound what its nodes cost".to_owned()),
        Some(pool) => {
            let pool = pool.name_any();
            unlimited(format!(
                "no limit of the Tenant or of its pool {pool} bounds what its nodes cost; {REMEDY}"
            ))
        }
    }
}

/// True if limits of the pool, or limits or replicas of each of its templates, bound what its nodes cost.
fn is_bounded(pool: &TenantPool) -> bool {
    let templates = &pool.spec.templates;
    let is_bounded = |template: &PoolTemplate| template.replicas.is_some() || bounds_cost(&template.limits);
    bounds_cost(&pool.spec.limits) || !templates.is_empty() && templates.iter().all(is_bounded)
}

fn limited(reason: &'static str, message: String) -> Statement {
    Statement { kind: UNLIMITED, status: Some(false), reason, message }
}

fn unlimited(message: String) -> Statement {
    Statement { kind: UNLIMITED, status: Some(true), reason: "NoLimits", message }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pool(spec: Value) -> TenantPool {
        let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "p"},
            "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn template(more: Value) -> Value {
        let mut template = json!({"name": "t", "spec": {"nodeClassRef": {"name": "c"}}});
        let (template_fields, more) = (template.as_object_mut().unwrap(), more.as_object().unwrap());
        template_fields.extend(more.clone());
        template
    }

    fn tenant(limits: Value) -> Tenant {
        let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "t"},
            "spec": {"pools": ["p"], "limits": limits}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn pool_is_unlimited_if_neither_it_nor_its_tenants_limit_every_node() {
        for (spec, of_tenant, reason) in [
            (json!({}), json!({}), "NoLimits"),
            (json!({"limits": {"nvidia.com/gpu": 4}}), json!({}), "NoLimits"),
            (json!({"limits": {"cpu": 4}}), json!({}), "Limited"),
            (json!({"limits": {"costPerHour": "4"}}), json!({}), "Limited"),
            (json!({"replicas": 4}), json!({}), "FixedSize"),
            (json!({"templates": [template(json!({"replicas": 4}))]}), json!({}), "FixedSize"),
            (
                json!({"templates": [template(json!({"replicas": 4})), template(json!({"limits": {"nodes": 1}}))]}),
                json!({}),
                "Limited",
            ),
            (
                json!({"templates": [template(json!({"replicas": 4})), template(json!({}))]}),
                json!({}),
                "NoLimits",
            ),
            (json!({}), json!({"nodes": 4}), "LimitedByTenant"),
            (json!({}), json!({"nvidia.com/gpu": 4}), "NoLimits"),
        ] {
            let said = of_pool(&pool(spec.clone()), [&tenant(of_tenant.clone())]);
            assert_eq!(said.reason, reason, "{spec} {of_tenant}");
            assert_eq!(said.status, Some(reason == "NoLimits"));
        }
    }

    #[test]
    fn tenant_is_unlimited_if_it_and_one_of_its_pools_have_no_limit() {
        for (limits, pools, reason) in [
            (json!({"nodes": 1}), vec![json!({})], "Limited"),
            (json!({}), vec![json!({"limits": {"cpu": 1}}), json!({})], "NoLimits"),
            (json!({}), vec![json!({"limits": {"cpu": 1}}), json!({"replicas": 2})], "LimitedByPools"),
            (json!({}), vec![json!({"provisioner": "Karpenter"})], "NotProvisioned"),
            (json!({}), vec![], "NotProvisioned"),
        ] {
            let pools: Vec<TenantPool> = pools.into_iter().map(pool).collect();
            assert_eq!(of_tenant(&tenant(limits.clone()), &pools).reason, reason, "{limits}");
        }
    }
}
