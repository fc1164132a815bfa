//! Whether consolidation may consider a node, and the status that says why not.

use std::time::Duration;

use croft_api::{
    disruption::{ConsolidationPolicy, Disruption},
    duration,
};
use croft_scheduler::{Price, consolidation::Rejection};

use crate::blockers::DisruptionBlocker;

/// Reasons that change soon without any action; of this crate, of rejections and of the controller.
pub const TRANSIENT: &[&str] = &[
    "ConsolidateAfterPending",
    "ReplacementFor",
    "PodsNominated",
    "PDBBlocked",
    "NotTried",
    "CommandInFlight",
    "Busy",
    "Budget",
];

/// The status of a node in the condition Consolidatable of its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsolidationStatus {
    /// True if the node is to be removed, or is being removed.
    pub consolidatable: bool,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// A sentence.
    pub message: String,
}

impl ConsolidationStatus {
    /// The status of a node that is to be removed.
    #[must_use]
    pub fn consolidatable(reason: &'static str, message: impl Into<String>) -> Self {
        Self { consolidatable: true, reason, message: message.into() }
    }

    /// The status of a node that stays.
    #[must_use]
    pub fn stays(reason: &'static str, message: impl Into<String>) -> Self {
        Self { consolidatable: false, reason, message: message.into() }
    }

    /// True if the status changes soon without any action: pods of a budget become ready, and the next search tries another
    /// node alone.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        TRANSIENT.contains(&self.reason)
    }
}

impl From<&Rejection> for ConsolidationStatus {
    fn from(rejection: &Rejection) -> Self {
        Self::stays(rejection.reason(), rejection.to_string())
    }
}

impl From<&DisruptionBlocker> for ConsolidationStatus {
    fn from(blocker: &DisruptionBlocker) -> Self {
        Self::stays(blocker.reason(), blocker.to_string())
    }
}

/// A cordon of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cordon {
    /// The node takes pods.
    #[default]
    None,
    /// A user has cordoned it.
    ByUser,
    /// Croft has cordoned it, to remove it as empty.
    ByCroft,
}

/// An initialized node that isn't being terminated.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// True if its pool's provisioner is Croft.
    pub provisioned_by_croft: bool,
    /// True if a command in flight replaces it.
    pub is_replaced: bool,
    /// True if a command in flight has launched it as a replacement.
    pub is_replacement: bool,
    /// True if the `replicas` of its pool or template say how many such nodes there are.
    pub is_of_fixed_size: bool,
    /// True if it is Ready and its Node isn't being deleted.
    pub works: bool,
    /// Its cordon.
    pub cordon: Cordon,
    /// The pause of its pool, or the blocker by annotation of the node, its claim or its pool.
    pub standing: Option<DisruptionBlocker>,
    /// True if it has pods, or is about to have some.
    pub has_work: bool,
    /// True if pods are nominated to it.
    pub pods_nominated: bool,
    /// The rest of its backoff after a failed disruption.
    pub backoff_left: Duration,
    /// Time since its pods last changed.
    pub steady_for: Duration,
    /// Its price, if it is known.
    pub price: Option<Price>,
}

/// Whether consolidation may consider a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// No: something keeps it, or it is being removed already.
    Settled {
        /// The status that says so.
        status: ConsolidationStatus,
        /// The status changes by itself after this time.
        recheck_after: Option<Duration>,
    },
    /// Yes.
    Candidate {
        /// Its price.
        price: Price,
    },
}

/// Evaluates a node, but for its pool's budgets. `blocker` returns what blocks the eviction of its pods; it is called
/// only if nothing else keeps the node.
pub fn evaluate(
    node: &NodeFacts,
    disruption: &Disruption,
    blocker: impl FnOnce() -> Option<DisruptionBlocker>,
) -> Eligibility {
    let settled = |status| Eligibility::Settled { status, recheck_after: None };
    let stays = |reason, message: &str| settled(ConsolidationStatus::stays(reason, message));
    if !node.provisioned_by_croft {
        return stays("ProvisionedElsewhere", "the pool's provisioner is not Croft");
    }
    if node.is_replaced {
        let message = "its pods move once the replacement is ready";
        return settled(ConsolidationStatus::consolidatable("Replacing", message));
    }
    if node.is_replacement {
        return stays("ReplacementFor", "it replaces other nodes, whose pods come next");
    }
    if node.is_of_fixed_size {
        return stays("FixedSize", "the replicas of its pool or template say how many such nodes there are");
    }
    if !node.works {
        return stays("NotReady", "the node is not Ready");
    }
    if node.cordon == Cordon::ByUser {
        return stays("Cordoned", "the node is cordoned");
    }
    if let Some(blocker) = &node.standing {
        return settled(blocker.into());
    }
    let after_text = disruption.consolidate_after();
    let Ok(Some(after)) = duration::parse(after_text) else {
        return stays("Never", "the pool's consolidateAfter is Never");
    };
    if !node.has_work {
        let message = format!("it has no pods, and is removed {after_text} after its last pod ended");
        return settled(ConsolidationStatus::consolidatable("Empty", message));
    }
    if node.cordon == Cordon::ByCroft {
        return stays("Cordoned", "it was to be removed as empty and got pods");
    }
    if disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
        return stays("Policy", "it has pods, and the pool's consolidationPolicy is WhenEmpty");
    }
    if node.pods_nominated {
        return stays("PodsNominated", "pods are nominated to it");
    }
    if let Some(blocker) = blocker() {
        return settled((&blocker).into());
    }
    if !node.backoff_left.is_zero() {
        let message = "a disruption of it failed lately; it is retried after a backoff";
        let status = ConsolidationStatus::stays("Backoff", message);
        return Eligibility::Settled { status, recheck_after: Some(node.backoff_left) };
    }
    let left = after.saturating_sub(node.steady_for);
    if !left.is_zero() {
        let message = format!("its pods have changed within the pool's consolidateAfter of {after_text}");
        let status = ConsolidationStatus::stays("ConsolidateAfterPending", message);
        return Eligibility::Settled { status, recheck_after: Some(left) };
    }
    match node.price {
        Some(price) => Eligibility::Candidate { price },
        None => stays("PriceUnknown", "its price is unknown"),
    }
}

/// The reasons of the condition Consolidatable that this crate gives, with their meaning.
pub const REASONS: &[(&str, &str)] = &[
    ("ProvisionedElsewhere", "the pool's provisioner is not Croft"),
    ("Replacing", "a command replaces the node; its pods move once the replacement is ready"),
    ("ReplacementFor", "a command has launched the node as a replacement"),
    ("FixedSize", "the replicas of the pool or of its template say how many such nodes there are"),
    ("NotReady", "the node is not Ready"),
    ("Cordoned", "the node is cordoned"),
    ("Paused", "voluntary disruption is paused in the pool or in all pools"),
    ("DoNotDisrupt", "the node, its claim or its pool is annotated do-not-disrupt"),
    ("Never", "the pool's consolidateAfter is Never"),
    ("Empty", "the node has no pods and is removed after consolidateAfter"),
    ("Policy", "the node has pods, and the pool's consolidationPolicy is WhenEmpty"),
    ("PodsNominated", "pods are nominated to the node"),
    ("PodDoNotDisrupt", "a pod on the node is annotated do-not-disrupt, or safe-to-evict: false"),
    ("PDBBlocked", "a PodDisruptionBudget allows no eviction of a pod on the node now"),
    ("BarePod", "a pod on the node has no controller that would recreate it"),
    ("Backoff", "a disruption of the node failed lately"),
    ("ConsolidateAfterPending", "the node's pods have changed within consolidateAfter"),
    ("PriceUnknown", "the node's price is unknown"),
];

#[cfg(test)]
mod tests {
    use croft_scheduler::PodKey;

    use super::*;

    fn candidate() -> NodeFacts {
        NodeFacts {
            provisioned_by_croft: true,
            works: true,
            has_work: true,
            steady_for: Duration::from_secs(30),
            price: Some(Price::from_micros(1)),
            ..NodeFacts::default()
        }
    }

    fn reason(node: &NodeFacts) -> &'static str {
        match evaluate(node, &Disruption::default(), || None) {
            Eligibility::Settled { status, .. } => status.reason,
            Eligibility::Candidate { .. } => "Candidate",
        }
    }

    #[test]
    fn each_fact_alone_gives_its_reason() {
        let facts = || candidate();
        for (node, expected) in [
            (facts(), "Candidate"),
            (NodeFacts { provisioned_by_croft: false, ..facts() }, "ProvisionedElsewhere"),
            (NodeFacts { is_replaced: true, ..facts() }, "Replacing"),
            (NodeFacts { is_replacement: true, ..facts() }, "ReplacementFor"),
            (NodeFacts { is_of_fixed_size: true, has_work: false, ..facts() }, "FixedSize"),
            (NodeFacts { works: false, ..facts() }, "NotReady"),
            (NodeFacts { cordon: Cordon::ByUser, ..facts() }, "Cordoned"),
            (NodeFacts { cordon: Cordon::ByCroft, ..facts() }, "Cordoned"),
            (NodeFacts { cordon: Cordon::ByCroft, has_work: false, ..facts() }, "Empty"),
            (
                NodeFacts { standing: crate::blockers::annotated(true, false, false), ..facts() },
                "DoNotDisrupt",
            ),
            (NodeFacts { has_work: false, ..facts() }, "Empty"),
            (NodeFacts { pods_nominated: true, ..facts() }, "PodsNominated"),
            (NodeFacts { backoff_left: Duration::from_secs(1), ..facts() }, "Backoff"),
            (NodeFacts { steady_for: Duration::from_secs(29), ..facts() }, "ConsolidateAfterPending"),
            (NodeFacts { price: None, ..facts() }, "PriceUnknown"),
        ] {
            assert_eq!(reason(&node), expected, "{node:?}");
            assert!(expected == "Candidate" || REASONS.iter().any(|(reason, _)| *reason == expected));
        }
    }

    #[test]
    fn blockers_of_pods_count_before_the_time_since_their_last_change() {
        let pod = PodKey::new("ns", "p");
        let node = NodeFacts { steady_for: Duration::ZERO, ..candidate() };
        let found = evaluate(&node, &Disruption::default(), || Some(DisruptionBlocker::BarePod(pod)));
        let Eligibility::Settled { status, .. } = found else { panic!() };
        assert!(status.reason == "BarePod" && !status.is_transient());
        let pending = evaluate(&node, &Disruption::default(), || None);
        let Eligibility::Settled { status, recheck_after } = pending else { panic!() };
        assert!(status.is_transient());
        assert_eq!(recheck_after, Some(Duration::from_secs(30)));
    }

    #[test]
    fn when_empty_keeps_nodes_with_pods() {
        let policy = ConsolidationPolicy::WhenEmpty;
        let disruption = Disruption { consolidation_policy: policy, ..Disruption::default() };
        let found = evaluate(&candidate(), &disruption, || None);
        assert!(matches!(found, Eligibility::Settled { status, .. } if status.reason == "Policy"));
        let never = Disruption { consolidate_after: Some("Never".to_owned()), ..Disruption::default() };
        let found = evaluate(&candidate(), &never, || None);
        assert!(matches!(found, Eligibility::Settled { status, .. } if status.reason == "Never"));
    }
}
