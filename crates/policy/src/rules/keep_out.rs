//! Non-tenant pods: whether their tolerations let them onto the nodes of pools, and the node affinity that keeps them off.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::{
    definitions::{POOL_NAME_LABEL, Rule, UNREGISTERED_LABEL, UNREGISTERED_TAINT},
    denial::Denial,
    request::view::PodSpec,
    rules::{node_affinity::KeyExclusion, pool_choice::check_operators},
    tenancy::{
        declarations::{DeclaredKey, DeclaredPool, PoolId},
        index::{NamespaceTenancy, Tenants},
        model::NonTenantPods,
        taint::{Effect, Effects, Operator},
    },
};

/// The affinity that keeps a non-tenant pod off the pools.
#[derive(Clone, Debug)]
pub(crate) struct KeepOut {
    /// Expressions for every required term, sorted by key; empty if the pod needs none.
    pub(crate) exclusions: Vec<KeyExclusion>,
    /// The rule by which the pod is allowed.
    pub(crate) rule: Rule,
    /// Sentences that the API server shows to the user.
    pub(crate) warnings: Vec<String>,
}

impl KeepOut {
    fn nothing(rule: Rule) -> Self {
        Self { exclusions: Vec::new(), rule, warnings: Vec::new() }
    }
}

/// The taints of pools that a pod tolerates, compiled so that no look-up loops over tolerations times pools.
#[derive(Default)]
struct TolerationReach<'p> {
    /// By tolerations without a key.
    any: Effects,
    /// By key, whatever the value.
    keys: FxHashMap<&'p str, KeyReach>,
    /// By key and value.
    pools: FxHashMap<PoolId, Effects>,
    /// The keys that hard tolerations name: of pools, also those that are created later, and of the taint of nodes that have
    /// registered and don't have their pool's label yet. The admission policies know the keys but not the pools.
    named: BTreeSet<&'p str>,
}

#[derive(Clone, Copy, Default)]
struct KeyReach {
    exists: Effects,
    /// The greatest `Lt` and the least `Gt` by effect: a value that passes one of them passes all others.
    below: [Option<i64>; 3],
    above: [Option<i64>; 3],
}

impl KeyReach {
    fn compare(&mut self, effects: Effects, operator: Operator, value: &str) {
        let Ok(value) = value.parse::<i64>() else { return };
        let bounds = if operator == Operator::Lt { &mut self.below } else { &mut self.above };
        for (bound, effect) in bounds.iter_mut().zip(Effect::ALL) {
            if effects.contains(effect) {
                *bound =
                    Some(bound.map_or(value, |b| {
                        if operator == Operator::Lt { b.max(value) } else { b.min(value) }
                    }));
            }
        }
    }

    fn of(&self, value: &str) -> Effects {
        let Ok(value) = value.parse::<i64>() else { return self.exists };
        let passes = Effect::ALL.iter().zip(self.below.iter().zip(&self.above)).filter_map(
            |(effect, (below, above))| {
                (below.is_some_and(|b| value < b) || above.is_some_and(|a| value > a)).then_some(*effect)
            },
        );
        self.exists.or(passes.collect())
    }
}

impl<'p> TolerationReach<'p> {
    fn new(tenants: &Tenants, namespace: &str, spec: &'p PodSpec<'_>) -> Self {
        let mut reach = Self::default();
        for toleration in spec.tolerations() {
            let Some(parsed) = toleration.parse() else { continue };
            if parsed.key.is_empty() {
                // Without a key only Exists is valid. Any other operator counts as Exists, the widest.
                reach.any = reach.any.or(parsed.effects);
                continue;
            }
            let is_hard = !parsed.effects.and(Effects::HARD).is_empty();
            if is_hard && parsed.key == UNREGISTERED_TAINT {
                reach.named.insert(parsed.key);
            }
            let declarations = tenants.declarations();
            let Some(key) = declarations.key(parsed.key) else { continue };
            let mut shared = false;
            match parsed.operator {
                Operator::Exists => {
                    let of_key = reach.keys.entry(parsed.key).or_default();
                    of_key.exists = of_key.exists.or(parsed.effects);
                }
                Operator::Lt | Operator::Gt => {
                    reach.keys.entry(parsed.key).or_default().compare(
                        parsed.effects,
                        parsed.operator,
                        parsed.value,
                    );
                }
                Operator::Equal => {
                    let pool = key.pool(parsed.value).and_then(|id| declarations.pool(id));
                    shared = pool.is_some_and(|p| p.is_shared_with(namespace));
                    // The pool-name label of a pool with a key of its own is no taint.
                    if let Some(pool) = pool.filter(|p| *p.key == *parsed.key) {
                        let of_pool = reach.pools.entry(pool.id).or_default();
                        *of_pool = of_pool.or(parsed.effects);
                    }
                }
            }
            if is_hard && !shared {
                reach.named.insert(parsed.key);
            }
        }
        reach
    }

    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.keys.is_empty() && self.pools.is_empty() && self.named.is_empty()
    }

    fn lets_onto(&self, pool: &DeclaredPool) -> bool {
        let by_key = self.keys.get(&*pool.key).map_or(Effects::NONE, |k| k.of(&pool.value));
        let by_pool = self.pools.get(&pool.id).copied().unwrap_or_default();
        self.any.or(by_key).or(by_pool).covers(pool.effects.and(Effects::HARD))
    }

    /// The declared keys of taints that the pod tolerates, whatever pools there are: a pool that is created later may have any
    /// of them, and a node carries its pool's own key before it carries the built-in one.
    fn tolerated_keys<'k>(&'k self, tenants: &'k Tenants) -> Vec<&'k str> {
        if self.any.and(Effects::HARD).is_empty() {
            return self.named.iter().copied().collect();
        }
        tenants.declarations().keys()
    }

    /// The pools that the pod can reach.
    fn candidates<'t>(&self, tenants: &'t Tenants) -> Vec<&'t DeclaredPool> {
        let declarations = tenants.declarations();
        if !self.any.is_empty() {
            return declarations.pools().iter().filter(|p| self.lets_onto(p)).collect();
        }
        let of_keys =
            self.keys.keys().filter_map(|k| declarations.key(k)).flat_map(DeclaredKey::pools).copied();
        let mut ids: Vec<PoolId> = of_keys.chain(self.pools.keys().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter_map(|id| declarations.pool(id)).filter(|p| self.lets_onto(p)).collect()
    }
}

/// The pools that are not open to the pods of `namespace` and whose taints `spec` tolerates. Whether its selector and affinity
/// keep it off them is for [`plan_pod`](crate::plan_pod) to say.
pub(crate) fn foreign_pools<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    spec: &PodSpec<'_>,
) -> Vec<&'t DeclaredPool> {
    let is_foreign: &dyn Fn(&&DeclaredPool) -> bool = match tenants.tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, .. } => &|pool| !tenant.may_use(pool.id),
        NamespaceTenancy::NonTenant => &|pool| !pool.is_shared_with(namespace),
        NamespaceTenancy::Exempt | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => {
            return Vec::new();
        }
    };
    let mut pools = TolerationReach::new(tenants, namespace, spec).candidates(tenants);
    pools.retain(is_foreign);
    pools
}

/// Plans the spec of a pod in `namespace`, a non-tenant namespace. `spec.nodeName` is checked elsewhere.
///
/// # Errors
/// If the spec selects a pool, or if it tolerates one and `nonTenantPods` is `Reject`.
pub(crate) fn plan(tenants: &Tenants, namespace: &str, spec: &PodSpec<'_>) -> Result<KeepOut, Denial> {
    let declarations = tenants.declarations();
    if declarations.non_tenant_pods() == NonTenantPods::Allow {
        return Ok(KeepOut::nothing(Rule::NonTenant));
    }
    check_operators(spec)?;
    if declarations.is_shared_with(namespace) {
        return Ok(KeepOut::nothing(Rule::Shared));
    }
    for (key, value) in spec.node_selector.iter().flat_map(|s| s.iter()) {
        let pool = declarations.pool_by_label(key, value).and_then(|id| declarations.pool(id));
        if let Some(pool) = pool.filter(|p| !p.is_shared_with(namespace)) {
            return Err(Denial::non_tenant_selects(namespace, key, value, &pool.name));
        }
    }
    let reach = TolerationReach::new(tenants, namespace, spec);
    if reach.is_empty() {
        return Ok(KeepOut::nothing(Rule::NonTenant));
    }
    let mut reached = reach.candidates(tenants);
    reached.retain(|pool| !pool.is_shared_with(namespace));
    if let Some(first) = reached.first()
        && declarations.non_tenant_pods() == NonTenantPods::Reject
    {
        return Err(Denial::non_tenant_tolerates(namespace, &first.name));
    }
    let tolerated = reach.tolerated_keys(tenants);
    if reached.is_empty() && tolerated.is_empty() && reach.any.and(Effects::HARD).is_empty() {
        return Ok(KeepOut::nothing(Rule::NonTenant));
    }
    // The starting label whatever the pod tolerates now: its affinity is final, and its tolerations are not.
    let closed = [POOL_NAME_LABEL, UNREGISTERED_LABEL];
    let mut keys: Vec<&str> = reached.iter().map(|pool| &*pool.key).chain(tolerated).chain(closed).collect();
    keys.sort_unstable();
    keys.dedup();
    let exclusions: Vec<KeyExclusion> =
        keys.into_iter().filter_map(|key| exclusion(tenants, namespace, key)).collect();
    let warnings = spec
        .node_selector
        .iter()
        .flat_map(|s| s.iter())
        .filter(|(key, value)| {
            exclusions.iter().any(|e| {
                e.key == ***key && (e.values.is_empty() || e.values.contains(&value.to_string()))
            })
        })
        .map(|(key, value)| {
            format!(
                "spec.nodeSelector asks for {key}={value}, but {key} is the key of tenants' pools and the pod tolerates \
                 their taints, so it is kept off nodes with that label and will stay pending; tolerate only the taints \
                 that you mean"
            )
        })
        .collect();
    Ok(KeepOut { exclusions, rule: Rule::KeptOut, warnings })
}

/// The expression that keeps pods of `namespace` off the pools of `key`; `None` if all of them are shared with it.
fn exclusion(tenants: &Tenants, namespace: &str, key: &str) -> Option<KeyExclusion> {
    let declarations = tenants.declarations();
    let pools = || {
        declarations.key(key).into_iter().flat_map(DeclaredKey::pools).filter_map(|id| declarations.pool(*id))
    };
    if !pools().any(|pool| pool.is_shared_with(namespace)) {
        return Some(KeyExclusion { key: key.to_owned(), values: Vec::new() });
    }
    let label = |pool: &DeclaredPool| {
        if key == POOL_NAME_LABEL { pool.pool_name_label().to_owned() } else { pool.value.to_string() }
    };
    let mut others: Vec<String> = pools().filter(|pool| !pool.is_shared_with(namespace)).map(label).collect();
    others.sort_unstable();
    (!others.is_empty()).then(|| KeyExclusion { key: key.to_owned(), values: others })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparing_tolerations_reach_values_below_the_greatest_and_above_the_least() {
        let mut reach = KeyReach::default();
        let (soft, hard) = (Effects::of_toleration("NoSchedule"), Effects::of_toleration("NoExecute"));
        for (effects, operator, value) in [
            (soft, Operator::Lt, "3"),
            (soft, Operator::Lt, "5"),
            (soft, Operator::Gt, "12"),
            (soft, Operator::Gt, "9"),
            (hard, Operator::Lt, "4"),
            (soft, Operator::Lt, "many"),
        ] {
            reach.compare(effects, operator, value);
        }
        let both = soft.or(hard);
        let none = Effects::NONE;
        for (value, effects) in
            [("3", both), ("4", soft), ("5", none), ("9", none), ("10", soft), ("many", none)]
        {
            assert_eq!(reach.of(value), effects, "{value}");
        }
    }
}
