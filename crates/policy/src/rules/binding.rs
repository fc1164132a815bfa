//! Nodes that are named outright: `spec.nodeName`, `pods/binding` and `bindings`.

use crate::{
    definitions::Rule,
    denial::Denial,
    outcome::Outcome,
    tenancy::{
        declarations::{DeclaredPool, DeclaredTenant, PoolId},
        index::{NamespaceTenancy, Tenants},
        model::NonTenantPods,
    },
};

/// Evaluates a binding of a pod in `namespace` to `node` by `user`.
///
/// A binding carries no pod, so that any pool of the tenant is accepted.
pub(crate) fn evaluate<'t>(tenants: &'t Tenants, user: &str, namespace: &str, node: &str) -> Outcome<'t> {
    if tenants.declarations().is_scheduler(user) {
        return Outcome::allow(Rule::Scheduler);
    }
    let tenancy = tenants.tenancy(namespace);
    if matches!(tenancy, NamespaceTenancy::Exempt) {
        return Outcome::allow(Rule::Exempt);
    }
    match check_node(tenants, tenancy, namespace, "target.name", node) {
        Err(denial) => Outcome::deny(denial).in_namespace(tenancy),
        Ok(pool) => {
            Outcome { pool: pool.map(|p| &*p.name), ..Outcome::allow(Rule::Placed) }.in_namespace(tenancy)
        }
    }
}

/// Checks that pods of `namespace` may run on `node`, which `field` names. Returns the tenant's pool that the node is
/// in, or `None` for a non-tenant pod.
///
/// # Errors
/// If they may not run there, or the node or the owner of the namespace is unknown.
pub(crate) fn check_node<'t>(
    tenants: &'t Tenants,
    tenancy: NamespaceTenancy<'t>,
    namespace: &str,
    field: &str,
    node: &str,
) -> Result<Option<&'t DeclaredPool>, Denial> {
    match tenancy {
        NamespaceTenancy::Exempt => Ok(None),
        NamespaceTenancy::Unknown => Err(Denial::unknown_namespace(namespace)),
        NamespaceTenancy::TenantUnreadable => Err(Denial::tenant_unreadable(namespace)),
        NamespaceTenancy::Tenant { tenant, .. } => {
            let own = own_pools(tenants, tenant, field, node)?;
            Ok(own.first().and_then(|id| tenants.declarations().pool(*id)))
        }
        NamespaceTenancy::NonTenant => check_non_tenant(tenants, namespace, field, node).map(|()| None),
    }
}

/// The tenant's pools that `node` is in; at least one.
///
/// # Errors
/// If the node is in none of them, is in a foreign pool as well, or is unknown.
pub(crate) fn own_pools(
    tenants: &Tenants,
    tenant: &DeclaredTenant,
    field: &str,
    node: &str,
) -> Result<Vec<PoolId>, Denial> {
    let Some(pools) = tenants.node(node) else { return Err(Denial::unknown_node(field, node)) };
    let own: Vec<PoolId> = pools.labelled.iter().copied().filter(|id| tenant.may_use(*id)).collect();
    // A node with the labels of a foreign pool as well belongs to that pool as much as to the tenant's.
    if !own.is_empty() && own.len() == pools.labelled.len() {
        return Ok(own);
    }
    let foreign = pools.labelled.iter().find(|id| !tenant.may_use(**id));
    let foreign = foreign.and_then(|id| tenants.declarations().pool(*id)).map(|pool| &*pool.name);
    Err(Denial::node_outside(field, node, &tenant.name, &tenant.pool_names(), foreign))
}

fn check_non_tenant(tenants: &Tenants, namespace: &str, field: &str, node: &str) -> Result<(), Denial> {
    let declarations = tenants.declarations();
    if declarations.non_tenant_pods() == NonTenantPods::Allow || declarations.is_shared_with(namespace) {
        return Ok(());
    }
    let Some(pools) = tenants.node(node) else { return Err(Denial::unknown_node(field, node)) };
    let closed =
        pools.reserved.iter().filter_map(|id| declarations.pool(*id)).find(|p| !p.is_shared_with(namespace));
    if closed.is_some() || pools.orphan {
        return Err(Denial::node_of_pool(field, node, namespace, closed.map(|p| &*p.name)));
    }
    Ok(())
}
