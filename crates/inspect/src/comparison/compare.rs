//! Plans for the pods of a cluster, and counts both sides.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options, PodKey, Price, Unschedulable};
use kube::ResourceExt as _;

use super::{
    launcher::Launcher,
    model::{Comparison, Desired, PodGroup, PoolRow, Side},
    subject::{ComparedPod, Subject},
};
use crate::{
    admission::Admission,
    class_types::ClassTypes,
    inventory::NodeInfo,
    simulation::{Simulation, simulate_admitted},
};

/// Compares the nodes of `input` with Croft's plan for its pods, at the prices of `types`.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn compare(
    input: &Input,
    types: &Arc<[InstanceType]>,
    options: &Options,
) -> Result<Comparison, InputError> {
    let types = ClassTypes::new(input, types);
    let admission = Admission::with_types(input, &types)?;
    let subject = Subject::new(input, types.all(), &admission);
    let simulation = simulate_admitted(&subject.planned, types, options)?;
    let tallies = tallies(input, &subject, &simulation);
    let (mut now, mut kept, mut new) = (Side::default(), Side::default(), Side::default());
    for tally in tallies.values() {
        now.add_all(tally.now);
        kept.add_all(tally.kept);
        new.add_all(tally.new);
    }
    let planned = sum(kept, new);
    let plan = &simulation.plan;
    let places = places(&simulation);
    let is_placed = |(key, pod): &(&PodKey, &ComparedPod)| pod.from.is_none() && places.contains_key(*key);
    let unsaid = |info: &NodeInfo| info.capacity_type.is_empty() && info.price.is_some();
    let Subject { nodes, pods, derived, .. } = &subject;
    let mut warnings = admission.warnings();
    warnings.extend(subject.warnings.iter().chain(&simulation.warnings).cloned());
    Ok(Comparison {
        recorded_at: input.recorded_at.map(|at| at.to_string()),
        desired: match (input.pools.is_empty() && input.tenants.is_empty(), derived.is_empty()) {
            (true, _) => Desired::Derived,
            (false, true) => Desired::Declared,
            (false, false) => Desired::Both,
        },
        difference: now.difference(planned),
        lower_bound_per_hour: bound(kept, new, Some(plan.bound)),
        now,
        planned,
        pools: rows(input, &tallies, &plan.bound_by_pool),
        moves: moves(pods, &places),
        waits: waits(&subject, &plan.unschedulable),
        refused: refused(&subject),
        waiting_now: pods.iter().filter(is_placed).count(),
        uncounted: subject.uncounted.clone(),
        nodes_of_unsaid_capacity_type: nodes.values().filter(|node| unsaid(&node.info)).count(),
        bound_relaxes: plan.bound_relaxes.clone(),
        bound_given_domains: plan.bound_given_domains,
        bound_given_weights: plan.bound_given_weights,
        cut_short: plan.cut_short,
        warnings,
    })
}

/// Both sides of a pool.
#[derive(Default)]
struct Tally {
    launchers: BTreeSet<Launcher>,
    /// The nodes that are there.
    now: Side,
    /// Those of them that stay.
    kept: Side,
    /// The instances of the plan.
    new: Side,
}

/// The figures of each TenantPool and of each group.
fn tallies(input: &Input, subject: &Subject<'_>, simulation: &Simulation) -> BTreeMap<String, Tally> {
    let plan = &simulation.plan;
    let mut tallies: BTreeMap<String, Tally> =
        input.pools.iter().map(|pool| (pool.name_any(), Tally::default())).collect();
    let added: HashMap<&str, usize> =
        plan.existing.iter().map(|place| (place.node.as_str(), place.pods.len())).collect();
    for (name, node) in &subject.nodes {
        let tally = tallies.entry(node.place.clone()).or_default();
        tally.launchers.insert(node.launcher);
        let (price, is_estimate) = (node.info.price, node.info.estimated);
        let pods = |counts: &BTreeMap<String, usize>| counts.get(name).copied().unwrap_or_default();
        tally.now.add(price, is_estimate, pods(&subject.running));
        if node.stays() {
            let placed = added.get(name.as_str()).copied().unwrap_or_default();
            tally.kept.add(price, is_estimate, pods(&subject.kept).saturating_add(placed));
        }
    }
    for instance in &plan.instances {
        let tally = tallies.entry(instance.pool.clone()).or_default();
        tally.new.add(instance.price, simulation.is_estimate(instance), instance.pods.len());
    }
    tallies
}

fn sum(mut one: Side, other: Side) -> Side {
    one.add_all(other);
    one
}

/// What the nodes that stay cost, and the bound of the instances. A bound of zero says nothing about instances.
fn bound(kept: Side, new: Side, of_new: Option<Price>) -> Option<Price> {
    let kept = kept.known()?;
    let of_new = if new.nodes == 0 { Price::ZERO } else { of_new.filter(|bound| *bound > Price::ZERO)? };
    Some(kept.saturating_add(of_new))
}

/// The rows of pools that have a node on either side.
fn rows(input: &Input, tallies: &BTreeMap<String, Tally>, bounds: &BTreeMap<String, Price>) -> Vec<PoolRow> {
    let used = tallies.iter().filter(|(_, tally)| tally.now.nodes > 0 || tally.new.nodes > 0);
    let row = |(pool, tally): (&String, &Tally)| {
        let Tally { launchers, now, kept, new } = tally;
        let planned = sum(*kept, *new);
        PoolRow {
            pool: pool.clone(),
            declared: input.pools.get("", pool).is_some(),
            launchers: launchers.clone(),
            now: *now,
            planned,
            lower_bound_per_hour: bound(*kept, *new, bounds.get(pool).copied()),
            difference: now.difference(planned),
        }
    };
    used.map(row).collect()
}

/// The pool of each pod that has a place in the plan.
fn places(simulation: &Simulation) -> HashMap<&PodKey, &str> {
    let plan = &simulation.plan;
    let new = plan.instances.iter().map(|instance| (instance.pool.as_str(), &instance.pods));
    let old = plan.existing.iter().map(|place| (place.pool.as_deref().unwrap_or_default(), &place.pods));
    new.chain(old).flat_map(|(pool, pods)| pods.iter().map(move |pod| (pod, pool))).collect()
}

/// What is said of pods, as in [`PodGroup`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    from: Option<String>,
    to: Option<String>,
    why: String,
}

/// Pods by what is said of them.
#[derive(Default)]
struct PodGroups(BTreeMap<Finding, Vec<String>>);

impl PodGroups {
    fn add(&mut self, pod: &PodKey, from: Option<&String>, to: Option<&str>, why: String) {
        let finding = Finding { from: from.cloned(), to: to.map(str::to_owned), why };
        self.0.entry(finding).or_default().push(pod.to_string());
    }

    fn into_list(self) -> Vec<PodGroup> {
        let groups = self.0.into_iter();
        groups.map(|(Finding { from, to, why }, pods)| PodGroup { pods, from, to, why }).collect()
    }
}

/// Pods that leave the group in which they run.
fn moves(pods: &BTreeMap<PodKey, ComparedPod>, places: &HashMap<&PodKey, &str>) -> Vec<PodGroup> {
    let mut groups = PodGroups::default();
    for (key, ComparedPod { from, tenant, .. }) in pods {
        let (Some(from), Some(to)) = (from, places.get(key).copied()) else { continue };
        if from == to {
            continue;
        }
        let why = match tenant {
            Some(tenant) => format!("Tenant {tenant} has the namespace {}", key.namespace),
            None => format!("the namespace {} may use that pool", key.namespace),
        };
        groups.add(key, Some(from), Some(to), why);
    }
    groups.into_list()
}

/// Pods without a place, and why: in the pool that they need, or in the first.
fn waits(subject: &Subject<'_>, left: &[Unschedulable]) -> Vec<PodGroup> {
    let mut groups = PodGroups::default();
    let derived: BTreeSet<String> = subject.derived.iter().map(|pool| pool.name_any()).collect();
    for Unschedulable { pod, reasons } in left {
        let known = subject.pods.get(pod);
        let own = known.and_then(|known| known.pool.as_ref());
        let of_pool = own.and_then(|own| reasons.iter().find(|reason| reason.pool == *own));
        // A pending pod of no Tenant may go where the cluster has a group, and nowhere else.
        let of_group = || reasons.iter().find(|reason| derived.contains(&reason.pool));
        let reason = of_pool.or_else(of_group).or_else(|| reasons.first());
        let why = reason.map_or_else(
            || "there is no pool for it".to_owned(),
            |reason| format!("{}: {}: {}", reason.pool, reason.reason, reason.detail),
        );
        groups.add(pod, known.and_then(|known| known.from.as_ref()), None, why);
    }
    groups.into_list()
}

fn refused(subject: &Subject<'_>) -> Vec<PodGroup> {
    let mut groups = PodGroups::default();
    for one in &subject.refused {
        groups.add(&one.key, one.from.as_ref(), None, one.why.clone());
    }
    groups.into_list()
}
