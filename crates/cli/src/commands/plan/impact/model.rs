//! The result types.

use croft_scheduler::Price;
use serde::Serialize;

/// The effects of an edit.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Impact {
    /// The objects of the edit.
    pub(crate) objects: Vec<Edited>,
    /// Pods that are evicted, recreated, or reported as misplaced.
    pub(crate) pods: Vec<PodImpact>,
    /// DaemonSets whose template changes, which replaces their pods.
    pub(crate) daemon_sets: Vec<DaemonSetImpact>,
    /// Objects in tenants' namespaces, quotas that are used up, and namespaces beyond a maximum.
    pub(crate) given: Vec<GivenImpact>,
    /// Nodes that are replaced or terminated.
    pub(crate) nodes: Vec<NodeImpact>,
    /// Instances that are launched because of the edit.
    pub(crate) launched: Vec<Launched>,
    /// Pods that are pending after the edit and wouldn't be without it.
    pub(crate) pending: Vec<Pending>,
    /// Total price of the instances before the edit, in dollars per hour.
    pub(crate) cost_per_hour_before: Price,
    /// The same after the edit.
    pub(crate) cost_per_hour_after: Price,
    /// Instances of unknown price, which the total before the edit leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) instances_of_unknown_price_before: usize,
    /// The same after the edit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) instances_of_unknown_price_after: usize,
    #[serde(skip)]
    pub(super) warnings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// An object of the edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Edited {
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// `created`, `changed`, `unchanged` or `removed`.
    pub(crate) change: &'static str,
}

/// The effect on a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PodImpact {
    /// Namespace and name.
    pub(crate) pod: String,
    /// `evicted`, `recreated`, `refused`, or `reported`: Croft only reports it.
    pub(crate) action: &'static str,
    /// Why.
    pub(crate) why: String,
}

/// The effect on a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DaemonSetImpact {
    /// Namespace and name.
    pub(crate) daemon_set: String,
    /// `rewritten` or `refused`.
    pub(crate) action: &'static str,
    /// Why.
    pub(crate) why: String,
}

/// The effect on what a Tenant gives to its namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct GivenImpact {
    /// Kind, namespace and name.
    pub(crate) object: String,
    /// `created`, `changed` or `removed`; `exceeded` for a quota below what is used; `closed` for a namespace.
    pub(crate) action: &'static str,
    /// Why.
    pub(crate) why: String,
}

/// The effect on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeImpact {
    /// The node.
    pub(crate) node: String,
    /// Its NodeClaim.
    pub(crate) claim: String,
    /// Its pool.
    pub(crate) pool: String,
    /// `Drifted`, `Expired`, `Empty`, `ScaledDown` or `PoolRemoved`.
    pub(crate) reason: &'static str,
    /// Changed fields, or the cause in words.
    pub(crate) detail: String,
}

/// Equal instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Launched {
    /// The pool.
    pub(crate) pool: String,
    /// Their type.
    pub(crate) instance_type: String,
    /// Their zone.
    pub(crate) zone: String,
    /// Their capacity type.
    pub(crate) capacity_type: &'static str,
    /// Price of each, in dollars per hour, if that is known.
    pub(crate) price: Option<Price>,
    /// Their number.
    pub(crate) count: usize,
}

/// A pod that stays pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pending {
    /// Namespace and name.
    pub(crate) pod: String,
    /// Why.
    pub(crate) why: String,
}

impl Impact {
    /// Removes and returns the warnings: effects that are unknown until the edit is applied.
    pub(in crate::commands) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// True if the edit has no effect.
    pub(super) fn is_empty(&self) -> bool {
        let Self { objects: _, pods, daemon_sets, given, nodes, launched, pending, .. } = self;
        pods.is_empty()
            && daemon_sets.is_empty()
            && given.is_empty()
            && nodes.is_empty()
            && launched.is_empty()
            && pending.is_empty()
    }
}
