//! The change of a pod that exists. Nothing is patched; what widens its placement is refused.

use std::collections::BTreeMap;

use crate::{
    denial::{Denial, Rule},
    index::{Ground, PoolRule, TenantRule, Tenants},
    keepout,
    model::Unassigned,
    place,
    taint::{Effects, Operator, decimal},
    terms,
    view::{Pod, PodSpec, Toleration},
};

/// Judges the change of a pod from `old` to `new`.
///
/// # Errors
/// If it adds a toleration of a foreign pool, loses the pool or the keep-out that the pod had, asks for a foreign
/// pool, or lifts the last gate of a pod that isn't placed.
pub(crate) fn judge<'t>(
    tenants: &'t Tenants,
    ground: Ground<'t>,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
) -> Result<Option<&'t PoolRule>, Denial> {
    if old.spec == new.spec {
        return Ok(None);
    }
    match ground {
        // The policies hold the change to the namespace's annotation.
        Ground::Exempt | Ground::Unread => return Ok(None),
        Ground::Unknown => return Err(Denial::unknown_namespace(namespace)),
        Ground::Nobody => {
            let rules = tenants.rules();
            if rules.unassigned() == Unassigned::Allow || rules.is_shared_with(namespace) {
                return Ok(None);
            }
        }
        Ground::Tenant { .. } => {}
    }
    check_added(tenants, ground, namespace, old, new)?;
    let lifted = !old.spec.scheduling_gates.is_empty() && new.spec.scheduling_gates.is_empty();
    match ground {
        Ground::Tenant { tenant, .. } => check_tenant(tenants, tenant, old, new, lifted),
        _ => check_stranger(tenants, namespace, old, new, lifted).map(|()| None),
    }
}

fn bare<'t>(t: &'t Toleration<'_>) -> (&'t str, &'t str, &'t str, &'t str) {
    (&t.key, &t.operator, &t.value, &t.effect)
}

fn unselected<'a>(spec: &PodSpec<'a>) -> PodSpec<'a> {
    PodSpec { node_selector: None, ..spec.clone() }
}

/// Refuses tolerations that weren't there before and match the taint of a foreign pool.
fn check_added(
    tenants: &Tenants,
    ground: Ground<'_>,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
) -> Result<(), Denial> {
    // An existing toleration may get other seconds, nothing else, says the API server; so seconds aren't compared.
    let mut before: Vec<_> = old.spec.tolerations().iter().map(bare).collect();
    before.sort_unstable();
    let rules = tenants.rules();
    let (owner, foreign): (String, &dyn Fn(&PoolRule) -> bool) = match ground {
        Ground::Tenant { tenant, .. } => (format!("tenant {:?}", &*tenant.name), &|p| !tenant.may_use(p.id)),
        _ => (format!("namespace {namespace:?}"), &|p| !p.is_shared_with(namespace)),
    };
    let mut by_key: BTreeMap<&str, Vec<&PoolRule>> = BTreeMap::new();
    for (index, toleration) in new.spec.tolerations().iter().enumerate() {
        if before.binary_search(&bare(toleration)).is_ok() {
            continue;
        }
        let Some(parsed) = toleration.parse() else {
            return Err(Denial::unknown_operator(index, &toleration.operator));
        };
        if parsed.effects.and(Effects::HARD).is_empty() {
            continue;
        }
        // Without a key it matches every pool's taint, also of those to come.
        if parsed.key.is_empty() {
            return Err(Denial::adds_toleration(index, &owner, None));
        }
        let Some(key) = rules.key(parsed.key) else { continue };
        let of_key = |p: &&PoolRule| *p.key == *parsed.key && foreign(p);
        let hit = if parsed.operator == Operator::Equal {
            key.pool(parsed.value).and_then(|id| rules.pool(id)).filter(of_key)
        } else {
            let pools = || key.pools().iter().filter_map(|id| rules.pool(*id)).filter(of_key).collect();
            let likeliest = by_key.entry(parsed.key).or_insert_with(|| likeliest(pools()));
            likeliest.iter().copied().find(|p| parsed.matches(&p.key, &p.value))
        };
        if let Some(pool) = hit {
            return Err(Denial::adds_toleration(index, &owner, Some(&pool.name)));
        }
    }
    Ok(())
}

/// Those of `pools`, all of one key, of which one is tolerated by Exists, Lt or Gt if any is: any, and those of the
/// least and the greatest number. Somebody may write many thousands of tolerations.
fn likeliest(pools: Vec<&PoolRule>) -> Vec<&PoolRule> {
    let numbers = || pools.iter().filter_map(|p| Some((decimal(&p.value)?, *p)));
    let least = numbers().min_by_key(|(number, _)| *number);
    let greatest = numbers().max_by_key(|(number, _)| *number);
    pools.first().copied().into_iter().chain(least.into_iter().chain(greatest).map(|(_, p)| p)).collect()
}

fn check_tenant<'t>(
    tenants: &'t Tenants,
    tenant: &'t TenantRule,
    old: &Pod<'_>,
    new: &Pod<'_>,
    lifted: bool,
) -> Result<Option<&'t PoolRule>, Denial> {
    let rules = tenants.rules();
    let own = |pod: &Pod<'_>| {
        let labels = pod.spec.node_selector.iter().flat_map(|s| s.iter());
        labels
            .filter_map(|(k, v)| rules.by_label(k, v))
            .filter(|id| tenant.may_use(*id))
            .find_map(|id| rules.pool(id))
    };
    let (before, after) = (own(old), own(new));
    if let (Some(before), None) = (before, after) {
        return Err(Denial::loses_pool(&before.key, &before.value));
    }
    // What is added to a gated pod's selector must not be a foreign pool. The old selector isn't judged again.
    for (key, value) in new.spec.node_selector.iter().flat_map(|s| s.iter()) {
        let was = old.spec.node_selector.as_ref().and_then(|s| s.get(key));
        let foreign = rules.key(key).is_some_and(|k| k.pool(value).is_none_or(|id| !tenant.may_use(id)));
        if was != Some(value) && foreign {
            let pool = rules.by_label(key, value).and_then(|id| rules.pool(id)).map(|p| &*p.name);
            return Err(Denial::foreign_selector(&tenant.name, &tenant.pool_names(), key, value, pool));
        }
    }
    if lifted {
        let right = match after {
            Some(pool) => place::check_final(tenant, &new.spec, pool),
            None => {
                Err(Denial::new(Rule::NotPlaced, format!("it selects no pool of tenant {:?}", &*tenant.name)))
            }
        };
        right.map_err(|why| Denial::lifts_gates(&why.message))?;
    }
    Ok(after)
}

fn check_stranger(
    tenants: &Tenants,
    namespace: &str,
    old: &Pod<'_>,
    new: &Pod<'_>,
    lifted: bool,
) -> Result<(), Denial> {
    let rules = tenants.rules();
    for (key, value) in new.spec.node_selector.iter().flat_map(|s| s.iter()) {
        let was = old.spec.node_selector.as_ref().and_then(|s| s.get(key));
        let pool = rules.by_label(key, value).and_then(|id| rules.pool(id));
        if let Some(pool) = pool.filter(|p| was != Some(value) && !p.is_shared_with(namespace)) {
            return Err(Denial::stranger_selects(namespace, key, value, &pool.name));
        }
    }
    // A selector that was there before says nothing about this change.
    let (before, after) = (unselected(&old.spec), unselected(&new.spec));
    let wanted = match keepout::decide(tenants, namespace, &after) {
        Ok(wanted) => wanted,
        Err(why) if lifted => return Err(Denial::lifts_gates(&why.message)),
        Err(_) => return Ok(()),
    };
    let (open_before, open) = (terms::open(&before, &wanted.closed), terms::open(&after, &wanted.closed));
    if let Some((key, _)) = open.iter().find(|c| !open_before.contains(c)) {
        return Err(Denial::loses_keep_out(key));
    }
    if let (true, Some((key, _))) = (lifted, open.first()) {
        return Err(Denial::lifts_gates(&format!(
            "it tolerates pools' taints, and no required node affinity on {key} keeps it off them"
        )));
    }
    Ok(())
}
