//! Nodes that are named outright: `spec.nodeName`, and bindings.

use crate::{
    denial::Denial,
    index::{Ground, PoolRule, Tenants},
    model::Unassigned,
    place::own_pools,
};

/// The pool of a tenant that `node` is in, or `None` for a pod of nobody, if the node may be named.
///
/// # Errors
/// If a pod on this ground may not run there.
pub(crate) fn check_node<'t>(
    tenants: &'t Tenants,
    ground: Ground<'t>,
    namespace: &str,
    field: &str,
    node: &str,
) -> Result<Option<&'t PoolRule>, Denial> {
    match ground {
        Ground::Exempt => Ok(None),
        Ground::Unknown => Err(Denial::unknown_namespace(namespace)),
        Ground::Unread => Err(Denial::tenant_unread(namespace)),
        Ground::Tenant { tenant, .. } => {
            let own = own_pools(tenants, tenant, field, node)?;
            Ok(own.first().and_then(|id| tenants.rules().pool(*id)))
        }
        Ground::Nobody => check_stranger(tenants, namespace, field, node).map(|()| None),
    }
}

fn check_stranger(tenants: &Tenants, namespace: &str, field: &str, node: &str) -> Result<(), Denial> {
    let rules = tenants.rules();
    if rules.unassigned() == Unassigned::Allow || rules.is_shared_with(namespace) {
        return Ok(());
    }
    let Some(pools) = tenants.node(node) else { return Err(Denial::unknown_node(field, node)) };
    let closed =
        pools.reserved.iter().filter_map(|id| rules.pool(*id)).find(|p| !p.is_shared_with(namespace));
    if closed.is_some() || pools.orphan {
        return Err(Denial::node_of_pool(field, node, namespace, closed.map(|p| &*p.name)));
    }
    Ok(())
}
