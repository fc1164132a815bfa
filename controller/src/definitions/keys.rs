//! Labels, annotations and taints that the controller writes.

use croft_api::hash::hash;

use super::define;

define! { ALL:
/// Annotation of a claim: hashes of the pool's template and the class that it was launched with.
LAUNCHED_WITH = croft_api::definitions::LAUNCHED_WITH;
/// Annotation of a claim that replaces others: their names.
REPLACES = croft_api::definitions::REPLACES;
/// Annotation of a claim that adopts an existing instance: the instance's id.
ADOPTS = "croft.dev/adopts";
/// Label of every node of a pool, whatever the pool's own key is.
POOL_LABEL = croft_api::pool::DEFAULT_KEY;
/// Taint of a node whose kubelet has registered and which Croft hasn't labelled yet: no pod runs there.
UNREGISTERED_TAINT = croft_policy::definitions::UNREGISTERED_TAINT;
/// Label of a node with that taint.
UNREGISTERED_LABEL = croft_policy::definitions::UNREGISTERED_LABEL;
/// Taint of a node that is being removed.
DISRUPTED_TAINT = "croft.dev/disrupted";
/// Annotation of a claim that replaces others: the disruption reason.
DISRUPTION_REASON = "croft.dev/disruption-reason";
/// Annotation of a claim: the command that created it, and how many claims the command created.
MOVE = "croft.dev/move";
/// Annotation of a claim: the generations of the pool and the class at its launch.
LAUNCHED_FOR = "croft.dev/launched-for";
/// Annotation of a claim that was launched while nodes of its pool don't register: the rounds of launches before
/// it.
LAUNCH_PROBE = "croft.dev/launch-probe";
/// Annotation of pods, nodes and pools: no voluntary disruption.
DO_NOT_DISRUPT = croft_disruption::blockers::DO_NOT_DISRUPT;
/// Karpenter's name for the same, which users' manifests have already.
KARPENTER_DO_NOT_DISRUPT = croft_disruption::blockers::KARPENTER_DO_NOT_DISRUPT;
/// Annotation of a node: its NodeClaim.
CLAIM_ANNOTATION = croft_policy::definitions::CLAIM_ANNOTATION;
/// Label of a claim and its node: the capacity type, in Karpenter's words.
CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type";
/// Croft's own label for the same.
CROFT_CAPACITY_TYPE_LABEL = "croft.dev/capacity-type";
/// Label: the node's instance type.
INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type";
/// Label: the node's zone.
ZONE_LABEL = "topology.kubernetes.io/zone";
/// Label of a NodeClaim: its pool.
CLAIM_POOL_LABEL = "croft.dev/pool";
/// Finalizer of a TenantPool: keeps the pool until its nodes are gone.
POOL_FINALIZER = "croft.dev/pool";
/// Finalizer of a NodeClaim and of its Node: keeps them until the instance is terminated.
TERMINATION_FINALIZER = croft_api::definitions::FINALIZER;
/// Annotation of Croft's Namespace: the prefix of the identity that controllers act for.
IDENTITY_PREFIX = croft_policy::definitions::IDENTITY_PREFIX;
}

/// The effect of [`DISRUPTED_TAINT`]: pods leave by eviction, not by the taint.
pub const DISRUPTED_EFFECT: &str = "NoSchedule";

/// True for keys in Croft's own group.
#[must_use]
pub fn is_croft_key(key: &str) -> bool {
    key.starts_with("croft.dev/")
}

/// The name of a pool's claim number `counter`: the same for every process that works from the same counter, and
/// another one for a later pool of the same name.
#[must_use]
pub fn claim_name(pool: &str, pool_uid: &str, counter: i64) -> String {
    format!("{pool}-{}", hash(&[pool_uid, &counter.to_string()], 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_names_are_deterministic_and_unique() {
        assert_eq!(claim_name("pool-a", "u", 1), claim_name("pool-a", "u", 1));
        assert_ne!(claim_name("pool-a", "u", 1), claim_name("pool-a", "u", 2));
        assert_ne!(claim_name("pool-a", "u", 1), claim_name("pool-a", "v", 1));
        assert_ne!(hash(&["ab", "c"], 16), hash(&["a", "bc"], 16));
        assert!(claim_name(&"p".repeat(40), "u", i64::MAX).len() <= 63);
    }
}
