//! Pods that are updated: nothing is patched, and a change that widens placement is refused.
//!
//! Called by [`evaluate`](crate::evaluate()).

use std::collections::BTreeMap;

use crate::{
    definitions::{Rule, UNREGISTERED_TAINT},
    denial::Denial,
    outcome::Outcome,
    request::view::{Pod, PodSpec, Toleration},
    rules::{injection, keep_out, node_affinity::missing_in_some_term},
    tenancy::{
        declarations::{DeclaredPool, DeclaredTenant},
        index::{NamespaceTenancy, Tenants},
        model::NonTenantPods,
        taint::{Effects, Operator, decimal},
    },
};

/// Evaluates the UPDATE of a pod in `namespace` from `old` to `new`. A pod that is being deleted may be changed freely.
pub(crate) fn evaluate<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
) -> Outcome<'t> {
    if new.metadata.deletion_timestamp.is_some() {
        return Outcome::allow(Rule::Deleting);
    }
    let tenancy = tenants.tenancy(namespace);
    match check(tenants, tenancy, namespace, old, new) {
        Err(denial) => Outcome::deny(denial).in_namespace(tenancy),
        Ok(pool) => {
            Outcome { pool: pool.map(|p| &*p.name), ..Outcome::allow(Rule::Unchanged) }.in_namespace(tenancy)
        }
    }
}

/// Checks the change of a pod. Returns the tenant's pool that the pod selects.
///
/// # Errors
/// If the change adds a toleration of a foreign pool, takes away the selector entry or the node affinity that the pod
/// had, selects a foreign pool, or lifts the last scheduling gate of a pod that isn't placed.
fn check<'t>(
    tenants: &'t Tenants,
    tenancy: NamespaceTenancy<'t>,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
) -> Result<Option<&'t DeclaredPool>, Denial> {
    if old.spec == new.spec {
        return Ok(None);
    }
    match tenancy {
        // The admission policies check the change against the namespace's annotation.
        NamespaceTenancy::Exempt | NamespaceTenancy::TenantUnreadable => return Ok(None),
        NamespaceTenancy::Unknown => return Err(Denial::unknown_namespace(namespace)),
        NamespaceTenancy::NonTenant => {
            let declarations = tenants.declarations();
            if declarations.non_tenant_pods() == NonTenantPods::Allow
                || declarations.is_shared_with(namespace)
            {
                return Ok(None);
            }
        }
        NamespaceTenancy::Tenant { .. } => {}
    }
    check_added(tenants, tenancy, namespace, old, new)?;
    let lifted = !old.spec.scheduling_gates.is_empty() && new.spec.scheduling_gates.is_empty();
    match tenancy {
        NamespaceTenancy::Tenant { tenant, .. } => check_tenant(tenants, tenant, old, new, lifted),
        _ => check_non_tenant(tenants, namespace, old, new, lifted).map(|()| None),
    }
}

fn without_seconds<'t>(t: &'t Toleration<'_>) -> (&'t str, &'t str, &'t str, &'t str) {
    (&t.key, &t.operator, &t.value, &t.effect)
}

fn without_selector<'a>(spec: &PodSpec<'a>) -> PodSpec<'a> {
    PodSpec { node_selector: None, ..spec.clone() }
}

/// Checks that no toleration was added that matches the taint of a foreign pool.
fn check_added(
    tenants: &Tenants,
    tenancy: NamespaceTenancy<'_>,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
) -> Result<(), Denial> {
    // The API server lets only the seconds of an existing toleration change, so seconds aren't compared.
    let mut before: Vec<_> = old.spec.tolerations().iter().map(without_seconds).collect();
    before.sort_unstable();
    let declarations = tenants.declarations();
    let (owner, foreign): (String, &dyn Fn(&DeclaredPool) -> bool) = match tenancy {
        NamespaceTenancy::Tenant { tenant, .. } => {
            (format!("tenant {:?}", &*tenant.name), &|p| !tenant.may_use(p.id))
        }
        _ => (format!("namespace {namespace:?}"), &|p| !p.is_shared_with(namespace)),
    };
    let mut by_key: BTreeMap<&str, Vec<&DeclaredPool>> = BTreeMap::new();
    for (index, toleration) in new.spec.tolerations().iter().enumerate() {
        if before.binary_search(&without_seconds(toleration)).is_ok() {
            continue;
        }
        let Some(parsed) = toleration.parse() else {
            return Err(Denial::unknown_operator(index, &toleration.operator));
        };
        if parsed.effects.and(Effects::HARD).is_empty() {
            continue;
        }
        // A toleration without a key matches the taint of every pool, of later ones as well. So does that of the starting
        // taint, which stands in for the label that the node doesn't have yet.
        if parsed.key.is_empty() || parsed.key == UNREGISTERED_TAINT {
            return Err(Denial::adds_toleration(index, &owner, None));
        }
        let Some(key) = declarations.key(parsed.key) else { continue };
        let of_key = |p: &&DeclaredPool| *p.key == *parsed.key && foreign(p);
        let hit = if parsed.operator == Operator::Equal {
            key.pool(parsed.value).and_then(|id| declarations.pool(id)).filter(of_key)
        } else {
            let pools =
                || key.pools().iter().filter_map(|id| declarations.pool(*id)).filter(of_key).collect();
            let extremes = by_key.entry(parsed.key).or_insert_with(|| extreme_pools(pools()));
            extremes.iter().copied().find(|p| parsed.matches(&p.key, &p.value))
        };
        if let Some(pool) = hit {
            return Err(Denial::adds_toleration(index, &owner, Some(&pool.name)));
        }
    }
    Ok(())
}

/// The pools, all of one key, to compare a toleration with: if `Exists`, `Lt` or `Gt` tolerates any of `pools`, it
/// tolerates the first, or the one with the least or the greatest number. A user may write many thousands of tolerations.
fn extreme_pools(pools: Vec<&DeclaredPool>) -> Vec<&DeclaredPool> {
    let numbers = || pools.iter().filter_map(|p| Some((decimal(&p.value)?, *p)));
    let least = numbers().min_by_key(|(number, _)| *number);
    let greatest = numbers().max_by_key(|(number, _)| *number);
    pools.first().copied().into_iter().chain(least.into_iter().chain(greatest).map(|(_, p)| p)).collect()
}

fn check_tenant<'t>(
    tenants: &'t Tenants,
    tenant: &'t DeclaredTenant,
    old: &Pod<'_>,
    new: &Pod<'_>,
    lifted: bool,
) -> Result<Option<&'t DeclaredPool>, Denial> {
    let declarations = tenants.declarations();
    let own = |pod: &Pod<'_>| {
        let labels = pod.spec.node_selector.iter().flat_map(|s| s.iter());
        labels
            .filter_map(|(k, v)| declarations.pool_by_label(k, v))
            .filter(|id| tenant.may_use(*id))
            .find_map(|id| declarations.pool(id))
    };
    let (before, after) = (own(old), own(new));
    if let (Some(before), None) = (before, after) {
        return Err(Denial::loses_pool(&before.key, &before.value));
    }
    // A gated pod's selector may be extended, but not by a foreign pool. The old selector isn't checked again.
    for (key, value) in new.spec.node_selector.iter().flat_map(|s| s.iter()) {
        let was = old.spec.node_selector.as_ref().and_then(|s| s.get(key));
        let foreign =
            declarations.key(key).is_some_and(|k| k.pool(value).is_none_or(|id| !tenant.may_use(id)));
        if was != Some(value) && foreign {
            let pool =
                declarations.pool_by_label(key, value).and_then(|id| declarations.pool(id)).map(|p| &*p.name);
            return Err(Denial::foreign_selector(&tenant.name, &tenant.pool_names(), key, value, pool));
        }
    }
    if lifted {
        let right = match after {
            Some(pool) => injection::check_final(tenant, &new.spec, pool),
            None => {
                Err(Denial::new(Rule::NotPlaced, format!("it selects no pool of tenant {:?}", &*tenant.name)))
            }
        };
        right.map_err(|why| Denial::lifts_gates(&why.message))?;
    }
    Ok(after)
}

fn check_non_tenant(
    tenants: &Tenants,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
    lifted: bool,
) -> Result<(), Denial> {
    let declarations = tenants.declarations();
    for (key, value) in new.spec.node_selector.iter().flat_map(|s| s.iter()) {
        let was = old.spec.node_selector.as_ref().and_then(|s| s.get(key));
        let pool = declarations.pool_by_label(key, value).and_then(|id| declarations.pool(id));
        if let Some(pool) = pool.filter(|p| was != Some(value) && !p.is_shared_with(namespace)) {
            return Err(Denial::non_tenant_selects(namespace, key, value, &pool.name));
        }
    }
    // A selector entry that was there before is no part of this change.
    let (before, after) = (without_selector(&old.spec), without_selector(&new.spec));
    let wanted = match keep_out::plan(tenants, namespace, &after) {
        Ok(wanted) => wanted,
        Err(why) if lifted => return Err(Denial::lifts_gates(&why.message)),
        Err(_) => return Ok(()),
    };
    let (open_before, open) =
        (missing_in_some_term(&before, &wanted.exclusions), missing_in_some_term(&after, &wanted.exclusions));
    if let Some(missing) = open.iter().find(|c| !open_before.contains(c)) {
        return Err(Denial::loses_keep_out(&missing.key));
    }
    if let (true, Some(missing)) = (lifted, open.first()) {
        return Err(Denial::lifts_gates(&format!(
            "it tolerates pools' taints, and no required node affinity on {} keeps it off them",
            missing.key
        )));
    }
    Ok(())
}
