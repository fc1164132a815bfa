//! A pod of nobody: whether it could reach a pool's nodes, and what keeps it off them.

use rustc_hash::FxHashMap;

use crate::{
    denial::{Denial, Rule},
    index::{KeyRule, PoolId, PoolRule, Tenants},
    model::{MARK_KEY, UNREGISTERED_LABEL, UNREGISTERED_TAINT, Unassigned},
    place::check_operators,
    taint::{Effect, Effects, Operator},
    terms::Closed,
    view::PodSpec,
};

/// What is to be done with a pod of nobody.
#[derive(Clone, Debug)]
pub(crate) struct KeepOut {
    /// Expressions for every term, in the order of their keys.
    pub(crate) closed: Vec<Closed>,
    /// Why it is let through if there are none.
    pub(crate) rule: Rule,
    /// What the user should know.
    pub(crate) warnings: Vec<String>,
}

impl KeepOut {
    fn nothing(rule: Rule) -> Self {
        Self { closed: Vec::new(), rule, warnings: Vec::new() }
    }
}

/// Which taints of pools a pod tolerates, without a loop over tolerations times pools.
#[derive(Default)]
struct Reach<'p> {
    /// By tolerations without a key.
    any: Effects,
    /// By key, whatever the value.
    keys: FxHashMap<&'p str, KeyReach>,
    /// By key and value.
    pools: FxHashMap<PoolId, Effects>,
    /// By key, of whatever pools of that key are made later. The policy in the API server knows the keys but not
    /// the pools, and demands the keep-out for these too.
    future: Effects,
    /// The taint of nodes that have registered and don't have their pool's label yet.
    unregistered: bool,
}

#[derive(Clone, Copy, Default)]
struct KeyReach {
    exists: Effects,
    /// The greatest `Lt` and the least `Gt` by effect: whatever passes one of them passes all the others.
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

impl<'p> Reach<'p> {
    fn new(tenants: &Tenants, namespace: &str, spec: &'p PodSpec<'_>) -> Self {
        let mut reach = Self::default();
        for toleration in spec.tolerations() {
            let Some(parsed) = toleration.parse() else { continue };
            reach.unregistered |= (parsed.key.is_empty() || parsed.key == UNREGISTERED_TAINT)
                && parsed.effects.contains(Effect::NoExecute);
            if parsed.key.is_empty() {
                // Without a key only Exists is valid; what isn't valid is taken for the widest.
                reach.any = reach.any.or(parsed.effects);
                continue;
            }
            let rules = tenants.rules();
            let Some(key) = rules.key(parsed.key) else { continue };
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
                    let pool = key.pool(parsed.value).and_then(|id| rules.pool(id));
                    shared = pool.is_some_and(|p| p.is_shared_with(namespace));
                    // The mark of a pool with a key of its own is a label, not a taint.
                    if let Some(pool) = pool.filter(|p| *p.key == *parsed.key) {
                        let of_pool = reach.pools.entry(pool.id).or_default();
                        *of_pool = of_pool.or(parsed.effects);
                    }
                }
            }
            if !shared {
                reach.future = reach.future.or(parsed.effects);
            }
        }
        reach
    }

    fn is_empty(&self) -> bool {
        self.any.is_empty() && self.keys.is_empty() && self.pools.is_empty() && self.future.is_empty()
    }

    fn lets_onto(&self, pool: &PoolRule) -> bool {
        let by_key = self.keys.get(&*pool.key).map_or(Effects::NONE, |k| k.of(&pool.value));
        let by_pool = self.pools.get(&pool.id).copied().unwrap_or_default();
        self.any.or(by_key).or(by_pool).covers(pool.effects.and(Effects::HARD))
    }

    /// True if it could be let onto a pool that isn't there yet.
    fn lets_onto_future(&self) -> bool {
        !self.any.or(self.future).and(Effects::HARD).is_empty()
    }

    /// The pools that it can reach at all.
    fn candidates<'t>(&self, tenants: &'t Tenants) -> Vec<&'t PoolRule> {
        let rules = tenants.rules();
        if !self.any.is_empty() {
            return rules.pools().iter().filter(|p| self.lets_onto(p)).collect();
        }
        let of_keys = self.keys.keys().filter_map(|k| rules.key(k)).flat_map(KeyRule::pools).copied();
        let mut ids: Vec<PoolId> = of_keys.chain(self.pools.keys().copied()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().filter_map(|id| rules.pool(id)).filter(|p| self.lets_onto(p)).collect()
    }
}

/// Judges the spec of a pod in `namespace`, which belongs to nobody; node names aside.
///
/// # Errors
/// If it selects a pool, or reaches one where that is refused.
pub(crate) fn decide(tenants: &Tenants, namespace: &str, spec: &PodSpec<'_>) -> Result<KeepOut, Denial> {
    let rules = tenants.rules();
    if rules.unassigned() == Unassigned::Allow {
        return Ok(KeepOut::nothing(Rule::Unassigned));
    }
    check_operators(spec)?;
    if rules.is_shared_with(namespace) {
        return Ok(KeepOut::nothing(Rule::Shared));
    }
    for (key, value) in spec.node_selector.iter().flat_map(|s| s.iter()) {
        let pool = rules.by_label(key, value).and_then(|id| rules.pool(id));
        if let Some(pool) = pool.filter(|p| !p.is_shared_with(namespace)) {
            return Err(Denial::stranger_selects(namespace, key, value, &pool.name));
        }
    }
    let reach = Reach::new(tenants, namespace, spec);
    if reach.is_empty() {
        return Ok(KeepOut::nothing(Rule::Unassigned));
    }
    let mut reached = reach.candidates(tenants);
    reached.retain(|pool| !pool.is_shared_with(namespace));
    if let Some(first) = reached.first() {
        if rules.unassigned() == Unassigned::Reject {
            return Err(Denial::stranger_tolerates(namespace, &first.name));
        }
    } else if !reach.lets_onto_future() {
        return Ok(KeepOut::nothing(Rule::Unassigned));
    }
    let mut keys: Vec<&str> = reached.iter().map(|pool| &*pool.key).chain([MARK_KEY]).collect();
    keys.extend(reach.unregistered.then_some(UNREGISTERED_LABEL));
    keys.sort_unstable();
    keys.dedup();
    let closed: Vec<Closed> = keys.into_iter().filter_map(|key| close(tenants, namespace, key)).collect();
    let warnings = spec
        .node_selector
        .iter()
        .flat_map(|s| s.iter())
        .filter(|(key, value)| closed.iter().any(|(k, values)| k == &***key && (values.is_empty() || values.contains(&value.to_string()))))
        .map(|(key, value)| {
            format!(
                "spec.nodeSelector asks for {key}={value}, but {key} is the key of tenants' pools and the pod tolerates \
                 their taints, so it is kept off nodes with that label and will stay pending; tolerate only the taints \
                 that you mean"
            )
        })
        .collect();
    Ok(KeepOut { closed, rule: Rule::KeptOut, warnings })
}

/// What closes `key` to a pod of `namespace`, or `None` if nothing of it is closed.
fn close(tenants: &Tenants, namespace: &str, key: &str) -> Option<Closed> {
    let rules = tenants.rules();
    let pools = || rules.key(key).into_iter().flat_map(KeyRule::pools).filter_map(|id| rules.pool(*id));
    if !pools().any(|pool| pool.is_shared_with(namespace)) {
        return Some((key.to_owned(), Vec::new()));
    }
    let label =
        |pool: &PoolRule| if key == MARK_KEY { pool.mark().to_owned() } else { pool.value.to_string() };
    let mut others: Vec<String> = pools().filter(|pool| !pool.is_shared_with(namespace)).map(label).collect();
    others.sort_unstable();
    (!others.is_empty()).then(|| (key.to_owned(), others))
}
