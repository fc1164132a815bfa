//! Blockers of the disruption of a node.

use std::fmt;

use croft_scheduler::PodKey;

/// The annotation by which pods, nodes, claims and pools block voluntary disruption.
pub const DO_NOT_DISRUPT: &str = "croft.dev/do-not-disrupt";
/// Karpenter's name for the same, which users' manifests have already.
pub const KARPENTER_DO_NOT_DISRUPT: &str = "karpenter.sh/do-not-disrupt";

/// Why a node stays although there is a reason to disrupt it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisruptionBlocker {
    /// Voluntary disruption is paused: a sentence.
    Paused(String),
    /// The node, its claim or its pool has the annotation do-not-disrupt: which of them.
    DoNotDisrupt(&'static str),
    /// A pod has the annotation.
    PodDoNotDisrupt(PodKey),
    /// A PodDisruptionBudget allows no eviction of a pod now: the pod, and why.
    PdbBlocked(PodKey, String),
    /// A pod has no controller that would recreate it.
    BarePod(PodKey),
}

impl DisruptionBlocker {
    /// The reason of the condition Consolidatable.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Paused(_) => "Paused",
            Self::DoNotDisrupt(_) => "DoNotDisrupt",
            Self::PodDoNotDisrupt(_) => "PodDoNotDisrupt",
            Self::PdbBlocked(..) => "PDBBlocked",
            Self::BarePod(_) => "BarePod",
        }
    }
}

impl fmt::Display for DisruptionBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(why) => f.write_str(why),
            Self::DoNotDisrupt(what) => write!(f, "the {what} is annotated {DO_NOT_DISRUPT}"),
            Self::PodDoNotDisrupt(pod) => write!(f, "pod {pod} is annotated {DO_NOT_DISRUPT}"),
            Self::PdbBlocked(pod, why) => write!(f, "pod {pod} {why}"),
            Self::BarePod(pod) => write!(f, "pod {pod} has no controller that would recreate it"),
        }
    }
}

/// True for the annotations that block voluntary disruption, if their value is `true`.
#[must_use]
pub fn is_do_not_disrupt(key: &str) -> bool {
    key == DO_NOT_DISRUPT || key == KARPENTER_DO_NOT_DISRUPT
}

/// True if some of `annotations` blocks voluntary disruption.
pub fn blocks<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
    annotations.into_iter().any(|(key, value)| is_do_not_disrupt(key) && value == "true")
}

/// Which of a node, its pool and its claim blocks voluntary disruption, if one does.
#[must_use]
pub fn annotated(node: bool, pool: bool, claim: bool) -> Option<DisruptionBlocker> {
    let which = [("node", node), ("pool", pool), ("claim", claim)];
    which.into_iter().find(|(_, blocks)| *blocks).map(|(which, _)| DisruptionBlocker::DoNotDisrupt(which))
}

/// A pod that would have to be evicted.
#[derive(Clone, Debug)]
pub struct PodFacts<'a> {
    /// Namespace and name.
    pub key: &'a PodKey,
    /// True if it has the annotation do-not-disrupt.
    pub do_not_disrupt: bool,
    /// True if it has a controller.
    pub has_controller: bool,
}

/// The blocker of the eviction of a node's pods now: do-not-disrupt, or a PodDisruptionBudget. `eviction_blocked` returns why
/// a pod can't be evicted.
pub fn by_pods<'a>(
    pods: impl IntoIterator<Item = PodFacts<'a>>,
    eviction_blocked: impl Fn(&PodKey) -> Option<String>,
) -> Option<DisruptionBlocker> {
    pods.into_iter().find_map(|pod| {
        if pod.do_not_disrupt {
            return Some(DisruptionBlocker::PodDoNotDisrupt(pod.key.clone()));
        }
        let why = eviction_blocked(pod.key)?;
        Some(DisruptionBlocker::PdbBlocked(pod.key.clone(), why))
    })
}

/// The first pod without a controller.
pub fn by_bare_pod<'a>(pods: impl IntoIterator<Item = PodFacts<'a>>) -> Option<DisruptionBlocker> {
    let bare = pods.into_iter().find(|pod| !pod.has_controller);
    bare.map(|pod| DisruptionBlocker::BarePod(pod.key.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pod_that_blocks_is_named() {
        let keys = ["a", "b", "c"].map(|name| PodKey::new("ns", name));
        let pods = || {
            let facts = |(n, key)| PodFacts { key, do_not_disrupt: n == 2, has_controller: n != 1 };
            keys.iter().enumerate().map(facts)
        };
        let annotated = by_pods(pods(), |_| None).unwrap();
        assert_eq!(annotated.to_string(), "pod ns/c is annotated croft.dev/do-not-disrupt");
        let budget = by_pods(pods(), |_| Some("is held".to_owned())).unwrap();
        assert_eq!((budget.reason(), budget.to_string().as_str()), ("PDBBlocked", "pod ns/a is held"));
        let bare = by_bare_pod(pods()).unwrap();
        assert_eq!(bare.to_string(), "pod ns/b has no controller that would recreate it");
    }

    #[test]
    fn only_a_true_annotation_of_croft_or_karpenter_blocks() {
        let blocked = |key: &str, value: &str| blocks([(&key.to_owned(), &value.to_owned())]);
        for key in [DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT] {
            assert!(blocked(key, "true") && !blocked(key, "false"), "{key}");
        }
        assert!(!blocked("example.com/do-not-disrupt", "true"));
        assert_eq!(annotated(false, true, true), Some(DisruptionBlocker::DoNotDisrupt("pool")));
        assert_eq!(annotated(false, false, false), None);
    }
}
