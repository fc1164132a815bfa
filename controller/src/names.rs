//! Keys and names that the controller writes, and what they are made of.

pub use croft_api::{
    definitions::{LAUNCHED_WITH, REPLACES},
    hash::hash,
};

/// On a claim that was made for a machine which is there already: the machine's id.
pub const ADOPTS: &str = "croft.dev/adopts";
/// The label that every node of a pool carries, whatever the pool's own key is.
pub const POOL_LABEL: &str = croft_api::pool::DEFAULT_KEY;
/// On a node whose kubelet has registered and which Croft hasn't labelled yet: nothing runs there.
pub const UNREGISTERED_TAINT: &str = croft_policy::definitions::UNREGISTERED_TAINT;
/// The label that goes with it.
pub const UNREGISTERED_LABEL: &str = croft_policy::definitions::UNREGISTERED_LABEL;
/// On a node that is given back.
pub const DISRUPTED_TAINT: &str = "croft.dev/disrupted";
/// The effect of [`DISRUPTED_TAINT`]: what runs there leaves by eviction, not by the taint.
pub const DISRUPTED_EFFECT: &str = "NoSchedule";
/// On a claim that was made to replace others: why.
pub const DISRUPTION_REASON: &str = "croft.dev/disruption-reason";
/// On a claim: which move made it, and how many claims the move made.
pub const MOVE: &str = "croft.dev/move";
/// On a claim: the generations of the pool and the class that it was launched for.
pub const LAUNCHED_FOR: &str = "croft.dev/launched-for";
/// On a claim launched while nodes of its pool don't register: the rounds of launches before it.
pub const LAUNCH_PROBE: &str = "croft.dev/launch-probe";
/// On pods, nodes and pools: leave it alone while there is a choice.
pub const DO_NOT_DISRUPT: &str = "croft.dev/do-not-disrupt";
/// What users of Karpenter have in their manifests already.
pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";
/// On a node: its NodeClaim.
pub const CLAIM_ANNOTATION: &str = croft_policy::definitions::CLAIM_ANNOTATION;
/// On a claim and its node: how the node is paid for, in the words that users select by.
pub const CAPACITY_TYPE_LABEL: &str = "karpenter.sh/capacity-type";
/// Croft's own name for the same.
pub const CROFT_CAPACITY_TYPE_LABEL: &str = "croft.dev/capacity-type";
/// The node's type.
pub const INSTANCE_TYPE_LABEL: &str = "node.kubernetes.io/instance-type";
/// The node's zone.
pub const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// True for the annotations by which something asks to be left alone.
#[must_use]
pub fn keeps(key: &str) -> bool {
    key == DO_NOT_DISRUPT || key == KARPENTER_DO_NOT_DISRUPT
}

/// True for keys in Croft's own group.
#[must_use]
pub fn is_ours(key: &str) -> bool {
    key.starts_with("croft.dev/")
}

/// The name of a pool's claim number `counter`: the same for everybody who works from the same counter, and
/// another one for a later pool of the same name.
#[must_use]
pub fn claim(pool: &str, pool_uid: &str, counter: i64) -> String {
    format!("{pool}-{}", hash(&[pool_uid, &counter.to_string()], 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_for_everybody_and_different_for_every_claim() {
        assert_eq!(claim("pool-a", "u", 1), claim("pool-a", "u", 1));
        assert_ne!(claim("pool-a", "u", 1), claim("pool-a", "u", 2));
        assert_ne!(claim("pool-a", "u", 1), claim("pool-a", "v", 1));
        assert_ne!(hash(&["ab", "c"], 16), hash(&["a", "bc"], 16));
        assert!(claim(&"p".repeat(40), "u", i64::MAX).len() <= 63);
    }
}
