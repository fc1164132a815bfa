//! The property: no foreign pod is bound to a node of the pool, and no pod of a tenant outside.

use croft_policy::{
    definitions::{POOL_NAME_LABEL, parameter::NON_TENANT_PODS},
    policies::parameters::INACTIVE,
};

use crate::{declared::NamespaceKind, nodes::Node, world::World};

/// No foreign pod is bound to a node of the pool.
pub const INSIDE: &str = "no foreign pod is bound to a node of the pool";
/// No pod of a tenant is bound to a node outside of the tenant's pools.
pub const OUTSIDE: &str = "no pod of a tenant is bound outside";
/// Without it the search would say nothing.
pub const BINDS: &str = "a pod is bound where it may run";

/// How a pod was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Where it may run.
    Allowed,
    /// To a node of a pool that isn't open to it.
    Inside,
    /// To a node that is in none of its tenant's pools.
    Outside,
}

/// The part of a pod's past that counts.
#[derive(Clone, Copy, Debug)]
pub struct PodHistory {
    /// The kind of its namespace.
    pub namespace: NamespaceKind,
    /// Its namespace is entitled to the pool, or was at some time since its creation.
    pub entitled: bool,
    /// It was created in the namespace of a tenant that was enforced.
    pub enforced: bool,
}

/// True if the pool is in force, or was since it was created: a tenant is enforced, the pool is accepted, the policies' parameters name
/// it, and the webhook has seen it and has written its configurations since. Until then nothing is promised about the pool, however
/// long that takes.
pub(crate) fn is_closed(world: &World, is_accepted: bool) -> bool {
    let mode = world.parameters.get(NON_TENANT_PODS).map(String::as_str);
    let is_in_force = || {
        is_accepted
            && world.names_pool()
            && !matches!(mode, None | Some("" | INACTIVE))
            && world.seen.declared.pool.is_some()
            && world.registered.as_ref().is_some_and(|registered| registered.declared.pool.is_some())
    };
    world.declared.pool.is_some() && (world.closed || is_in_force())
}

/// Evaluates a binding by the declarations that are in force then. A pod that was entitled to the pool before an edit may still be
/// bound there: the controller takes it back afterwards. A pod of a tenant is held to its pools if the tenant was enforced when
/// the pod was created: until then the Tenant isn't Ready.
#[must_use]
pub fn binding(world: &World, is_accepted: bool, node: &Node, pod: &PodHistory) -> Binding {
    if node.of_pool && world.declared.pool.is_some() {
        let is_known = !node.is_from_before || node.label(POOL_NAME_LABEL).is_some();
        return if pod.entitled || !is_known || !is_closed(world, is_accepted) {
            Binding::Allowed
        } else {
            Binding::Inside
        };
    }
    let outside = !node.of_pool && pod.enforced && world.declared.is_tenants(pod.namespace);
    if outside { Binding::Outside } else { Binding::Allowed }
}
