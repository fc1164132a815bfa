//! The pool of a tenant's pod: by node name, node selector, annotation of the pod or the namespace, or the first that could hold it.

use crate::{
    denial::Denial,
    outcome::PoolSource,
    request::view::{Metadata, PodSpec},
    rules::{
        binding::own_pools,
        obstacles::{Obstacle, is_dedicated, obstacles},
    },
    tenancy::{
        declarations::{Declarations, DeclaredPool, DeclaredTenant, PoolId},
        index::Tenants,
        model::OnConflict,
        node_template::{NodeTemplate, Siblings},
        taint::{Operator, Taint},
    },
};

/// The pool of a tenant's pod.
#[derive(Clone, Debug)]
pub(crate) struct PoolChoice<'t> {
    /// The pool.
    pub(crate) pool: &'t DeclaredPool,
    /// The reason for it.
    pub(crate) source: PoolSource,
    /// Keys of foreign pools that `onConflict: Override` takes out of the selector.
    pub(crate) dropped_keys: Vec<String>,
    /// Sentences that the API server shows to the user.
    pub(crate) warnings: Vec<String>,
}

/// Checks that the operator of each toleration is known.
///
/// # Errors
/// If one isn't, since the pools that the pod reaches are then unknown.
pub(crate) fn check_operators(spec: &PodSpec<'_>) -> Result<(), Denial> {
    match spec.tolerations().iter().enumerate().find(|(_, t)| Operator::parse(&t.operator).is_none()) {
        Some((index, toleration)) => Err(Denial::unknown_operator(index, &toleration.operator)),
        None => Ok(()),
    }
}

/// Chooses the pool of a pod of `tenant` in `namespace`, whose own annotation names `default_pool`.
///
/// # Errors
/// If the pod or its namespace asks for a pool that the tenant may not use, that doesn't exist, or for two pools at once;
/// if the named node is in none of the tenant's pools.
pub(crate) fn choose<'t>(
    tenants: &'t Tenants,
    tenant: &'t DeclaredTenant,
    namespace: &str,
    default_pool: Option<&str>,
    metadata: Option<&Metadata<'_>>,
    spec: &PodSpec<'_>,
) -> Result<PoolChoice<'t>, Denial> {
    check_operators(spec)?;
    let declarations = tenants.declarations();
    let rejects = tenant.on_conflict == OnConflict::Reject;
    let mut warnings = Vec::new();
    let (selected, dropped_keys) = selected(tenants, tenant, spec)?;
    let annotated = match metadata.and_then(Metadata::pool) {
        None => None,
        Some(name) => match pool_of_tenant(tenant, name) {
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
        Some(name) => match pool_of_tenant(tenant, name) {
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
        (pool_of_node(tenants, tenant, &spec.node_name, selected)?, PoolSource::Node)
    } else if let Some(pool) = selected {
        (pool, PoolSource::Selector)
    } else {
        let requested = annotated
            .map(|pool| (pool, PoolSource::Annotation))
            .or_else(|| defaulted.map(|pool| (pool, PoolSource::Default)))
            .or_else(|| first_fit(declarations, tenant, spec, &dropped_keys));
        let Some(((name, id), source)) = requested else { return Err(Denial::no_pools(&tenant.name)) };
        (id.ok_or_else(|| missing_pool(tenants, tenant, name))?, source)
    };
    let Some(pool) = declarations.pool(pool) else { return Err(Denial::no_pools(&tenant.name)) };
    for key in &dropped_keys {
        warnings.push(format!(
            "spec.nodeSelector: {key} asked for a pool that tenant {} may not use; moved to pool {}",
            tenant.name, pool.name
        ));
    }
    if spec.node_name.is_empty() {
        warnings.extend(misfit(declarations, tenant, pool, source, spec, &dropped_keys));
    }
    Ok(PoolChoice { pool, source, dropped_keys, warnings })
}

/// The pool that the selector asks for, and the keys of foreign pools in it that Override drops.
fn selected(
    tenants: &Tenants,
    tenant: &DeclaredTenant,
    spec: &PodSpec<'_>,
) -> Result<(Option<PoolId>, Vec<String>), Denial> {
    let declarations = tenants.declarations();
    let mut selected: Option<PoolId> = None;
    let mut dropped_keys = Vec::new();
    for (key, value) in spec.node_selector.iter().flat_map(|s| s.iter()) {
        let Some(of_key) = declarations.key(key) else { continue };
        match of_key.pool(value) {
            Some(pool) if tenant.may_use(pool) => {
                if let Some(other) = selected.filter(|other| *other != pool) {
                    let name = |id| declarations.pool(id).map_or("", |p| &p.name);
                    return Err(Denial::two_pools(&tenant.name, name(other), name(pool)));
                }
                selected = Some(pool);
            }
            foreign => {
                if foreign.is_none()
                    && tenant.pools.iter().any(|(name, id)| id.is_none() && **name == **value)
                {
                    return Err(missing_pool(tenants, tenant, value));
                }
                if tenant.on_conflict == OnConflict::Reject {
                    let pool = foreign.and_then(|id| declarations.pool(id)).map(|p| &*p.name);
                    return Err(Denial::foreign_selector(
                        &tenant.name,
                        &tenant.pool_names(),
                        key,
                        value,
                        pool,
                    ));
                }
                dropped_keys.push(key.to_string());
            }
        }
    }
    Ok((selected, dropped_keys))
}

/// The tenant's pool of this name; the inner option is `None` if the pool doesn't exist.
fn pool_of_tenant(tenant: &DeclaredTenant, name: &str) -> Option<Option<PoolId>> {
    tenant.pools.iter().find(|(n, _)| **n == *name).map(|(_, id)| *id)
}

fn missing_pool(tenants: &Tenants, tenant: &DeclaredTenant, name: &str) -> Denial {
    let collision = tenants.declarations().collisions().iter().find(|(pool, _)| **pool == *name);
    Denial::missing_pool(&tenant.name, name, collision.map(|(_, other)| &**other))
}

/// The tenant's pool that `node` is in; the selected one if the node is in several.
fn pool_of_node(
    tenants: &Tenants,
    tenant: &DeclaredTenant,
    node: &str,
    selected: Option<PoolId>,
) -> Result<PoolId, Denial> {
    let declarations = tenants.declarations();
    let own = own_pools(tenants, tenant, "spec.nodeName", node)?;
    let Some(selected) = selected else {
        return own.first().copied().ok_or_else(|| Denial::no_pools(&tenant.name));
    };
    if own.contains(&selected) {
        return Ok(selected);
    }
    let name = |id: PoolId| declarations.pool(id).map_or("", |p| &p.name);
    Err(Denial::node_contradicts(node, own.first().map_or("", |id| name(*id)), name(selected)))
}

/// The first of the tenant's pools whose nodes could hold the pod, or of those the first that is dedicated to a resource that the pod
/// needs; the first of all if none could. A pool that doesn't exist could hold any pod, which is refused then: it may be the one that is
/// meant.
fn first_fit<'t>(
    declarations: &Declarations,
    tenant: &'t DeclaredTenant,
    spec: &PodSpec<'_>,
    dropped: &[String],
) -> Option<((&'t str, Option<PoolId>), PoolSource)> {
    let named = |(name, id): &'t (Box<str>, Option<PoolId>)| (&**name, *id);
    let first = named(tenant.pools.first()?);
    if tenant.pools.len() == 1 || tenant.siblings.is_unknown {
        return Some((first, PoolSource::First));
    }
    let template = |id: Option<PoolId>| id.and_then(|id| declarations.pool(id)).map(|pool| &pool.template);
    let could_hold = |(_, id): &&(Box<str>, Option<PoolId>)| {
        template(*id).is_none_or(|t| kept_obstacles(t, spec, &tenant.siblings, dropped).next().is_none())
    };
    let is_dedicated = |(_, id): &&(Box<str>, Option<PoolId>)| {
        template(*id).is_some_and(|template| is_dedicated(template, spec))
    };
    let mut fitting = tenant.pools.iter().filter(could_hold);
    let fit = fitting.clone().find(is_dedicated).or_else(|| fitting.next()).map_or(first, named);
    Some((fit, if fit == first { PoolSource::First } else { PoolSource::Fit }))
}

/// The obstacles on nodes of `template`, without entries of the selector that are dropped.
fn kept_obstacles<'o>(
    template: &'o NodeTemplate,
    spec: &'o PodSpec<'_>,
    siblings: &Siblings,
    dropped: &[String],
) -> impl Iterator<Item = Obstacle<'o>> {
    obstacles(template, spec, siblings).filter(
        |obstacle| !matches!(obstacle, Obstacle::Selector { key, .. } if dropped.iter().any(|other| other == key)),
    )
}

/// Parts of a pod that are compared for a sentence.
const FAULTS: usize = 8;

/// A sentence about what keeps the pod off the nodes of the pool where it goes. If none of several pools could hold it, it is the part of
/// the pod that keeps it off all of them, or else what keeps it off the one that comes closest.
fn misfit(
    declarations: &Declarations,
    tenant: &DeclaredTenant,
    pool: &DeclaredPool,
    source: PoolSource,
    spec: &PodSpec<'_>,
    dropped: &[String],
) -> Option<String> {
    let Some(first) = kept_obstacles(&pool.template, spec, &tenant.siblings, dropped).next() else {
        return missing_resource(declarations, tenant, spec);
    };
    if source != PoolSource::First || tenant.pools.len() == 1 || tenant.siblings.is_unknown {
        let nodes = format!("nodes of pool {}, where tenant {} runs", pool.name, tenant.name);
        return Some(format!("{}; the pod will stay pending", sentence(first, &nodes)));
    }
    let of = |pool: &DeclaredPool| -> Vec<Obstacle<'_>> {
        let pool = declarations.pool(pool.id).map(|pool| &pool.template);
        pool.into_iter()
            .flat_map(|t| kept_obstacles(t, spec, &tenant.siblings, dropped))
            .take(FAULTS)
            .collect()
    };
    let pools = tenant.pools.iter().filter_map(|(_, id)| declarations.pool((*id)?));
    let found: Vec<(&DeclaredPool, Vec<Obstacle<'_>>)> = pools.map(|pool| (pool, of(pool))).collect();
    let everywhere = |fault: &&Obstacle<'_>| found.iter().all(|(_, obstacles)| obstacles.contains(fault));
    let own = found.iter().find(|(other, _)| other.id == pool.id)?;
    let (fault, nodes) = if let Some(fault) = own.1.iter().find(everywhere) {
        (fault, format!("nodes of any pool of tenant {}", tenant.name))
    } else {
        // A pool that has what the pod selects is meant sooner than one that would take any pod.
        let is_selected = |o: &Obstacle<'_>| !matches!(o, Obstacle::Selector { .. } | Obstacle::Affinity);
        let lacks = |(_, faults): &&(_, Vec<Obstacle<'_>>)| (faults.len(), !faults.iter().all(is_selected));
        let (nearest, faults) = found.iter().min_by_key(lacks)?;
        (faults.first()?, format!("nodes of pool {}, which comes closest", nearest.name))
    };
    Some(format!("{}; the pod goes to pool {} and will stay pending", sentence(*fault, &nodes), pool.name))
}

/// A sentence about an extended resource that the pod needs and no instance of the tenant's pools has.
fn missing_resource(
    declarations: &Declarations,
    tenant: &DeclaredTenant,
    spec: &PodSpec<'_>,
) -> Option<String> {
    let lacks = |name: &&str| {
        let pools = tenant.pools.iter().map(|(_, id)| id.and_then(|id| declarations.pool(id)));
        pools.into_iter().all(|pool| pool.is_some_and(|pool| pool.template.lacks(name)))
    };
    let name = spec.extended_resources().find(lacks)?;
    Some(format!(
        "spec.containers: no instance type of tenant {}'s pools has {name}; the pod will stay pending unless a node reports it",
        tenant.name
    ))
}

/// The part at fault, in words.
fn sentence(fault: Obstacle<'_>, nodes: &str) -> String {
    match fault {
        Obstacle::Selector { key, value } => {
            format!("spec.nodeSelector: {key}={value} can't hold on {nodes}")
        }
        Obstacle::Affinity => {
            format!("spec.affinity.nodeAffinity: no required term can hold on {nodes}")
        }
        Obstacle::Taint(Taint { key, value, effect }) => {
            let equals = if value.is_empty() { "" } else { "=" };
            format!("spec.tolerations: none tolerates {key}{equals}{value}:{effect}, which is on {nodes}")
        }
        Obstacle::Resource(name) => format!("spec.containers: there is no {name} on {nodes}"),
    }
}
