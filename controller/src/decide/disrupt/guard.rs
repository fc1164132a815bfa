//! What keeps a node: somebody asked for it, or its pods may not go now.

use croft_api::{NodeClaim, TenantPool};

use crate::{
    names,
    snapshot::{NodeView, PodView, Snapshot},
};

/// Why a node stays though there is a reason to give it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The node, its claim or its pool asks for it.
    Asked(&'static str),
    /// A pod asks for it.
    Pod(String),
    /// A pod's PodDisruptionBudget allows no eviction now.
    Budget(String),
    /// A pod that nobody would make again.
    Bare(String),
}

impl Keeps {
    /// The word for it in conditions.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Asked(_) => "DoNotDisrupt",
            Self::Pod(_) => "PodKept",
            Self::Budget(_) => "PodBudget",
            Self::Bare(_) => "BarePod",
        }
    }
}

impl std::fmt::Display for Keeps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Asked(what) => write!(f, "the {what} is annotated {}", names::DO_NOT_DISRUPT),
            Self::Pod(why) | Self::Budget(why) => f.write_str(why),
            Self::Bare(pod) => write!(f, "pod {pod} has no controller that would make it again"),
        }
    }
}

fn asks<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
    annotations.into_iter().any(|(key, value)| names::keeps(key) && value == "true")
}

/// True if node, claim or pool ask to be left alone.
#[must_use]
pub fn asked(claim: &NodeClaim, node: &NodeView, pool: &TenantPool) -> Option<Keeps> {
    let of_pool = pool.metadata.annotations.iter().flatten();
    let of_claim = claim.metadata.annotations.iter().flatten();
    if asks(&node.annotations) {
        Some(Keeps::Asked("node"))
    } else if asks(of_pool) {
        Some(Keeps::Asked("pool"))
    } else if asks(of_claim) {
        Some(Keeps::Asked("claim"))
    } else {
        None
    }
}

/// Why the pods of a node may not go, if so.
#[must_use]
pub fn pods(snapshot: &Snapshot, node: &str) -> Option<Keeps> {
    for (key, pod) in snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave() && pod.deletion.is_none()) {
        if pod.is.do_not_disrupt {
            return Some(Keeps::Pod(format!("pod {key} is annotated {}", names::DO_NOT_DISRUPT)));
        }
        if let Some(why) = budget(snapshot, &key.namespace, pod) {
            return Some(Keeps::Budget(format!("pod {key} {why}")));
        }
    }
    None
}

/// The first pod without a controller on a node.
#[must_use]
pub fn bare(snapshot: &Snapshot, node: &str) -> Option<Keeps> {
    let mut left = snapshot.pods_on(node).filter(|(_, pod)| pod.must_leave() && pod.deletion.is_none());
    left.find(|(_, pod)| pod.owner.is_none()).map(|(key, _)| Keeps::Bare(key.to_string()))
}

fn budget(snapshot: &Snapshot, namespace: &str, pod: &PodView) -> Option<String> {
    let counts = |label: &str| pod.labels.get(label).map(String::as_str);
    let mut covering = snapshot
        .budgets
        .get(namespace)?
        .iter()
        .filter(|(_, budget)| budget.selector.as_ref().is_some_and(|s| s.matches(counts)));
    let (name, budget) = covering.next()?;
    if let Some((other, _)) = covering.next() {
        // The eviction API refuses such pods for ever.
        return Some(format!(
            "is covered by two disruption budgets, {name} and {other}; it can't be evicted"
        ));
    }
    (budget.allowed < 1).then(|| format!("can't be evicted now: PodDisruptionBudget {name} allows none"))
}
