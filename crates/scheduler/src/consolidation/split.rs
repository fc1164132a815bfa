//! Independent replacements in a plan without some nodes: nodes are replaced together if their pods share a new instance.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{
    CapacityType, Cluster, ExistingPlacement, Plan, PlannedInstance, PodKey, Price,
    consolidation::{Ask, Candidate, Rejection},
    ids::{CandidateIx, InstanceIx},
    index_vec::IndexVec,
};

/// Candidates that are planned without at the same time.
pub(super) type CandidateSet<'a> = IndexVec<CandidateIx, &'a Candidate>;

/// Nodes, and what replaces them, which saves enough.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Of the set that was planned without.
    pub(super) nodes: Vec<CandidateIx>,
    pub(super) instances: Vec<PlannedInstance>,
    pub(super) onto: Vec<ExistingPlacement>,
    pub(super) before: Price,
    pub(super) after: Price,
    pub(super) disruption_cost: Price,
}

impl Replacement {
    pub(super) fn net(&self) -> i64 {
        self.before.micros() - self.after.micros() - self.disruption_cost.micros()
    }

    /// The names of its nodes.
    pub(super) fn names<'c>(&self, set: &CandidateSet<'c>) -> Vec<&'c str> {
        self.nodes.iter().map(|node| set[*node].node.as_str()).collect()
    }
}

/// A replacement before it is evaluated.
#[derive(Default)]
struct Draft {
    nodes: Vec<CandidateIx>,
    instances: Vec<InstanceIx>,
    no_place: Option<String>,
}

/// Union-find of candidates: each one's parent is itself, or a lesser one that is replaced together with it.
type Parents = IndexVec<CandidateIx, CandidateIx>;

fn root(parents: &Parents, mut node: CandidateIx) -> CandidateIx {
    while parents[node] != node {
        node = parents[node];
    }
    node
}

fn join(parents: &mut Parents, a: CandidateIx, b: CandidateIx) {
    let (a, b) = (root(parents, a), root(parents, b));
    parents[a.max(b)] = a.min(b);
}

/// Pods that would move, with their node.
fn sources(cluster: &Cluster, set: &CandidateSet<'_>) -> FxHashMap<PodKey, CandidateIx> {
    let mut sources = FxHashMap::default();
    for (node, candidate) in set.enumerate() {
        for key in cluster.movable_pods(&candidate.node) {
            sources.insert(key, node);
        }
    }
    sources
}

/// The replacements in `plan`, solved without `set`, that save enough, and why each other node stays.
pub(super) fn split(
    cluster: &Cluster,
    ask: &Ask,
    set: &CandidateSet<'_>,
    mut plan: Plan,
) -> (Vec<Replacement>, Vec<(CandidateIx, Rejection)>) {
    let sources = sources(cluster, set);
    let mut parents: Parents = set.ids().collect();
    let nodes_of = |pods: &[PodKey]| -> Vec<CandidateIx> {
        pods.iter().filter_map(|pod| sources.get(pod).copied()).collect()
    };
    let mut instances: IndexVec<InstanceIx, Option<PlannedInstance>> =
        std::mem::take(&mut plan.instances).into_iter().map(Some).collect();
    for instance in instances.iter().flatten() {
        for pair in nodes_of(&instance.pods).windows(2) {
            if let [a, b] = pair {
                join(&mut parents, *a, *b);
            }
        }
    }
    let mut drafts: BTreeMap<CandidateIx, Draft> = BTreeMap::new();
    for node in set.ids() {
        drafts.entry(root(&parents, node)).or_default().nodes.push(node);
    }
    for (number, instance) in instances.enumerate() {
        if let Some(node) = instance.iter().flat_map(|instance| nodes_of(&instance.pods)).next() {
            drafts.entry(root(&parents, node)).or_default().instances.push(number);
        }
    }
    for left in &plan.unschedulable {
        if let Some(node) = sources.get(&left.pod) {
            let why = left.reasons.iter().find(|reason| reason.pool == set[*node].pool);
            let why = why.or(left.reasons.first());
            let why = why.map_or_else(|| left.pod.to_string(), |r| format!("{}: {}", left.pod, r.detail));
            drafts.entry(root(&parents, *node)).or_default().no_place.get_or_insert(why);
        }
    }
    let mut replacements = Vec::new();
    let mut rejections = Vec::new();
    for (draft_root, draft) in drafts {
        let own: Vec<PlannedInstance> =
            draft.instances.iter().filter_map(|number| instances[*number].take()).collect();
        let evaluated = match draft.no_place {
            Some(why) => Err(Rejection::PodsUnschedulable(why)),
            None => evaluate(cluster, ask, set, draft.nodes.clone(), own),
        };
        match evaluated {
            Ok(mut replacement) => {
                for placement in &plan.existing {
                    let mut mine = placement.clone();
                    mine.pods.retain(|pod| {
                        sources.get(pod).is_some_and(|node| root(&parents, *node) == draft_root)
                    });
                    if !mine.pods.is_empty() {
                        replacement.onto.push(mine);
                    }
                }
                replacements.push(replacement);
            }
            Err(stay) => rejections.extend(draft.nodes.iter().map(|node| (*node, stay.clone()))),
        }
    }
    (replacements, rejections)
}

/// Evaluates whether replacing `members` of the set by `instances` saves enough.
pub(super) fn evaluate(
    cluster: &Cluster,
    ask: &Ask,
    set: &CandidateSet<'_>,
    members: Vec<CandidateIx>,
    mut instances: Vec<PlannedInstance>,
) -> Result<Replacement, Rejection> {
    let nodes = || members.iter().map(|node| set[*node]);
    let before: Price = nodes().map(|c| c.price).sum();
    // An instance without a price may cost anything.
    let Some(after) = instances.iter().map(|instance| instance.price).sum::<Option<Price>>() else {
        return Err(Rejection::NoSaving { elsewhere: None });
    };
    if after >= before && before > Price::ZERO {
        return Err(Rejection::NoSaving { elsewhere: Some(after) });
    }
    let disruption_cost: Price = nodes().map(|c| c.disruption_cost).sum();
    let least = nodes().filter_map(|c| ask.constraints.get(&c.pool)).map(|t| t.min_savings).max();
    let needs = disruption_cost.saturating_add(least.unwrap_or(Price::ZERO));
    let saves = before.saturating_sub(after);
    if saves <= needs && !(instances.is_empty() && needs == Price::ZERO) {
        return Err(Rejection::BelowMinSavings { saves, needs });
    }
    // Whichever alternative is launched, the command must still save enough.
    let count = u64::try_from(instances.len()).unwrap_or(u64::MAX).max(1);
    let slack = saves.saturating_sub(needs).micros() / i64::try_from(count).unwrap_or(i64::MAX);
    for instance in &mut instances {
        let price = instance.price.unwrap_or_default().micros();
        narrow(cluster, instance, price.saturating_add(slack));
    }
    let spot = nodes().any(|c| c.capacity_type == CapacityType::Spot);
    let scarce = instances
        .iter()
        .filter(|i| spot && i.capacity_type == CapacityType::Spot && i.options.len() < ask.spot_options)
        .map(|i| i.options.len())
        .min();
    // Replacing several nodes by one ends the descent to ever rarer types; one for one continues it.
    if let Some(options) = scarce.filter(|_| instances.len() <= members.len()) {
        return Err(Rejection::FewSpotOptions(options));
    }
    Ok(Replacement { nodes: members, instances, onto: Vec::new(), before, after, disruption_cost })
}

/// Keeps alternatives and zones that cost less than `limit`; the planned ones always.
fn narrow(cluster: &Cluster, instance: &mut PlannedInstance, limit: i64) {
    let mut templates = cluster.pools.get(&instance.pool).into_iter().flatten();
    let Some(rec) = templates.find(|rec| rec.pool.template == instance.template) else { return };
    let offer = |name: &str, zone: &str| {
        let kind = rec.pool.instance_types.iter().find(|t| t.name == name)?;
        let own = |o: &&crate::Offering| o.zone == zone && o.capacity_type == instance.capacity_type;
        kind.offerings.iter().find(own)
    };
    let is_cheap = |offer: &crate::Offering| offer.price.is_some_and(|price| price.micros() < limit);
    let (planned, zone) = (instance.instance_type.clone(), instance.zone.clone());
    let zones: Vec<String> = instance
        .zones
        .iter()
        .filter(|z| **z == zone || offer(&planned, z).is_some_and(is_cheap))
        .cloned()
        .collect();
    let cheap =
        |name: &&String| **name == planned || zones.iter().all(|z| offer(name, z).is_none_or(is_cheap));
    instance.options = instance.options.iter().filter(cheap).cloned().collect();
    instance.zones = zones;
}
