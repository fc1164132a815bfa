//! Consolidation of an input: which nodes could be removed, what that saves, and why each other node is kept.
//!
//! The controller runs the same search over the same nodes: disruption budgets, do-not-disrupt, PodDisruptionBudgets and
//! consolidateAfter hold here too. The latter is measured by the pods' age, since a file doesn't show removed pods.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{
    TenantPool, budget,
    convert::{static_capacity::size_of_node, template_return::of_consolidation},
    definitions::{DISRUPTED_TAINT, ZONE_LABEL},
    disruption::{Budget, Disruption, DisruptionReason},
    pool::Provisioner,
};
use croft_disruption::budgets::{NodeCounts, allowance, constraints};
use croft_manifest::Input;
use croft_policy::definitions::TEMPLATE_LABEL;
use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, Price, ShareLedger,
    consolidation::{Ask, Candidate, Command, Consolidation, PoolConstraints, Rejection, consolidate},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

use super::{
    eligibility::{Horizon, PodIndex, closed_zones, has_do_not_disrupt, time_of},
    leaving_nodes::leaving_nodes,
    outcome::{Savings, Simulation},
};
use crate::{
    amounts::per_month,
    node_index::{NodeIndex, OfferingIndex},
};

/// Why a node without a NodeClaim is kept, among others that have one.
pub const WITHOUT_CLAIM: &str = "it has no NodeClaim: Croft didn't launch it and won't remove it";

/// The question of a search, the nodes that are removed without one, and why each other node is kept.
pub(super) struct Question {
    pub(super) ask: Ask,
    pub(super) kept: BTreeMap<String, String>,
    /// Nodes without work, which are removed whatever they save: no pod of theirs is moved.
    pub(super) empty: Vec<Candidate>,
    /// Nodes without work that the budgets for empty nodes keep.
    pub(super) held: Vec<Candidate>,
    /// Nodes without work whose price is unknown: as candidates they cost nothing.
    pub(super) unpriced: BTreeSet<String>,
}

impl Question {
    /// Keeps nodes without work that a share of their pool needs.
    pub(super) fn within_shares(mut self, cluster: &Cluster) -> Self {
        let leaving = &self.ask.options.leaving;
        let mut ledger = ShareLedger::default();
        let kept = &mut self.kept;
        self.empty.retain(|one| {
            ledger.observe(cluster, &one.pool, &|node| leaving.iter().any(|leaving| leaving == node));
            let node = [one.node.as_str()];
            match ledger.check(cluster, &node, &[]) {
                Ok(()) => {
                    ledger.take(cluster, &node, &[]);
                    true
                }
                Err(share) => {
                    kept.insert(one.node.clone(), Rejection::PoolShare(share).to_string());
                    false
                }
            }
        });
        self
    }
}

/// The subject of a search.
pub(super) struct Subject<'a> {
    pub(super) horizon: Horizon,
    /// The pools whose nodes may be removed; every pool's for none.
    pub(super) pools: Option<&'a BTreeSet<String>>,
    /// When pods last came to a node or left it, where more is known than the ages of pods tell.
    pub(super) changed: Option<&'a BTreeMap<String, Timestamp>>,
    /// The plan for pending pods: a node that gets some isn't empty.
    pub(super) simulation: &'a Simulation,
}

/// Asks about the nodes of `input`.
pub(super) fn question(
    input: &Input,
    types: &[InstanceType],
    options: &Options,
    subject: &Subject<'_>,
) -> Question {
    let &Subject { horizon, pools, changed, simulation } = subject;
    let now = time_of(input);
    let pods = PodIndex::new(input, now, horizon).with_changes(changed);
    let mut kept = BTreeMap::new();
    let closed_nodes = if horizon == Horizon::Now { closed_nodes(input, now) } else { Vec::new() };
    let leaving = leaving_nodes(input);
    let options = Options { without_counts: true, closed_nodes, leaving, ..options.clone() };
    let mut ask = Ask { options, ..Ask::default() };
    let (mut empty, mut held, mut unpriced) = (Vec::new(), Vec::new(), BTreeSet::new());
    let planned = simulation.nodes_with_pods();
    let is_empty = |node: &str| !planned.contains(node) && pods.movable(node).next().is_none();
    let (index, offerings) = (NodeIndex::new(input), OfferingIndex::new(types));
    let mut nodes: BTreeMap<String, NodeCounts> = BTreeMap::new();
    for node in &input.nodes {
        let name = node.name_any();
        let pool = index.pool_of(&node.object).filter(|p| p.spec.provisioner == Provisioner::Croft);
        let Some(pool) = pool else {
            kept.insert(name, "its pool is not provisioned by Croft".to_owned());
            continue;
        };
        if let Some(size) = size_of_node(pool, &node.object) {
            let what = if size.template.is_some() { "its template" } else { "its pool" };
            kept.insert(name, format!("{what} has a fixed number of nodes"));
            continue;
        }
        if pools.is_some_and(|pools| !pools.contains(&pool.name_any())) {
            continue;
        }
        let counts = nodes.entry(pool.name_any()).or_default();
        counts.total += 1;
        counts.out += usize::from(is_disrupted(&node.object));
        match candidate(&index, &offerings, &node.object, pool, &pods) {
            Ok((candidate, is_priced)) if is_empty(&candidate.node) => {
                unpriced.extend((!is_priced).then_some(name));
                empty.push(candidate);
            }
            Ok((candidate, true)) => ask.candidates.push(candidate),
            Ok((_, false)) => {
                kept.insert(name, "its price is unknown".to_owned());
            }
            Err(why) => {
                kept.insert(name, why);
            }
        }
    }
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for (name, counts) in &nodes {
        if let Some(pool) = input.pools.get("", name) {
            let allowed = allowed(&pool.spec.disruption, *counts, DisruptionReason::Empty, now, horizon);
            left.insert(name.clone(), allowed);
        }
    }
    empty.retain(|one: &Candidate| {
        let left = left.entry(one.pool.clone()).or_default();
        let goes = *left > 0;
        *left = left.saturating_sub(1);
        if goes {
            nodes.entry(one.pool.clone()).or_default().out += 1;
        } else {
            held.push(one.clone());
        }
        goes
    });
    for (name, counts) in nodes {
        if let Some(pool) = input.pools.get("", &name) {
            let disruption = &pool.spec.disruption;
            let most = allowed(disruption, counts, DisruptionReason::Underutilized, now, horizon);
            ask.constraints.insert(name, constraints(disruption, most));
        }
    }
    Question { ask, kept, empty, held, unpriced }
}

/// Nodes in zones that are closed: no pod is moved onto them.
fn closed_nodes(input: &Input, now: Timestamp) -> Vec<String> {
    let closed = closed_zones(input, now);
    let is_closed = |node: &Node| {
        let zone = node.labels().get(ZONE_LABEL);
        zone.is_some_and(|zone| closed.iter().any(|one| one.name == *zone))
    };
    let nodes = input.nodes.iter().filter(|node| is_closed(&node.object));
    nodes.map(|node| node.name_any()).collect()
}

/// Searches for a cheaper cluster, for what can be removed now.
pub(super) fn search(
    input: &Input,
    cluster: &Cluster,
    types: &[InstanceType],
    options: &Options,
    simulation: &Simulation,
) -> Savings {
    let subject = Subject { horizon: Horizon::Now, pools: None, changed: None, simulation };
    let question = question(input, types, options, &subject).within_shares(cluster);
    let Question { mut ask, kept, empty, held, mut unpriced } = question;
    unpriced.retain(|node| empty.iter().any(|one| one.node == *node));
    let mut cluster = cluster.clone();
    empty.iter().for_each(|one| cluster.remove_node(&one.node));
    let mut found = consolidate(&cluster, &ask, &|| false);
    let mut removed: BTreeMap<&str, usize> = BTreeMap::new();
    for candidate in ask.candidates.iter().filter(|c| !found.rejections.contains_key(&c.node)) {
        *removed.entry(&candidate.pool).or_default() += 1;
    }
    let is_used_up = |(pool, constraints): (&String, &PoolConstraints)| {
        removed.get(pool.as_str()).copied().unwrap_or(0) >= constraints.nodes
    };
    let is_held = !held.is_empty() || ask.constraints.iter().any(is_used_up);
    let in_time = is_held.then(|| {
        ask.constraints.values_mut().for_each(|constraints| constraints.nodes = usize::MAX);
        held.iter().for_each(|one| cluster.remove_node(&one.node));
        let all = consolidate(&cluster, &ask, &|| false);
        empty.iter().chain(&held).map(|one| one.price).sum::<Price>() + all.before.saturating_sub(all.after)
    });
    add_empty(&mut found, empty, held);
    let in_time = in_time.filter(|saved| *saved > found.before.saturating_sub(found.after));
    Savings { found, kept, in_time, unpriced }
}

/// Adds nodes without work to what a search has found: a command for those of each pool that go, and a rejection for each that is
/// held by its pool's budget.
fn add_empty(found: &mut Consolidation, empty: Vec<Candidate>, held: Vec<Candidate>) {
    let mut by_pool: BTreeMap<String, Command> = BTreeMap::new();
    for one in empty {
        found.before += one.price;
        let command = by_pool.entry(one.pool).or_insert_with(|| Command {
            nodes: Vec::new(),
            instances: Vec::new(),
            onto: Vec::new(),
            before: Price::ZERO,
            after: Price::ZERO,
            disruption_cost: Price::ZERO,
        });
        command.nodes.push(one.node);
        command.before += one.price;
    }
    found.commands.splice(0..0, by_pool.into_values());
    for one in held {
        found.before += one.price;
        found.after += one.price;
        found.rejections.insert(one.node, Rejection::Budget);
    }
}

/// True if a node is being removed or isn't Ready, so that it counts against its pool's budget already.
pub(crate) fn is_disrupted(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    node.metadata.deletion_timestamp.is_some()
        || conditions.iter().any(|c| c.type_ == "Ready" && c.status != "True")
        || node
            .spec
            .as_ref()
            .and_then(|s| s.taints.as_deref())
            .unwrap_or_default()
            .iter()
            .any(|t| t.key == DISRUPTED_TAINT)
}

/// How many nodes of a pool may be removed for `reason`.
fn allowed(
    disruption: &Disruption,
    counts: NodeCounts,
    reason: DisruptionReason,
    now: Timestamp,
    horizon: Horizon,
) -> usize {
    match horizon {
        // A budget that can't be read allows nothing.
        Horizon::Now => allowance(disruption, counts, reason, now).map_or(0, |allowed| allowed.more),
        Horizon::End => {
            let always: Vec<Budget> =
                disruption.budgets.iter().filter(|budget| budget.schedule.is_none()).cloned().collect();
            match budget::allowed(&always, counts.total, reason, now) {
                Ok(allowed) if allowed > 0 => usize::MAX,
                _ => 0,
            }
        }
    }
}

/// The node as a candidate, and whether its price is known, or why it is kept.
fn candidate(
    index: &NodeIndex<'_>,
    offerings: &OfferingIndex<'_>,
    node: &Node,
    pool: &TenantPool,
    pods: &PodIndex<'_>,
) -> Result<(Candidate, bool), String> {
    if is_disrupted(node) {
        return Err("it is being removed, or is not Ready".to_owned());
    }
    let claim = node.metadata.name.as_deref().and_then(|name| index.claim_naming(name));
    // A file without NodeClaims is of nodes alone, which count as Croft's.
    if claim.is_none() && !index.input().claims.is_empty() {
        return Err(WITHOUT_CLAIM.to_owned());
    }
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let capacity_type = label("karpenter.sh/capacity-type").and_then(CapacityType::parse).unwrap_or_default();
    let of_claim =
        claim.and_then(|claim| claim.status.as_ref()?.price_per_hour.as_deref()?.parse::<Price>().ok());
    let of_catalog = || {
        let (name, zone) =
            (label("node.kubernetes.io/instance-type")?, label("topology.kubernetes.io/zone")?);
        offerings.offering(name, zone, capacity_type)?.price
    };
    let annotated = claim.is_some_and(has_do_not_disrupt);
    let (price, disruption_cost) = pods.candidate(node, pool, annotated, of_claim.or_else(of_catalog))?;
    let templates = of_consolidation(pool, label(TEMPLATE_LABEL));
    let (node, pool, is_priced) = (node.name_any(), pool.name_any(), price.is_some());
    let price = price.unwrap_or(Price::ZERO);
    Ok((Candidate { node, pool, price, capacity_type, disruption_cost, templates }, is_priced))
}

/// Whether a node could be removed, or why it is kept, as a sentence.
pub(super) fn outlook(savings: &Savings, node: &str) -> Option<String> {
    let command = savings.found.commands.iter().find(|one| one.nodes.iter().any(|n| n == node));
    if savings.unpriced.contains(node) {
        return Some("it could be removed now: it is empty, and its price is unknown".to_owned());
    }
    if let Some(one) = command {
        return Some(format!(
            "it could be removed now: that saves ${}/h ({} a month)",
            one.saves(),
            per_month(one.saves())
        ));
    }
    let rejection = savings.found.rejections.get(node).map(ToString::to_string);
    rejection.or_else(|| savings.kept.get(node).cloned()).map(|why| format!("it is kept: {why}"))
}
