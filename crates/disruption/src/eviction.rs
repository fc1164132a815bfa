//! Whether a pod can be evicted now, as the eviction API decides: `pkg/registry/core/pod/storage/eviction.go` of
//! Kubernetes. A test asks the API server the same.

use std::fmt;

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};

/// The annotation of a pod that mirrors a static pod of the kubelet.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// True for a pod that comes and ends with its node, so that nothing moves it: a DaemonSet's, or the mirror of a static
/// pod.
#[must_use]
pub fn ends_with_node(pod: &Pod) -> bool {
    is_daemon(pod) || is_mirror(pod)
}

/// True for a pod of a DaemonSet.
#[must_use]
pub fn is_daemon(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|o| o.controller == Some(true) && o.kind == "DaemonSet" && o.api_version.starts_with("apps/"))
}

/// True for the mirror of a static pod, which the API server can't remove.
#[must_use]
pub fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR))
}

/// How far PodDisruptionBudgets guard a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guard {
    /// Not at all: it has not begun to run, has ended, or is being deleted.
    None,
    /// It isn't ready.
    Unready,
    /// It is ready.
    #[default]
    Ready,
}

impl Guard {
    /// Reads `pod`.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|s| s.phase.as_deref());
        if matches!(phase, Some("Pending" | "Succeeded" | "Failed"))
            || pod.metadata.deletion_timestamp.is_some()
        {
            return Self::None;
        }
        let mut conditions = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
        if conditions.any(|c| c.type_ == "Ready" && c.status == "True") { Self::Ready } else { Self::Unready }
    }
}

/// A PodDisruptionBudget, as far as it decides about evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetFacts {
    /// How many of its pods may be evicted now.
    pub allowed: i64,
    /// True if as many of its pods are healthy as it wants, and it wants some.
    pub is_healthy: bool,
    /// True if pods that aren't ready may always be evicted: `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unready: bool,
    /// True if its status is older than its spec.
    pub is_stale: bool,
}

impl BudgetFacts {
    /// Reads a budget with its status.
    #[must_use]
    pub fn read(budget: &PodDisruptionBudget) -> Self {
        let status = budget.status.clone().unwrap_or_default();
        let (healthy, wanted) = (status.current_healthy.unwrap_or(0), status.desired_healthy.unwrap_or(0));
        Self {
            allowed: i64::from(status.disruptions_allowed.unwrap_or(0)),
            is_healthy: healthy >= wanted && wanted > 0,
            always_allows_unready: always_allows_unready(budget),
            is_stale: status.observed_generation.unwrap_or(0) < budget.metadata.generation.unwrap_or(0),
        }
    }

    /// True if both decide alike about every pod.
    #[must_use]
    pub fn decides_as(&self, other: &Self) -> bool {
        // Beyond one, the number of allowed disruptions decides nothing.
        let alike = |facts: &Self| Self { allowed: facts.allowed.clamp(0, 1), ..*facts };
        alike(self) == alike(other)
    }
}

/// True if a budget never guards pods that aren't ready.
#[must_use]
pub fn always_allows_unready(budget: &PodDisruptionBudget) -> bool {
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    policy == Some("AlwaysAllow")
}

/// The eviction API's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod may be evicted, whatever the budget still allows.
    Free,
    /// The pod may be evicted, and counts against its budget.
    Counts,
    /// Not now, and why.
    Blocked(Blocked),
}

/// Why a pod can't be evicted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Two PodDisruptionBudgets cover it: the eviction API refuses such pods for ever.
    TwoBudgets(String, String),
    /// The named budget allows no eviction.
    NoneAllowed(String),
    /// The status of the named budget is older than its spec.
    Stale(String),
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoBudgets(one, other) => {
                write!(f, "is covered by two PodDisruptionBudgets, {one} and {other}; it can't be evicted")
            }
            Self::NoneAllowed(name) => {
                write!(f, "can't be evicted now: PodDisruptionBudget {name} allows none")
            }
            Self::Stale(name) => {
                write!(f, "can't be evicted now: the status of PodDisruptionBudget {name} is out of date")
            }
        }
    }
}

impl Eviction {
    /// Decides about a pod that the budgets `covering` cover, each with its name.
    pub fn of<'a>(guard: Guard, covering: impl IntoIterator<Item = (&'a str, BudgetFacts)>) -> Self {
        let mut covering = covering.into_iter();
        if guard == Guard::None {
            return Self::Free;
        }
        let Some((name, budget)) = covering.next() else { return Self::Free };
        if let Some((other, _)) = covering.next() {
            return Self::Blocked(Blocked::TwoBudgets(name.to_owned(), other.to_owned()));
        }
        if guard == Guard::Unready && (budget.always_allows_unready || budget.is_healthy) {
            return Self::Free;
        }
        if budget.is_stale {
            return Self::Blocked(Blocked::Stale(name.to_owned()));
        }
        if budget.allowed < 1 {
            return Self::Blocked(Blocked::NoneAllowed(name.to_owned()));
        }
        Self::Counts
    }

    /// Why the pod can't be evicted now; `None` if it can.
    #[must_use]
    pub fn blocked(self) -> Option<String> {
        match self {
            Self::Blocked(why) => Some(why.to_string()),
            Self::Free | Self::Counts => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, ready: &str) -> Pod {
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": status})).unwrap()
    }

    fn budget(policy: &Value, healthy: i32, wanted: i32, allowed: i32) -> BudgetFacts {
        let budget = json!({
            "metadata": {"generation": 2},
            "spec": {"unhealthyPodEvictionPolicy": policy},
            "status": {"expectedPods": 3, "currentHealthy": healthy, "desiredHealthy": wanted,
                "disruptionsAllowed": allowed, "observedGeneration": 2},
        });
        BudgetFacts::read(&serde_json::from_value(budget).unwrap())
    }

    #[test]
    fn pods_are_guarded_once_they_run_until_they_end() {
        let cases = [
            ("Pending", "False", Guard::None),
            ("Running", "False", Guard::Unready),
            ("Running", "True", Guard::Ready),
            ("Succeeded", "False", Guard::None),
            ("Failed", "False", Guard::None),
        ];
        for (phase, ready, expected) in cases {
            assert_eq!(Guard::of(&pod(phase, ready)), expected, "{phase} {ready}");
        }
        let mut deleted = pod("Running", "True");
        deleted.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-20T00:00:00Z")).unwrap();
        assert_eq!(Guard::of(&deleted), Guard::None);
        assert_eq!(
            Guard::of(&Pod::default()),
            Guard::Unready,
            "without a status nothing says that it is ready"
        );
    }

    #[test]
    fn budgets_decide_as_the_eviction_api() {
        let null = Value::Null;
        let (if_healthy, always) = (json!("IfHealthyBudget"), json!("AlwaysAllow"));
        let none = Eviction::Blocked(Blocked::NoneAllowed("b".to_owned()));
        let cases = [
            ("no room", Guard::Ready, budget(&null, 2, 2, 0), none.clone()),
            ("room", Guard::Ready, budget(&null, 3, 2, 1), Eviction::Counts),
            ("pending", Guard::None, budget(&null, 0, 1, 0), Eviction::Free),
            ("unready, budget met", Guard::Unready, budget(&null, 2, 2, 0), Eviction::Free),
            ("unready, budget met", Guard::Unready, budget(&if_healthy, 2, 2, 0), Eviction::Free),
            ("unready, budget not met", Guard::Unready, budget(&if_healthy, 1, 2, 0), none.clone()),
            ("unready, nothing wanted", Guard::Unready, budget(&null, 0, 0, 0), none.clone()),
            ("unready, always allowed", Guard::Unready, budget(&always, 0, 2, 0), Eviction::Free),
            ("ready, always allowed", Guard::Ready, budget(&always, 2, 2, 0), none),
        ];
        for (what, guard, budget, expected) in cases {
            assert_eq!(Eviction::of(guard, [("b", budget)]), expected, "{what}");
        }
        assert_eq!(Eviction::of(Guard::Ready, []), Eviction::Free);
        let stale = BudgetFacts { is_stale: true, ..budget(&null, 3, 2, 1) };
        assert_eq!(
            Eviction::of(Guard::Ready, [("b", stale)]),
            Eviction::Blocked(Blocked::Stale("b".to_owned()))
        );
    }

    #[test]
    fn messages_name_the_budgets() {
        let facts = budget(&Value::Null, 2, 2, 0);
        let none = "can't be evicted now: PodDisruptionBudget a allows none";
        assert_eq!(Eviction::of(Guard::Ready, [("a", facts)]).blocked().as_deref(), Some(none));
        let two = "is covered by two PodDisruptionBudgets, a and b; it can't be evicted";
        assert_eq!(Eviction::of(Guard::Ready, [("a", facts), ("b", facts)]).blocked().as_deref(), Some(two));
        assert_eq!(Eviction::of(Guard::Ready, []).blocked(), None);
    }

    #[test]
    fn mirrors_and_pods_of_daemonsets_end_with_their_node() {
        let owned = |owner: &Value, annotations: &Value| -> Pod {
            let metadata = json!({"name": "a", "ownerReferences": [owner], "annotations": annotations});
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true});
        assert!(ends_with_node(&owned(&owner("apps/v1", "DaemonSet"), &json!({}))));
        assert!(ends_with_node(&owned(&owner("v1", "Node"), &json!({MIRROR: "hash"}))));
        assert!(!ends_with_node(&owned(&owner("apps/v1", "ReplicaSet"), &json!({}))));
        assert!(!ends_with_node(&owned(&owner("example.com/v1", "DaemonSet"), &json!({}))));
    }
}
