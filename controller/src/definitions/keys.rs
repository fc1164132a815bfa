//! Labels, annotations, taints and finalizers that the controller writes. Those that other crates read, too, are defined
//! there.

pub use croft_api::definitions::{
    CAPACITY_TYPE_LABEL, CROFT_CAPACITY_TYPE_LABEL, DISRUPTED_EFFECT, DISRUPTED_TAINT, INSTANCE_TYPE_LABEL,
    LAUNCHED_WITH, REPLACES, ZONE_LABEL,
};
use croft_api::hash::hash;
pub use croft_policy::definitions::{
    CLAIM_ANNOTATION, POOL_NAME_LABEL, UNREGISTERED_LABEL, UNREGISTERED_TAINT,
};
use croft_policy::documented_keys;

documented_keys! {
    /// Every label, annotation, taint and finalizer that this crate defines.
    pub const KEYS;

    /// The id of the existing instance that the claim adopts.
    Annotation ADOPTS = "croft.dev/adopts", on "NodeClaims", by "the controller";
    /// The disruption reason of a claim that replaces others.
    Annotation DISRUPTION_REASON = "croft.dev/disruption-reason", on "NodeClaims", by "the controller";
    /// The command that created the claim, and how many claims the command created.
    Annotation MOVE = "croft.dev/move", on "NodeClaims", by "the controller";
    /// A hash of the pool's spec without its pause, and the generation of the class, at the launch.
    Annotation LAUNCHED_FOR = "croft.dev/launched-for", on "NodeClaims", by "the controller";
    /// The record gets a snapshot of the cluster when this changes: `croft debug snapshot` writes the time into it.
    Annotation SNAPSHOT_REQUESTED = croft_record::SNAPSHOT_REQUESTED, on "the CroftConfig", by "users";
    /// No voluntary disruption: `true`, or on pods for how long from their start, such as `4h`.
    Annotation DO_NOT_DISRUPT = croft_disruption::blockers::DO_NOT_DISRUPT, on "pods, nodes, TenantPools", by "users";
    /// Karpenter's name for the same, which users' manifests have already.
    Annotation KARPENTER_DO_NOT_DISRUPT = croft_disruption::blockers::KARPENTER_DO_NOT_DISRUPT, on "pods, nodes", by "users";
    /// Cluster Autoscaler's annotation: `false` is the same as do-not-disrupt.
    Annotation SAFE_TO_EVICT = croft_disruption::blockers::SAFE_TO_EVICT, on "pods", by "users";
    /// The claim's pool.
    Label CLAIM_POOL_LABEL = "croft.dev/pool", on "NodeClaims", by "the controller";
    /// Keeps the pool until its nodes are gone.
    Finalizer POOL_FINALIZER = "croft.dev/pool", on "TenantPools", by "the controller";
}

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
