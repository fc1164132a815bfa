//! The parts of a Tenant's status about its quota and the namespaces that its owners create.

use std::collections::BTreeMap;

use croft_api::{Tenant, condition::Statement, tenant::QuotaUse};
use croft_policy::definitions::SURPLUS_ANNOTATION;

use crate::{
    definitions::conditions as reasons,
    tenant::{
        objects::{Created, share_used},
        quota::amounts::{millis, text},
        state::State,
    },
};

/// Namespaces that a condition names.
const MAX_NAMED: usize = 20;

/// The quota of all the tenant's namespaces together, and what they use of it.
pub(super) fn quota_use(state: &State, tenant: &Tenant, own: &[&str]) -> Vec<QuotaUse> {
    let Some(quota) = &tenant.spec.quota else { return Vec::new() };
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for (resource, millis) in own.iter().flat_map(|namespace| share_used(state, namespace)) {
        let sum = used.entry(resource).or_default();
        *sum = sum.saturating_add(millis);
    }
    let entry = |(resource, total): (&String, &croft_api::amount::Amount)| {
        let used = used.get(resource.as_str()).copied().unwrap_or_default();
        let total = millis(&total.0)?;
        Some(QuotaUse { resource: resource.clone(), total: text(total), used: text(used) })
    };
    quota.total.iter().filter_map(entry).collect()
}

/// The condition of a tenant whose owners may create namespaces.
pub(super) fn creation_condition(created: &Created) -> Statement {
    let Created { prefix, maximum, count, surplus, .. } = created;
    let (status, reason, message) = if surplus.is_empty() {
        let reason = if created.is_full() { reasons::MAXIMUM_REACHED } else { reasons::BELOW_MAXIMUM };
        (true, reason, format!("{count} namespaces begin with {prefix}, and {maximum} may"))
    } else {
        let named: Vec<&str> = surplus.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = match surplus.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let message = format!(
            "{count} namespaces begin with {prefix}, and {maximum} may: {}{more} stay without pools and roles, and their pods \
             are refused; delete those that aren't needed, or raise spec.namespaceCreation.maximum. Each carries the annotation \
             {SURPLUS_ANNOTATION}",
            named.join(", ")
        );
        (false, reasons::ABOVE_MAXIMUM, message)
    };
    Statement { kind: reasons::NAMESPACE_CREATION, status: Some(status), reason, message }
}
