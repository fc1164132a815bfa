//! Pods that are created: pins a tenant's pod to its pool and keeps a non-tenant pod off the pools.
//!
//! Called by [`evaluate`](crate::evaluate()) for the webhook, by `croft plan`, by the audit and by the controller.

use crate::{
    definitions::{POOL_NAME_LABEL, Rule},
    denial::Denial,
    outcome::Outcome,
    patch::{Patch, Path},
    request::{
        review::Request,
        view::{Annotations, Metadata, Pod, PodSpec},
    },
    rules::{
        binding, injection, keep_out,
        node_affinity::{MissingExpressions, excludes_label},
        pool_choice,
    },
    tenancy::{
        declarations::DeclaredPool,
        index::{NamespaceTenancy, Tenants},
    },
};

/// Plans a pod of `namespace`, as the mutating webhook does when it is created.
///
/// Paths of the patch are the pod's.
///
/// ```
/// use croft_policy::{Config, Rule, Tenants, plan_pod, view::Pod};
///
/// let tenants = Tenants::offline(Config::default(), vec![], vec![], vec![], vec![]);
/// let outcome = plan_pod(&tenants, "default", &Pod::default());
/// assert_eq!(outcome.rule, Rule::NonTenant);
/// assert!(outcome.allowed() && outcome.patch.is_empty());
/// ```
#[must_use]
pub fn plan_pod<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Outcome<'t> {
    let outcome = plan(tenants, namespace, Some(&pod.metadata), &pod.spec, &Path::new("/spec"));
    let tenancy = tenants.tenancy(namespace);
    // Admission asks more than once, and the namespace may get its tenant in between.
    match (tenancy.tenant(), excluded_pool(tenants, &outcome, &pod.spec)) {
        (Some(tenant), Some(pool)) => Outcome {
            pool: outcome.pool,
            source: outcome.source,
            ..Outcome::deny(Denial::excludes_pool(&tenant.name, &pool.name)).in_namespace(tenancy)
        },
        _ => outcome,
    }
}

/// Plans a pod that is about to be created in `namespace`, as admission does: [`plan_pod`], unless every pod of the namespace is
/// refused, because its tenant's objects aren't there yet or because owners created it beyond their number.
#[must_use]
pub fn plan_created<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Outcome<'t> {
    match check_open(tenants, namespace) {
        Err(denial) => Outcome::deny(denial).in_namespace(tenants.tenancy(namespace)),
        Ok(()) => plan_pod(tenants, namespace, pod),
    }
}

fn check_open(tenants: &Tenants, namespace: &str) -> Result<(), Denial> {
    if !tenants.may_be_closed(namespace) {
        return Ok(());
    }
    match tenants.surplus(namespace) {
        Some(surplus) => Err(Denial::namespace_surplus(namespace, &surplus)),
        None if tenants.awaits_objects(namespace) => Err(Denial::namespace_incomplete(namespace)),
        None => Ok(()),
    }
}

/// The chosen pool, if the required node affinity keeps the pod off its nodes, as Croft writes it into non-tenant pods.
fn excluded_pool<'t>(
    tenants: &'t Tenants,
    outcome: &Outcome<'t>,
    spec: &PodSpec<'_>,
) -> Option<&'t DeclaredPool> {
    // Few pods have terms: the others need no look-up.
    spec.terms()?;
    let declarations = tenants.declarations();
    let pool = declarations.pool(declarations.pool_id(outcome.pool?)?)?;
    excludes_label(spec, POOL_NAME_LABEL, pool.pool_name_label()).then_some(pool)
}

/// Plans a pending pod as admission would plan the pod that its controller creates in its place.
///
/// Selector entries for pools that the namespace has lost are left out, and so is an affinity that excludes its own pool,
/// since the template hardly has them.
#[must_use]
pub fn plan_recreated<'t>(tenants: &'t Tenants, namespace: &str, pod: &Pod<'_>) -> Outcome<'t> {
    let mut spec = pod.spec.clone();
    for key in lost_pins(tenants, namespace, &spec) {
        if let Some(selector) = &mut spec.node_selector {
            selector.remove(&key);
        }
    }
    let planned = plan(tenants, namespace, Some(&pod.metadata), &spec, &Path::new("/spec"));
    if excluded_pool(tenants, &planned, &spec).is_none() {
        return planned;
    }
    spec.affinity = None;
    plan(tenants, namespace, Some(&pod.metadata), &spec, &Path::new("/spec"))
}

/// Keys of the node selector that pin a pod to a pool which the namespace may not use any more.
#[must_use]
pub fn lost_pins(tenants: &Tenants, namespace: &str, spec: &PodSpec<'_>) -> Vec<String> {
    let declarations = tenants.declarations();
    let tenancy = tenants.tenancy(namespace);
    let may_use = |pool| match tenancy {
        NamespaceTenancy::Tenant { tenant, .. } => tenant.may_use(pool),
        NamespaceTenancy::NonTenant => declarations.pool(pool).is_some_and(|p| p.is_shared_with(namespace)),
        NamespaceTenancy::Exempt | NamespaceTenancy::Unknown | NamespaceTenancy::TenantUnreadable => true,
    };
    let is_lost = |key: &str, value: &str| {
        declarations.key(key).is_some_and(|of_key| !of_key.pool(value).is_some_and(may_use))
    };
    let entries = spec.node_selector.iter().flat_map(|selector| selector.iter());
    entries.filter(|(key, value)| is_lost(key, value)).map(|(key, _)| key.to_string()).collect()
}

/// Plans the pods of a spec that is at `path` of its object.
pub(crate) fn plan<'t>(
    tenants: &'t Tenants,
    namespace: &str,
    metadata: Option<&Metadata<'_>>,
    spec: &PodSpec<'_>,
    path: &Path,
) -> Outcome<'t> {
    let tenancy = tenants.tenancy(namespace);
    let mut patch = Patch::default();
    match tenancy {
        NamespaceTenancy::Exempt => Outcome::allow(Rule::Exempt),
        NamespaceTenancy::Unknown => Outcome::deny(Denial::unknown_namespace(namespace)),
        NamespaceTenancy::TenantUnreadable => Outcome::deny(Denial::tenant_unreadable(namespace)),
        NamespaceTenancy::Tenant { tenant, default_pool } => {
            match pool_choice::choose(tenants, tenant, namespace, default_pool, metadata, spec) {
                Err(denial) => Outcome::deny(denial),
                Ok(choice) => {
                    injection::write(spec, &choice, path, &mut patch);
                    let rule = if patch.is_empty() { Rule::NoChange } else { Rule::Pinned };
                    let mut warnings = choice.warnings;
                    warnings.extend(metadata.into_iter().flat_map(Metadata::unreadable_annotations));
                    Outcome {
                        pool: Some(&*choice.pool.name),
                        source: Some(choice.source),
                        warnings,
                        ..Outcome::allow(rule)
                    }
                }
            }
        }
        NamespaceTenancy::NonTenant => {
            let decided = check_named_node(tenants, tenancy, namespace, spec)
                .and_then(|()| keep_out::plan(tenants, namespace, spec))
                .and_then(|k| {
                    MissingExpressions::find(spec, &k.exclusions)?.write(spec, path, &mut patch);
                    Ok(k)
                });
            match decided {
                Err(denial) => Outcome::deny(denial),
                Ok(keep_out) => Outcome { warnings: keep_out.warnings, ..Outcome::allow(keep_out.rule) },
            }
        }
    }
    .with_patch(patch)
    .in_namespace(tenancy)
}

/// Checks `spec.nodeName`, if the spec has one.
///
/// # Errors
/// If pods of the namespace may not run on that node.
pub(crate) fn check_named_node(
    tenants: &Tenants,
    tenancy: NamespaceTenancy<'_>,
    namespace: &str,
    spec: &PodSpec<'_>,
) -> Result<(), Denial> {
    if spec.node_name.is_empty() {
        return Ok(());
    }
    binding::check_node(tenants, tenancy, namespace, "spec.nodeName", &spec.node_name).map(|_| ())
}

/// Evaluates the creation of a pod; `is_final` in the validating phase, after every mutating webhook.
///
/// A `deletionTimestamp` doesn't exempt the pod: server-side apply stores the one that it is given.
pub(crate) fn evaluate_create<'t>(
    tenants: &'t Tenants,
    request: &Request<'_>,
    pod: &Pod<'_>,
    is_final: bool,
) -> Outcome<'t> {
    let namespace = request.namespace.as_str();
    if is_mirror(request, pod) {
        return evaluate_mirror(tenants, namespace, &pod.spec.node_name);
    }
    let outcome = plan_created(tenants, namespace, pod);
    if !is_final || outcome.patch.is_empty() {
        return outcome;
    }
    // The pod is final, and something is still missing.
    let tenancy = tenants.tenancy(namespace);
    let declarations = tenants.declarations();
    let denial = match (tenancy, outcome.pool.and_then(|p| declarations.pool_id(p))) {
        (NamespaceTenancy::Tenant { tenant, .. }, Some(pool)) => declarations
            .pool(pool)
            .and_then(|pool| injection::check_final(tenant, &pod.spec, pool).err())
            .unwrap_or_else(|| Denial::not_placed(&tenant.name, "a selector without foreign pools")),
        _ => Denial::not_kept_out(namespace),
    };
    Outcome { pool: outcome.pool, source: outcome.source, ..Outcome::deny(denial).in_namespace(tenancy) }
}

fn is_mirror(request: &Request<'_>, pod: &Pod<'_>) -> bool {
    let annotated = |a: &Annotations<'_>| a.mirror.is_some();
    pod.metadata.annotations.as_ref().is_some_and(annotated)
        && !pod.spec.node_name.is_empty()
        && request.user.username.strip_prefix("system:node:") == Some(&*pod.spec.node_name)
}

/// Evaluates the mirror pod of a static pod.
///
/// A kubelet gives a mirror pod any labels, so that Services of a tenant may select it. In a tenant's namespace, only a
/// node of the tenant's pools may have one. The static pod itself runs in any case.
fn evaluate_mirror<'t>(tenants: &'t Tenants, namespace: &str, node: &str) -> Outcome<'t> {
    let tenancy = tenants.tenancy(namespace);
    match tenancy {
        NamespaceTenancy::Exempt | NamespaceTenancy::NonTenant => Outcome::allow(Rule::MirrorPod),
        NamespaceTenancy::Unknown => Outcome::deny(Denial::unknown_namespace(namespace)),
        NamespaceTenancy::TenantUnreadable => Outcome::deny(Denial::tenant_unreadable(namespace)),
        NamespaceTenancy::Tenant { tenant, .. } => {
            match binding::own_pools(tenants, tenant, "spec.nodeName", node) {
                Err(_) => {
                    let denial = Denial::mirror_outside(node, namespace, &tenant.name, &tenant.pool_names());
                    Outcome::deny(denial).in_namespace(tenancy)
                }
                Ok(own) => {
                    let pool =
                        own.first().and_then(|id| tenants.declarations().pool(*id)).map(|pool| &*pool.name);
                    Outcome { pool, ..Outcome::allow(Rule::MirrorPod) }.in_namespace(tenancy)
                }
            }
        }
    }
}
