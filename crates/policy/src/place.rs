//! A tenant's pod: which pool it goes to, and what it lacks to go there.

use std::collections::BTreeMap;

use crate::{
    denial::{Denial, Rule},
    index::{PoolId, PoolRule, TenantRule, Tenants},
    model::{MARK_KEY, OnConflict},
    patch::{Patch, Path},
    taint::{Effect, Operator},
    terms::Exclusion,
    view::{Metadata, PodSpec, Term},
};

/// What made a pod's pool the pod's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The node that it names.
    Node,
    /// Its node selector.
    Selector,
    /// Its annotation.
    Annotation,
    /// The annotation of its namespace.
    Default,
    /// It is the tenant's first.
    First,
}

/// Where a tenant's pod goes.
#[derive(Clone, Debug)]
pub struct Choice<'t> {
    /// The pool.
    pub pool: &'t PoolRule,
    /// Why this one.
    pub source: Source,
    /// Keys of foreign pools that Override takes out of the selector.
    pub(crate) drops: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// What Croft puts into a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Injection {
    /// Key and value for the selector.
    pub(crate) pin: Option<(String, String)>,
    /// Taints of the pool to tolerate exactly: key, value, effect.
    pub(crate) tolerations: Vec<(String, String, Effect)>,
    /// Expressions for the required terms, by key.
    pub(crate) keep_out: BTreeMap<String, Exclusion>,
}

/// Refuses what can't be judged.
pub(crate) fn check_operators(spec: &PodSpec<'_>) -> Result<(), Denial> {
    match spec.tolerations().iter().enumerate().find(|(_, t)| Operator::parse(&t.operator).is_none()) {
        Some((index, toleration)) => Err(Denial::unknown_operator(index, &toleration.operator)),
        None => Ok(()),
    }
}

/// Chooses the pool of a pod of `tenant`.
///
/// # Errors
/// If the pod or its namespace asks for what it can't have.
pub(crate) fn choose<'t>(
    tenants: &'t Tenants,
    tenant: &'t TenantRule,
    namespace: &str,
    default_pool: Option<&str>,
    metadata: Option<&Metadata<'_>>,
    spec: &PodSpec<'_>,
) -> Result<Choice<'t>, Denial> {
    check_operators(spec)?;
    let rules = tenants.rules();
    let rejects = tenant.on_conflict == OnConflict::Reject;
    let mut warnings = Vec::new();
    let (selected, drops) = selected(tenants, tenant, spec)?;
    let annotated = match metadata.and_then(Metadata::pool) {
        None => None,
        Some(name) => match named(tenant, name) {
            Some(found) => Some((name, found)),
            None if rejects => {
                return Err(Denial::foreign_annotation(&tenant.name, &tenant.pool_names(), name));
            }
            None => {
                warnings.push(format!(
                    "annotation croft.dev/pool: tenant {} may not use pool {name}; ignored",
                    tenant.name
                ));
                None
            }
        },
    };
    let defaulted = match default_pool {
        None => None,
        Some(name) => match named(tenant, name) {
            Some(found) => Some((name, found)),
            None if rejects => {
                return Err(Denial::foreign_default(&tenant.name, &tenant.pool_names(), namespace, name));
            }
            None => {
                warnings.push(format!(
                    "annotation croft.dev/pool of namespace {namespace}: tenant {} may not use pool {name}; ignored",
                    tenant.name
                ));
                None
            }
        },
    };
    let (pool, source) = if !spec.node_name.is_empty() {
        (node_choice(tenants, tenant, &spec.node_name, selected)?, Source::Node)
    } else if let Some(pool) = selected {
        (pool, Source::Selector)
    } else {
        let first = tenant.pools.first().map(|(name, id)| (&**name, *id));
        let wished = annotated
            .map(|w| (w, Source::Annotation))
            .or_else(|| defaulted.map(|w| (w, Source::Default)))
            .or_else(|| first.map(|w| (w, Source::First)));
        let Some(((name, id), source)) = wished else { return Err(Denial::no_pools(&tenant.name)) };
        (existing(tenants, tenant, name, id)?, source)
    };
    let Some(pool) = rules.pool(pool) else { return Err(Denial::no_pools(&tenant.name)) };
    for key in &drops {
        warnings.push(format!(
            "spec.nodeSelector: {key} asked for a pool that tenant {} may not use; moved to pool {}",
            tenant.name, pool.name
        ));
    }
    if spec.terms().is_some_and(|terms| !terms.is_empty() && !terms.iter().any(|t| can_hold(t, pool))) {
        warnings.push(format!(
            "spec.affinity.nodeAffinity: no required term can hold on nodes of pool {}, where tenant {} runs; the pod \
             will stay pending",
            pool.name, tenant.name
        ));
    }
    Ok(Choice { pool, source, drops, warnings })
}

/// The pool that the selector asks for, and the keys of foreign pools in it that Override drops.
fn selected(
    tenants: &Tenants,
    tenant: &TenantRule,
    spec: &PodSpec<'_>,
) -> Result<(Option<PoolId>, Vec<String>), Denial> {
    let rules = tenants.rules();
    let mut selected: Option<PoolId> = None;
    let mut drops = Vec::new();
    for (key, value) in spec.node_selector.iter().flat_map(|s| s.iter()) {
        let Some(of_key) = rules.key(key) else { continue };
        match of_key.pool(value) {
            Some(pool) if tenant.may_use(pool) => {
                if let Some(other) = selected.filter(|other| *other != pool) {
                    let name = |id| rules.pool(id).map_or("", |p| &p.name);
                    return Err(Denial::two_pools(&tenant.name, name(other), name(pool)));
                }
                selected = Some(pool);
            }
            foreign => {
                if foreign.is_none()
                    && tenant.pools.iter().any(|(name, id)| id.is_none() && **name == **value)
                {
                    return Err(missing(tenants, tenant, value));
                }
                if tenant.on_conflict == OnConflict::Reject {
                    let pool = foreign.and_then(|id| rules.pool(id)).map(|p| &*p.name);
                    return Err(Denial::foreign_selector(
                        &tenant.name,
                        &tenant.pool_names(),
                        key,
                        value,
                        pool,
                    ));
                }
                drops.push(key.to_string());
            }
        }
    }
    Ok((selected, drops))
}

/// The tenant's pool of this name; the inside is `None` if it doesn't exist.
fn named(tenant: &TenantRule, name: &str) -> Option<Option<PoolId>> {
    tenant.pools.iter().find(|(n, _)| **n == *name).map(|(_, id)| *id)
}

fn existing(
    tenants: &Tenants,
    tenant: &TenantRule,
    name: &str,
    id: Option<PoolId>,
) -> Result<PoolId, Denial> {
    id.ok_or_else(|| missing(tenants, tenant, name))
}

fn missing(tenants: &Tenants, tenant: &TenantRule, name: &str) -> Denial {
    let collision = tenants.rules().collisions().iter().find(|(pool, _)| **pool == *name);
    Denial::missing_pool(&tenant.name, name, collision.map(|(_, other)| &**other))
}

/// The tenant's pool that `node` is in, the selected one if it is in several.
fn node_choice(
    tenants: &Tenants,
    tenant: &TenantRule,
    node: &str,
    selected: Option<PoolId>,
) -> Result<PoolId, Denial> {
    let rules = tenants.rules();
    let own = own_pools(tenants, tenant, "spec.nodeName", node)?;
    let Some(chosen) = selected else {
        return own.first().copied().ok_or_else(|| Denial::no_pools(&tenant.name));
    };
    if own.contains(&chosen) {
        return Ok(chosen);
    }
    let name = |id: PoolId| rules.pool(id).map_or("", |p| &p.name);
    Err(Denial::node_contradicts(node, own.first().map_or("", |id| name(*id)), name(chosen)))
}

/// The tenant's pools that `node` is in; at least one.
///
/// # Errors
/// If there is none, or no such node.
pub(crate) fn own_pools(
    tenants: &Tenants,
    tenant: &TenantRule,
    field: &str,
    node: &str,
) -> Result<Vec<PoolId>, Denial> {
    let Some(pools) = tenants.node(node) else { return Err(Denial::unknown_node(field, node)) };
    let own: Vec<PoolId> = pools.labelled.iter().copied().filter(|id| tenant.may_use(*id)).collect();
    // A node that somebody labelled for a foreign pool too is the foreign pool's as much as the tenant's.
    if !own.is_empty() && own.len() == pools.labelled.len() {
        return Ok(own);
    }
    let other =
        pools.labelled.iter().find(|id| !tenant.may_use(**id)).and_then(|id| tenants.rules().pool(*id));
    Err(Denial::node_outside(field, node, &tenant.name, &tenant.pool_names(), other.map(|p| &*p.name)))
}

/// True unless an expression of `term` rules out every node of `pool`.
fn can_hold(term: &Term<'_>, pool: &PoolRule) -> bool {
    !term.is_empty()
        && term.expressions().iter().all(|e| {
            let value = match &*e.key {
                key if key == &*pool.key => &*pool.value,
                MARK_KEY => pool.mark(),
                _ => return true,
            };
            match e.operator.as_str() {
                "In" => e.values.iter().any(|v| v == value),
                "NotIn" => e.values.iter().all(|v| v != value),
                "DoesNotExist" => false,
                _ => true,
            }
        })
}

/// How a spec stands to one taint of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// It tolerates it, and for ever.
    Right,
    /// It doesn't tolerate it.
    Append,
    /// It tolerates it for a time only, by the toleration at this place.
    Before(usize),
}

/// The gated comparisons don't count here: with the gate off they tolerate nothing.
fn cover(spec: &PodSpec<'_>, pool: &PoolRule, effect: Effect) -> Cover {
    let first = spec.tolerations().iter().enumerate().find(|(_, t)| {
        t.parse().is_some_and(|p| {
            matches!(p.operator, Operator::Equal | Operator::Exists)
                && p.tolerates(&pool.key, &pool.value, effect)
        })
    });
    match first {
        None => Cover::Append,
        // Eviction takes the first toleration that matches, so one that ends must not come first.
        Some((at, t)) if effect == Effect::NoExecute && t.toleration_seconds.is_some() => Cover::Before(at),
        Some(_) => Cover::Right,
    }
}

/// What `spec` lacks to be in `pool`.
pub(crate) fn lacks(spec: &PodSpec<'_>, pool: &PoolRule) -> Injection {
    let pinned =
        spec.node_selector.as_ref().and_then(|s| s.get(&pool.key)).is_some_and(|v| **v == *pool.value);
    Injection {
        pin: (!pinned).then(|| (pool.key.to_string(), pool.value.to_string())),
        tolerations: pool
            .effects
            .iter()
            .filter(|effect| cover(spec, pool, *effect) != Cover::Right)
            .map(|effect| (pool.key.to_string(), pool.value.to_string(), effect))
            .collect(),
        keep_out: BTreeMap::new(),
    }
}

#[derive(serde::Serialize)]
struct Exact<'a> {
    key: &'a str,
    operator: &'static str,
    value: &'a str,
    effect: &'static str,
}

/// Writes into `patch` what the spec at `path` lacks to be in the choice's pool.
pub(crate) fn complete(spec: &PodSpec<'_>, choice: &Choice<'_>, path: &Path, patch: &mut Patch) {
    let pool = choice.pool;
    select(spec, choice, &path.key("nodeSelector"), patch);
    let list = path.key("tolerations");
    let (mut started, mut shift) = (spec.tolerations.is_some(), 0);
    for effect in pool.effects.iter() {
        let own = Exact { key: &pool.key, operator: "Equal", value: &pool.value, effect: effect.as_str() };
        match cover(spec, pool, effect) {
            Cover::Right => {}
            Cover::Append if started => patch.add(&list.end(), &own),
            Cover::Append => {
                patch.add(&list, &[own]);
                started = true;
            }
            Cover::Before(at) => {
                patch.add(&list.at(at + shift), &own);
                shift += 1;
            }
        }
    }
}

fn select(spec: &PodSpec<'_>, choice: &Choice<'_>, path: &Path, patch: &mut Patch) {
    let pool = choice.pool;
    for key in choice.drops.iter().filter(|key| **key != *pool.key) {
        patch.remove(&path.key(key));
    }
    match spec.node_selector.as_ref().map(|s| s.get(&pool.key)) {
        None => patch.add(path, &BTreeMap::from([(&*pool.key, &*pool.value)])),
        Some(None) => patch.add(&path.key(&pool.key), &&*pool.value),
        Some(Some(value)) if **value != *pool.value => patch.replace(&path.key(&pool.key), &&*pool.value),
        Some(Some(_)) => {}
    }
}

/// Why the final pod isn't in `pool`, if it isn't.
pub(crate) fn check_final(tenant: &TenantRule, spec: &PodSpec<'_>, pool: &PoolRule) -> Result<(), Denial> {
    let lacks = lacks(spec, pool);
    let what = match (&lacks.pin, lacks.tolerations.first()) {
        (Some((key, value)), _) => format!("spec.nodeSelector {key}={value}"),
        (None, Some((key, value, effect))) => format!("a toleration of {key}={value}:{effect}"),
        (None, None) => return Ok(()),
    };
    Err(Denial::not_placed(&tenant.name, &what))
}

/// The rule under which a pod with this patch is allowed.
pub(crate) fn rule(patch: &Patch) -> Rule {
    if patch.is_empty() { Rule::AlreadyRight } else { Rule::Pinned }
}
