//! One tenant: namespaces, pools, and the bill of the month; its pods apart, since they are many.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    bill::Bill,
    overview::{TenantRow, tenant_rows},
    pool::{PoolRow, conditions},
};
use crate::{
    access::Scope,
    model::facts::{ConditionView, Model, PodFacts, TenantFacts},
};

/// A tenant with everything about it but its pods.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantView {
    /// The version of the model.
    pub version: u64,
    /// The tenant.
    #[serde(flatten)]
    pub row: TenantRow,
    /// Names of the namespaces that the reader may see.
    pub namespace_names: Vec<String>,
    /// True if the reader may see each of its namespaces.
    pub is_whole: bool,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
    /// Its pools.
    pub pool_rows: Vec<PoolRow>,
}

/// A tenant at present.
#[derive(Clone, Debug, Serialize)]
pub struct TenantNow {
    /// The tenant.
    #[serde(flatten)]
    pub view: TenantView,
    /// The bill of the month.
    pub bill: Bill,
}

/// A tenant at an earlier time.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantThen {
    /// The tenant.
    #[serde(flatten)]
    pub view: TenantView,
    /// The reader's pods.
    pub pod_list: Vec<PodFacts>,
}

/// A tenant at an earlier time; none if there was no such tenant that `scope` sees.
#[must_use]
pub fn then(model: &Model, scope: &Scope, name: &str) -> Option<TenantThen> {
    Some(TenantThen { view: view(model, scope, name)?, pod_list: pods(model, scope, name)? })
}

/// A tenant; none if there is no such tenant that `scope` sees.
#[must_use]
pub fn view(model: &Model, scope: &Scope, name: &str) -> Option<TenantView> {
    let tenant = seen(model, scope, name)?;
    let row = tenant_rows(model, scope).into_iter().find(|row| row.name == name)?;
    let pools = tenant.pools.iter().filter_map(|pool| Some((pool, model.pools.get(pool)?)));
    let is_whole = scope.sees_whole_tenant(model, name);
    Some(TenantView {
        version: model.version,
        namespace_names: tenant.namespaces.iter().filter(|one| scope.sees_namespace(one)).cloned().collect(),
        is_whole,
        limits: tenant.limits.clone(),
        conditions: conditions(&tenant.conditions, is_whole),
        pool_rows: pools.map(|(name, pool)| PoolRow::new(model, scope, name, pool)).collect(),
        row,
    })
}

/// A tenant that `scope` sees.
#[must_use]
pub fn seen<'m>(model: &'m Model, scope: &Scope, name: &str) -> Option<&'m TenantFacts> {
    model.tenants.get(name).filter(|_| scope.sees_tenant(model, name))
}

/// The reader's pods of a tenant; none if there is no such tenant that `scope` sees.
#[must_use]
pub fn pods(model: &Model, scope: &Scope, name: &str) -> Option<Vec<PodFacts>> {
    seen(model, scope, name)?;
    let pods = model.pods.values().filter(|pod| pod.tenant.as_deref() == Some(name));
    Some(pods.filter(|pod| scope.sees_namespace(&pod.namespace)).cloned().collect())
}
