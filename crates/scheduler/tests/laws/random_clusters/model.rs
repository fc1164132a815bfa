//! A model of kube-scheduler's filters, on few labels: as its documentation has them, without any cache or order of Croft's.

use std::collections::BTreeMap;

use super::scene::{Selector, Spread, Template, Term, Topology};

/// A node, and what is bound to it.
#[derive(Clone, Debug)]
pub struct Node {
    pub name: String,
    /// `None`: the node lacks the label.
    pub zone: Option<&'static str>,
    pub tainted: bool,
    /// CPU in thousandths.
    pub cpu: i64,
    /// By name.
    pub pods: BTreeMap<String, Template>,
}

impl Node {
    fn domain(&self, topology: Topology) -> Option<&str> {
        match topology {
            Topology::Zone => self.zone,
            Topology::Host => Some(&self.name),
        }
    }

    fn free(&self) -> i64 {
        self.cpu - self.pods.values().map(|pod| pod.cpu).sum::<i64>()
    }

    fn is_selected_by(&self, pod: &Template) -> bool {
        pod.zone.is_none_or(|zone| self.zone == Some(zone))
    }

    fn is_tolerated_by(&self, pod: &Template) -> bool {
        pod.tolerates || !self.tainted
    }
}

/// True if kube-scheduler may bind `pod` to `nodes[at]` now.
pub fn allows(nodes: &[Node], pod: &Template, at: usize) -> bool {
    let node = &nodes[at];
    pod.cpu <= node.free()
        && node.is_selected_by(pod)
        && node.is_tolerated_by(pod)
        && pod.spreads.iter().all(|spread| is_even(nodes, pod, spread, node))
        && is_near(nodes, pod, node)
        && !is_repelled(nodes, pod, node)
}

/// PodTopologySpread: `matchNum + selfMatchNum - minMatchNum <= maxSkew`.
fn is_even(nodes: &[Node], pod: &Template, spread: &Spread, node: &Node) -> bool {
    let Some(here) = node.domain(spread.over) else { return false };
    let counted = nodes.iter().filter(|node| {
        pod.spreads.iter().all(|spread| node.domain(spread.over).is_some())
            && (!spread.honours_affinity || node.is_selected_by(pod))
            && (!spread.honours_taints || node.is_tolerated_by(pod))
    });
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in counted {
        let matched = node.pods.values().filter(|other| spread.selector.matches(other)).count();
        *counts.entry(node.domain(spread.over).unwrap()).or_default() += matched;
    }
    let enough = counts.len() >= spread.min_domains;
    let least = counts.values().min().filter(|_| enough).copied().unwrap_or(0);
    let there = counts.get(here).copied().unwrap_or(0);
    there + usize::from(spread.selector.matches(pod)) <= least + spread.max_skew
}

/// InterPodAffinity, required: only pods that satisfy all terms count, in the domains of their nodes. Where there is none in
/// any domain, a pod that does may be the first.
fn is_near(nodes: &[Node], pod: &Template, node: &Node) -> bool {
    if pod.near.is_empty() {
        return true;
    }
    let is_target = |other: &Template| pod.near.iter().all(|term| term.selector.matches(other));
    let with_targets: Vec<&Node> = nodes.iter().filter(|other| other.pods.values().any(is_target)).collect();
    let has_domain = |other: &&Node| pod.near.iter().any(|term| other.domain(term.over).is_some());
    let first = is_target(pod) && !with_targets.iter().any(has_domain);
    pod.near.iter().all(|term| {
        let here = node.domain(term.over);
        here.is_some() && (first || with_targets.iter().any(|other| other.domain(term.over) == here))
    })
}

/// InterPodAffinity, anti-affinity of the pod and of those that are there.
fn is_repelled(nodes: &[Node], pod: &Template, node: &Node) -> bool {
    let same = |term: &Term, other: &Node| {
        node.domain(term.over).is_some_and(|here| other.domain(term.over) == Some(here))
    };
    nodes.iter().any(|other| {
        let repels = |there: &Template| {
            pod.apart.iter().any(|term| term.selector.matches(there) && same(term, other))
                || there.apart.iter().any(|term| term.selector.matches(pod) && same(term, other))
        };
        other.pods.values().any(repels)
    })
}

impl Selector {
    pub fn matches(&self, pod: &Template) -> bool {
        self.app == pod.app && self.tier.is_none_or(|tier| pod.tier == Some(tier))
    }
}
