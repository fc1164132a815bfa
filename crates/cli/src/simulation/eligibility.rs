//! Which nodes may be disrupted, and the cost of it: the controller's rules, as far as objects show them.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{TenantPool, convert::policy::selector, disruption::ConsolidationPolicy, duration};
use croft_manifest::Input;
use croft_policy::selector::Selector;
use croft_scheduler::{PodKey, Price, consolidation::PodFacts};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;

/// Annotations of pods, nodes, claims and pools that forbid disruption.
const DO_NOT_DISRUPT: [&str; 2] = ["croft.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt"];
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// True if an object carries `do-not-disrupt: "true"`.
pub(super) fn has_do_not_disrupt(object: &impl kube::ResourceExt) -> bool {
    DO_NOT_DISRUPT.iter().any(|key| object.annotations().get(*key).is_some_and(|v| v == "true"))
}

/// The uid of the controller that would recreate a pod.
fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

fn is_daemon(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|o| o.controller == Some(true) && o.kind == "DaemonSet")
}

/// A PodDisruptionBudget that can be read.
struct Budget<'a> {
    namespace: String,
    name: String,
    selector: Selector,
    object: &'a PodDisruptionBudget,
}

/// Pods of the input by node and by owner, and the PodDisruptionBudgets that cover them.
pub(super) struct PodIndex<'a> {
    by_node: BTreeMap<&'a str, Vec<&'a Pod>>,
    replicas: BTreeMap<&'a str, usize>,
    pods: Vec<&'a Pod>,
    budgets: Vec<Budget<'a>>,
    now: Timestamp,
}

impl<'a> PodIndex<'a> {
    pub(super) fn new(input: &'a Input, now: Timestamp) -> Self {
        let mut index = Self {
            by_node: BTreeMap::new(),
            replicas: BTreeMap::new(),
            pods: Vec::new(),
            budgets: Vec::new(),
            now,
        };
        for pod in &input.pods {
            index.pods.push(&pod.object);
            if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
                index.by_node.entry(node).or_default().push(&pod.object);
            }
            if let Some(owner) = owner(&pod.object) {
                *index.replicas.entry(owner).or_default() += 1;
            }
        }
        for budget in &input.budgets {
            let wanted = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
            // The API server refuses selectors that can't be read, so none is missed.
            if let Some(selector) = wanted.and_then(|s| selector(s).ok()) {
                index.budgets.push(Budget {
                    namespace: budget.namespace().unwrap_or_default(),
                    name: budget.name_any(),
                    selector,
                    object: &budget.object,
                });
            }
        }
        index
    }

    /// The disruption cost of a node's pods, or why the node is kept.
    pub(super) fn disruption_cost(
        &self,
        node: &Node,
        claim_kept: bool,
        pool: &TenantPool,
    ) -> Result<Price, String> {
        let pods = self.by_node.get(node.name_any().as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut work = pods.iter().copied().filter(|pod| !is_daemon(pod)).peekable();
        let disruption = &pool.spec.disruption;
        if work.peek().is_some() && disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
            return Err("it has pods, and its pool's consolidationPolicy is WhenEmpty".to_owned());
        }
        let Ok(Some(after)) = duration::parse(&disruption.consolidate_after) else {
            return Err("its pool's consolidateAfter is Never".to_owned());
        };
        for (what, kept) in
            [("node", has_do_not_disrupt(node)), ("pool", has_do_not_disrupt(pool)), ("claim", claim_kept)]
        {
            if kept {
                return Err(format!("the {what} is annotated do-not-disrupt"));
            }
        }
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut disturbance = Price::ZERO;
        for pod in work {
            let key = PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any());
            if has_do_not_disrupt(pod) {
                return Err(format!("pod {key} is annotated do-not-disrupt"));
            }
            let Some(owner) = owner(pod) else {
                return Err(format!("pod {key} has no controller that would recreate it"));
            };
            if let Some(why) = self.eviction_blocker(pod) {
                return Err(format!("pod {key} {why}"));
            }
            let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
            let age = started.map_or(0, |at| self.now.duration_since(at.0).as_secs());
            let age_seconds = u64::try_from(age).unwrap_or(0);
            if started.is_some() && age_seconds < after.as_secs() {
                return Err(format!(
                    "pod {key} started within its pool's consolidateAfter of {}",
                    disruption.consolidate_after
                ));
            }
            let facts = PodFacts {
                age_seconds,
                replicas: self.replicas.get(owner).copied().unwrap_or(1),
                deletion_cost: pod.annotations().get(DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0),
                first_of_owner: seen.insert(owner),
            };
            disturbance += facts.disturbance();
        }
        Ok(disturbance)
    }

    /// Why a pod can't be evicted now.
    fn eviction_blocker(&self, pod: &Pod) -> Option<String> {
        let mut covering = self.budgets.iter().filter(|budget| budget.covers(pod));
        let budget = covering.next()?;
        if let Some(other) = covering.next() {
            let (one, other) = (&budget.name, &other.name);
            return Some(format!(
                "is covered by two disruption budgets, {one} and {other}; it can't be evicted"
            ));
        }
        (self.allowed_disruptions(budget) < 1)
            .then(|| format!("can't be evicted now: PodDisruptionBudget {} allows none", budget.name))
    }

    /// Evictions that a budget allows: its status, or what its controller would write there.
    fn allowed_disruptions(&self, budget: &Budget<'_>) -> i64 {
        if let Some(status) = &budget.object.status {
            return i64::from(status.disruptions_allowed.unwrap_or(0));
        }
        let covered = self.pods.iter().filter(|pod| budget.covers(pod));
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let expected = count(covered.clone().count());
        let runs = |pod: &&&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let healthy = count(covered.filter(runs).count());
        let spec = budget.object.spec.as_ref();
        let least = match (
            spec.and_then(|s| s.min_available.as_ref()),
            spec.and_then(|s| s.max_unavailable.as_ref()),
        ) {
            (Some(least), _) => scaled(least, expected),
            (None, Some(most)) => expected - scaled(most, expected),
            (None, None) => expected,
        };
        healthy - least
    }
}

/// A number, or a percentage of `all` rounded up, as the disruption controller rounds it.
fn scaled(value: &IntOrString, all: i64) -> i64 {
    match value {
        IntOrString::Int(number) => i64::from(*number),
        IntOrString::String(text) => {
            let share: i64 = text.trim_end_matches('%').parse().unwrap_or(100);
            (all * share + 99) / 100
        }
    }
}

impl Budget<'_> {
    fn covers(&self, pod: &Pod) -> bool {
        pod.namespace().unwrap_or_default() == self.namespace
            && self.selector.matches(|label| pod.labels().get(label).map(String::as_str))
    }
}
