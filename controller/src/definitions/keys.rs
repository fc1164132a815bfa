//! Labels, annotations and taints that the controller writes.

use croft_api::hash::hash;
use croft_policy::documented_keys;

documented_keys! {
    /// Every label, annotation, taint and finalizer that the controller reads or writes.
    pub const KEYS;

    /// Hashes of the pool's template and the class that the claim was launched with.
    Annotation LAUNCHED_WITH = croft_api::definitions::LAUNCHED_WITH, on "NodeClaims", by "the controller";
    /// The names of the claims that this one replaces.
    Annotation REPLACES = croft_api::definitions::REPLACES, on "NodeClaims", by "the controller";
    /// The id of the existing instance that the claim adopts.
    Annotation ADOPTS = "croft.dev/adopts", on "NodeClaims", by "the controller";
    /// The pool of the node, whatever the pool's own key is.
    Label POOL_LABEL = croft_api::pool::DEFAULT_KEY, on "nodes of pools", by "the controller";
    /// The kubelet has registered, and Croft hasn't labelled the node yet: no pod runs there.
    Taint UNREGISTERED_TAINT = croft_policy::definitions::UNREGISTERED_TAINT, on "nodes of NodeClaims", by "kubelets, by user data";
    /// The node has that taint.
    Label UNREGISTERED_LABEL = croft_policy::definitions::UNREGISTERED_LABEL, on "nodes of NodeClaims", by "kubelets, by user data";
    /// The node is being removed.
    Taint DISRUPTED_TAINT = "croft.dev/disrupted", on "nodes of NodeClaims", by "the controller";
    /// The disruption reason of a claim that replaces others.
    Annotation DISRUPTION_REASON = "croft.dev/disruption-reason", on "NodeClaims", by "the controller";
    /// The command that created the claim, and how many claims the command created.
    Annotation MOVE = "croft.dev/move", on "NodeClaims", by "the controller";
    /// The generations of the pool and the class at the launch.
    Annotation LAUNCHED_FOR = "croft.dev/launched-for", on "NodeClaims", by "the controller";
    /// The rounds of launches before this one, while nodes of the pool don't register.
    Annotation LAUNCH_PROBE = "croft.dev/launch-probe", on "NodeClaims", by "the controller";
    /// No voluntary disruption.
    Annotation DO_NOT_DISRUPT = croft_disruption::blockers::DO_NOT_DISRUPT, on "pods, nodes, TenantPools", by "users";
    /// Karpenter's name for the same, which users' manifests have already.
    Annotation KARPENTER_DO_NOT_DISRUPT = croft_disruption::blockers::KARPENTER_DO_NOT_DISRUPT, on "pods, nodes", by "users";
    /// The NodeClaim of the node.
    Annotation CLAIM_ANNOTATION = croft_policy::definitions::CLAIM_ANNOTATION, on "nodes", by "the controller";
    /// The capacity type, in Karpenter's words.
    Label CAPACITY_TYPE_LABEL = "karpenter.sh/capacity-type", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// Croft's own label for the same.
    Label CROFT_CAPACITY_TYPE_LABEL = "croft.dev/capacity-type", on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// The node's instance type.
    Label INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type", on "nodes", by "the cloud provider";
    /// The node's zone.
    Label ZONE_LABEL = "topology.kubernetes.io/zone", on "nodes", by "the cloud provider";
    /// The claim's pool.
    Label CLAIM_POOL_LABEL = "croft.dev/pool", on "NodeClaims", by "the controller";
    /// Keeps the pool until its nodes are gone.
    Finalizer POOL_FINALIZER = "croft.dev/pool", on "TenantPools", by "the controller";
    /// Keeps a claim and its Node until the instance is terminated.
    Finalizer TERMINATION_FINALIZER = croft_api::definitions::FINALIZER, on "NodeClaims, nodes of NodeClaims", by "the controller";
    /// The prefix of the identity that controllers act for.
    AnnotationPrefix IDENTITY_PREFIX = croft_policy::definitions::IDENTITY_PREFIX, on "Croft's own Namespace", by "the controller, once";
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
