//! Independent parts of a plan without some nodes: nodes are in one part if their pods share a new instance.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::{
    CapacityType, Cluster, ExistingPlacement, Plan, PlannedInstance, PodKey, Price,
    consolidation::{Ask, Candidate, Rejection},
};

/// A part that saves enough.
#[derive(Debug)]
pub(super) struct Part {
    /// Indices into the set that was planned without.
    pub(super) nodes: Vec<usize>,
    pub(super) instances: Vec<PlannedInstance>,
    pub(super) onto: Vec<ExistingPlacement>,
    pub(super) before: Price,
    pub(super) after: Price,
    pub(super) disruption_cost: Price,
}

impl Part {
    pub(super) fn net(&self) -> i64 {
        self.before.micros() - self.after.micros() - self.disruption_cost.micros()
    }

    /// The names of its nodes.
    pub(super) fn names<'c>(&self, set: &[&'c Candidate]) -> Vec<&'c str> {
        self.nodes.iter().filter_map(|at| set.get(*at)).map(|candidate| candidate.node.as_str()).collect()
    }
}

/// Members of one part, before it is evaluated.
#[derive(Default)]
struct Draft {
    nodes: Vec<usize>,
    instances: Vec<usize>,
    no_place: Option<String>,
}

fn root(parent: &mut [usize], mut at: usize) -> usize {
    while let Some(up) = parent.get(at).copied().filter(|up| *up != at) {
        at = up;
    }
    at
}

fn join(parent: &mut [usize], a: usize, b: usize) {
    let (a, b) = (root(parent, a), root(parent, b));
    if let Some(slot) = parent.get_mut(a.max(b)) {
        *slot = a.min(b);
    }
}

/// Pods that would move, with the index of their node.
fn sources(cluster: &Cluster, set: &[&Candidate]) -> FxHashMap<PodKey, usize> {
    let mut sources = FxHashMap::default();
    for (at, candidate) in set.iter().enumerate() {
        for key in cluster.movable_pods(&candidate.node) {
            sources.insert(key, at);
        }
    }
    sources
}

/// The parts of `plan`, solved without `set`, that save enough, and why each other node stays.
pub(super) fn split(
    cluster: &Cluster,
    ask: &Ask,
    set: &[&Candidate],
    mut plan: Plan,
) -> (Vec<Part>, Vec<(usize, Rejection)>) {
    let sources = sources(cluster, set);
    let mut parent: Vec<usize> = (0..set.len()).collect();
    let from =
        |pods: &[PodKey]| -> Vec<usize> { pods.iter().filter_map(|p| sources.get(p).copied()).collect() };
    for instance in &plan.instances {
        let members = from(&instance.pods);
        for pair in members.windows(2) {
            if let [a, b] = pair {
                join(&mut parent, *a, *b);
            }
        }
    }
    let mut drafts: BTreeMap<usize, Draft> = BTreeMap::new();
    for at in 0..set.len() {
        drafts.entry(root(&mut parent, at)).or_default().nodes.push(at);
    }
    for (number, instance) in plan.instances.iter().enumerate() {
        if let Some(at) = from(&instance.pods).first() {
            drafts.entry(root(&mut parent, *at)).or_default().instances.push(number);
        }
    }
    for left in &plan.unschedulable {
        if let Some(at) = sources.get(&left.pod) {
            let why = left.reasons.iter().find(|r| Some(&r.pool) == set.get(*at).map(|c| &c.pool));
            let why = why.or(left.reasons.first());
            let why = why.map_or_else(|| left.pod.to_string(), |r| format!("{}: {}", left.pod, r.detail));
            drafts.entry(root(&mut parent, *at)).or_default().no_place.get_or_insert(why);
        }
    }
    let mut instances: Vec<Option<PlannedInstance>> =
        std::mem::take(&mut plan.instances).into_iter().map(Some).collect();
    let mut parts = Vec::new();
    let mut rejections = Vec::new();
    for (draft_root, draft) in drafts {
        let own: Vec<PlannedInstance> =
            draft.instances.iter().filter_map(|at| instances.get_mut(*at).and_then(Option::take)).collect();
        let evaluated = match draft.no_place {
            Some(why) => Err(Rejection::PodsUnschedulable(why)),
            None => evaluate(cluster, ask, set, draft.nodes.clone(), own),
        };
        match evaluated {
            Ok(mut part) => {
                for placement in &plan.existing {
                    let mut mine = placement.clone();
                    mine.pods.retain(|p| {
                        sources.get(p).is_some_and(|at| root(&mut parent.clone(), *at) == draft_root)
                    });
                    if !mine.pods.is_empty() {
                        part.onto.push(mine);
                    }
                }
                parts.push(part);
            }
            Err(stay) => rejections.extend(draft.nodes.iter().map(|at| (*at, stay.clone()))),
        }
    }
    (parts, rejections)
}

/// Evaluates whether replacing `members` of the set by `instances` saves enough.
pub(super) fn evaluate(
    cluster: &Cluster,
    ask: &Ask,
    set: &[&Candidate],
    members: Vec<usize>,
    mut instances: Vec<PlannedInstance>,
) -> Result<Part, Rejection> {
    let nodes = || members.iter().filter_map(|at| set.get(*at));
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
    Ok(Part { nodes: members, instances, onto: Vec::new(), before, after, disruption_cost })
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
