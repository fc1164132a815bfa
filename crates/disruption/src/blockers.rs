//! Blockers of the disruption of a node.

use std::fmt;

pub use croft_policy::do_not_disrupt::{DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT, SAFE_TO_EVICT};
use croft_policy::do_not_disrupt::{DoNotDisrupt, unreadable};
use croft_scheduler::PodKey;
use jiff::{SignedDuration, Timestamp};

/// Why a node stays although there is a reason to disrupt it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisruptionBlocker {
    /// Voluntary disruption is paused: a sentence.
    Paused(String),
    /// The node, its claim or its pool has the annotation do-not-disrupt: which of them.
    DoNotDisrupt(&'static str),
    /// A pod has an annotation that forbids it.
    PodDoNotDisrupt(PodKey, Forbidden),
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
            Self::PodDoNotDisrupt(..) => "PodDoNotDisrupt",
            Self::PdbBlocked(..) => "PDBBlocked",
            Self::BarePod(_) => "BarePod",
        }
    }

    /// When it ends by itself, if that is known.
    #[must_use]
    pub fn ends(&self) -> Option<Timestamp> {
        match self {
            Self::PodDoNotDisrupt(_, forbidden) => forbidden.until,
            Self::Paused(_) | Self::DoNotDisrupt(_) | Self::PdbBlocked(..) | Self::BarePod(_) => None,
        }
    }
}

impl fmt::Display for DisruptionBlocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(why) => f.write_str(why),
            Self::DoNotDisrupt(what) => write!(f, "the {what} is annotated {DO_NOT_DISRUPT}"),
            Self::PodDoNotDisrupt(pod, forbidden) => write!(f, "pod {pod} is annotated {forbidden}"),
            Self::PdbBlocked(pod, why) => write!(f, "pod {pod} {why}"),
            Self::BarePod(pod) => write!(f, "pod {pod} has no controller that would recreate it"),
        }
    }
}

/// An annotation by which a pod forbids its disruption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The key.
    pub key: &'static str,
    /// The value, if it says more than yes.
    pub value: Option<String>,
    /// The end, if there is one.
    pub until: Option<Timestamp>,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key)?;
        if let Some(value) = &self.value {
            write!(f, ": {value:?}")?;
        }
        if let Some(until) = self.until {
            write!(f, ", until {}", until.strftime("%Y-%m-%dT%H:%M:%SZ"))?;
        }
        if self.value.as_ref().is_some_and(|value| unreadable(self.key, value).is_some()) {
            f.write_str(", which is no duration such as \"4h\" and counts as \"true\"")?;
        }
        Ok(())
    }
}

/// The annotation of a pod that forbids its disruption, and how long. Without a pod's start, a time has not begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodWish {
    lasts: DoNotDisrupt,
    key: &'static str,
    value: Option<Box<str>>,
}

impl PodWish {
    /// Reads the annotations of a pod. Of several that forbid, the one that lasts longest counts.
    #[must_use]
    pub fn read<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        let mut wish = Self::default();
        for (key, value) in annotations {
            let lasts = DoNotDisrupt::of_annotation(key, value);
            let known =
                [DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT, SAFE_TO_EVICT].into_iter().find(|k| k == key);
            if let Some(key) = known.filter(|_| lasts > wish.lasts) {
                let value = (value != "true").then(|| value.as_str().into());
                wish = Self { lasts, key, value };
            }
        }
        wish
    }

    /// What forbids the disruption at `now` of a pod that has started at `started`.
    #[must_use]
    pub fn forbids(&self, started: Option<Timestamp>, now: Timestamp) -> Option<Forbidden> {
        let until = match self.lasts {
            DoNotDisrupt::Never => return None,
            DoNotDisrupt::Always | DoNotDisrupt::Unreadable => None,
            DoNotDisrupt::For(lasts) => {
                let lasts = SignedDuration::try_from(lasts).unwrap_or(SignedDuration::MAX);
                let end = started.map(|at| at.checked_add(lasts).unwrap_or(Timestamp::MAX));
                if end.is_some_and(|end| end <= now) {
                    return None;
                }
                end
            }
        };
        Some(Forbidden { key: self.key, value: self.value.as_deref().map(str::to_owned), until })
    }

    /// True if it never ends by time alone.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        matches!(self.lasts, DoNotDisrupt::Always | DoNotDisrupt::Unreadable)
    }
}

/// True for the annotations that block voluntary disruption, unless their value is `false`.
#[must_use]
pub fn is_do_not_disrupt(key: &str) -> bool {
    key == DO_NOT_DISRUPT || key == KARPENTER_DO_NOT_DISRUPT
}

/// True if some of the `annotations` of a node, a claim or a pool blocks voluntary disruption. A value that can't be read counts as
/// `true`, and so does a duration: these have no start to count from.
pub fn blocks<'a>(annotations: impl IntoIterator<Item = (&'a String, &'a String)>) -> bool {
    annotations.into_iter().any(|(key, value)| is_do_not_disrupt(key) && value != "false")
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
    /// What forbids its disruption.
    pub forbidden: Option<Forbidden>,
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
        if let Some(forbidden) = pod.forbidden {
            return Some(DisruptionBlocker::PodDoNotDisrupt(pod.key.clone(), forbidden));
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
            let forbidden =
                |n| (n == 2).then_some(Forbidden { key: DO_NOT_DISRUPT, value: None, until: None });
            let facts = move |(n, key)| PodFacts { key, forbidden: forbidden(n), has_controller: n != 1 };
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
    fn only_annotations_of_croft_or_karpenter_block_and_false_does_not() {
        let blocked = |key: &str, value: &str| blocks([(&key.to_owned(), &value.to_owned())]);
        for key in [DO_NOT_DISRUPT, KARPENTER_DO_NOT_DISRUPT] {
            assert!(blocked(key, "true") && blocked(key, "yes") && !blocked(key, "false"), "{key}");
        }
        assert!(!blocked("example.com/do-not-disrupt", "true"));
        assert_eq!(annotated(false, true, true), Some(DisruptionBlocker::DoNotDisrupt("pool")));
        assert_eq!(annotated(false, false, false), None);
    }

    #[test]
    fn a_pod_forbids_its_disruption_for_as_long_as_it_says() {
        let started: Timestamp = "2026-12-31T12:00:00Z".parse().unwrap();
        let after = |minutes: i64| started.checked_add(SignedDuration::from_mins(minutes)).unwrap();
        let said = |annotations: &[(&str, &str)], started, now| {
            let all: Vec<(String, String)> =
                annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            PodWish::read(all.iter().map(|(k, v)| (k, v))).forbids(started, now).map(|f| f.to_string())
        };
        let four = [(KARPENTER_DO_NOT_DISRUPT, "4h")];
        assert_eq!(
            said(&four, Some(started), after(239)).unwrap(),
            "karpenter.sh/do-not-disrupt: \"4h\", until 2026-12-31T16:00:00Z"
        );
        assert_eq!(said(&four, Some(started), after(240)), None);
        assert!(said(&four, None, after(600)).is_some(), "its time has not begun");
        // The longest counts.
        let both = [(DO_NOT_DISRUPT, "1h"), (KARPENTER_DO_NOT_DISRUPT, "true")];
        assert_eq!(said(&both, Some(started), after(600)).unwrap(), "karpenter.sh/do-not-disrupt");
        assert_eq!(
            said(&[(SAFE_TO_EVICT, "false")], Some(started), after(600)).unwrap(),
            "cluster-autoscaler.kubernetes.io/safe-to-evict: \"false\""
        );
        assert_eq!(said(&[(SAFE_TO_EVICT, "true")], Some(started), after(0)), None);
        let wrong = said(&[(DO_NOT_DISRUPT, "1d")], Some(started), after(9_999)).unwrap();
        assert!(wrong.contains("counts as \"true\""), "{wrong}");
        assert_eq!(said(&[(DO_NOT_DISRUPT, "false")], Some(started), after(0)), None);
    }
}
