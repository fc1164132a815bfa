//! `croft simulate --consolidate`: what would move, what that saves, and why each other node stays.
//!
//! The controller asks the same search, about the same nodes: budgets, do-not-disrupt, PodDisruptionBudgets and
//! consolidateAfter count here too, the last by the pods' age, since a file doesn't show pods that have gone.

use std::{collections::BTreeMap, io::Write as _};

use croft_api::{TenantPool, disruption::DisruptionReason, pool::Provisioner};
use croft_disruption::budgets::{NodeCounts, allowance, constraints};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, PodKey, Price,
    consolidation::{Ask, Candidate, Command, Consolidation, PoolConstraints, consolidate},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    keeps::{InputPods, is_do_not_disrupt},
    text::month,
};
use crate::{
    failure::Failure,
    input::Input,
    output::Output,
    table::{Align, BOLD, DIM, GOOD, Table, counted, shortened},
};

/// What the search found, and what it wasn't asked about.
#[derive(Clone, Debug)]
pub struct Savings {
    /// The search's answer: what may go now.
    pub found: Consolidation,
    /// Why a node wasn't asked about, by node.
    pub kept: BTreeMap<String, String>,
    /// What is saved once budgets have let everything go, where they hold something back.
    pub in_time: Option<Price>,
}

/// Searches for a cheaper cluster.
pub(crate) fn search(input: &Input, cluster: &Cluster, types: &[InstanceType], options: &Options) -> Savings {
    let now = SystemClock.wall();
    let pods = InputPods::new(input, now);
    let mut kept = BTreeMap::new();
    let options = Options { without_counts: true, ..options.clone() };
    let mut ask = Ask { options, ..Ask::default() };
    let mut nodes: BTreeMap<String, NodeCounts> = BTreeMap::new();
    for node in &input.nodes {
        let name = node.name_any();
        let pool = pool_of(input, &node.object).filter(|p| p.spec.provisioner == Provisioner::Croft);
        let Some(pool) = pool else {
            kept.insert(name, "it belongs to no pool that Croft provisions".to_owned());
            continue;
        };
        let counts = nodes.entry(pool.name_any()).or_default();
        counts.total += 1;
        counts.out += usize::from(is_out(&node.object));
        match candidate(input, types, &node.object, pool, &pods) {
            Ok(candidate) => ask.candidates.push(candidate),
            Err(why) => {
                kept.insert(name, why);
            }
        }
    }
    for (name, counts) in nodes {
        if let Some(pool) = input.pools.get("", &name) {
            ask.constraints.insert(name, pool_constraints(&pool.object, counts, now));
        }
    }
    let found = consolidate(cluster, &ask, &|| false);
    let mut given: BTreeMap<&str, usize> = BTreeMap::new();
    for candidate in ask.candidates.iter().filter(|c| !found.rejections.contains_key(&c.node)) {
        *given.entry(&candidate.pool).or_default() += 1;
    }
    let held = ask
        .constraints
        .iter()
        .any(|(pool, constraints)| given.get(pool.as_str()).copied().unwrap_or(0) >= constraints.nodes);
    let in_time = held.then(|| {
        ask.constraints.values_mut().for_each(|constraints| constraints.nodes = usize::MAX);
        let all = consolidate(cluster, &ask, &|| false);
        all.before.saturating_sub(all.after)
    });
    let in_time = in_time.filter(|saved| *saved > found.before.saturating_sub(found.after));
    Savings { found, kept, in_time }
}

fn pool_of<'i>(input: &'i Input, node: &Node) -> Option<&'i TenantPool> {
    let mut pools = input.pools.iter().map(|p| &p.object);
    pools.find(|pool| {
        let value = croft_api::convert::scheduler::value(pool);
        node.labels().get(&pool.spec.key) == Some(&value)
    })
}

/// True if a node is on its way out, or doesn't work: it counts against its pool's budget already.
fn is_out(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    node.metadata.deletion_timestamp.is_some()
        || conditions.iter().any(|c| c.type_ == "Ready" && c.status != "True")
        || node
            .spec
            .as_ref()
            .and_then(|s| s.taints.as_deref())
            .unwrap_or_default()
            .iter()
            .any(|t| t.key == "croft.dev/disrupted")
}

fn pool_constraints(pool: &TenantPool, counts: NodeCounts, now: Timestamp) -> PoolConstraints {
    let disruption = &pool.spec.disruption;
    // A budget that can't be read keeps every node: it may have been meant to.
    let allowed = allowance(disruption, counts, DisruptionReason::Underutilized, now);
    constraints(disruption, allowed.map_or(0, |allowed| allowed.more))
}

/// The node as the search takes it, or why it is kept.
fn candidate(
    input: &Input,
    types: &[InstanceType],
    node: &Node,
    pool: &TenantPool,
    pods: &InputPods<'_>,
) -> Result<Candidate, String> {
    if is_out(node) {
        return Err("it is on its way out, or not Ready".to_owned());
    }
    let claim = input.claims.iter().find(|claim| {
        claim.status.as_ref().is_some_and(|s| s.node_name == node.metadata.name && s.node_name.is_some())
    });
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let capacity_type = label("karpenter.sh/capacity-type").and_then(CapacityType::parse).unwrap_or_default();
    let paid =
        claim.and_then(|claim| claim.status.as_ref()?.price_per_hour.as_deref()?.parse::<Price>().ok());
    let listed = || {
        let kind =
            types.iter().find(|t| Some(t.name.as_str()) == label("node.kubernetes.io/instance-type"))?;
        let zone = label("topology.kubernetes.io/zone");
        let mut offers = kind.offerings.iter().filter(|o| o.capacity_type == capacity_type);
        offers.find(|o| Some(o.zone.as_str()) == zone)?.price
    };
    let annotated = claim.is_some_and(|c| is_do_not_disrupt(&c.object));
    let (price, disruption_cost) = pods.candidate(node, pool, annotated, paid.or_else(listed))?;
    Ok(Candidate { node: node.name_any(), pool: pool.name_any(), price, capacity_type, disruption_cost })
}

/// Why one node stays or goes, in words.
pub(crate) fn why(savings: &Savings, node: &str) -> Option<String> {
    let gone = savings.found.commands.iter().find(|one| one.nodes.iter().any(|n| n == node));
    if let Some(one) = gone {
        return Some(format!(
            "it could be given back now: that saves ${}/h ({} a month)",
            one.saves(),
            month(one.saves())
        ));
    }
    let stay = savings.found.rejections.get(node).map(ToString::to_string);
    stay.or_else(|| savings.kept.get(node).cloned()).map(|why| format!("it stays: {why}"))
}

fn machines(one: &Command) -> String {
    let types: Vec<String> =
        one.machines.iter().map(|m| format!("{} in {}", m.instance_type, m.zone)).collect();
    if types.is_empty() { "nothing".to_owned() } else { shortened(&types, 3) }
}

/// Writes the moves and why other nodes stay, for people.
pub(super) fn text(savings: &Savings, out: &mut Output) -> Result<(), Failure> {
    let Savings { found, kept, in_time } = savings;
    let mut table = Table::new(&[
        ("GIVE BACK", Align::Left),
        ("LAUNCH", Align::Left),
        ("PODS ELSEWHERE", Align::Right),
        ("$/H BEFORE", Align::Right),
        ("$/H AFTER", Align::Right),
        ("SAVES", Align::Right),
    ]);
    for one in &found.commands {
        let moved: usize = one.onto.iter().map(|p| p.pods.len()).sum();
        table.row(vec![
            shortened(&one.nodes, 3),
            machines(one),
            moved.to_string(),
            one.before.to_string(),
            one.after.to_string(),
            one.saves().to_string(),
        ]);
    }
    writeln!(out)?;
    if !table.is_empty() {
        table.write(out)?;
        writeln!(out)?;
    }
    let saved = found.before.saturating_sub(found.after);
    let given: usize = found.commands.iter().map(|m| m.nodes.len()).sum();
    let count = counted(given, "node");
    writeln!(out, "{BOLD}{count} would be given back in {}{BOLD:#}", counted(found.commands.len(), "move"))?;
    writeln!(
        out,
        "{GOOD}${saved}/h{GOOD:#} saved ({} a month): ${}/h instead of ${}/h",
        month(saved),
        found.after,
        found.before
    )?;
    if let Some(in_time) = in_time {
        writeln!(
            out,
            "${in_time}/h ({} a month) in time: the pools' disruption budgets let nodes go a few at once",
            month(*in_time)
        )?;
    }
    let stays: BTreeMap<&String, String> = kept
        .iter()
        .map(|(node, why)| (node, why.clone()))
        .chain(found.rejections.iter().map(|(node, stay)| (node, stay.to_string())))
        .collect();
    for (node, why) in stays {
        writeln!(out, "{DIM}{node} stays: {why}{DIM:#}")?;
    }
    Ok(())
}

/// The same for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    moves: Vec<MoveDocument>,
    stays: BTreeMap<String, StayDocument>,
    cost_per_hour_before: Price,
    cost_per_hour_after: Price,
    #[serde(skip_serializing_if = "Option::is_none")]
    saves_per_hour_in_time: Option<Price>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MoveDocument {
    nodes: Vec<String>,
    machines: Vec<MachineDocument>,
    /// Pods that go onto nodes which stay, by node.
    onto: BTreeMap<String, Vec<String>>,
    cost_per_hour_before: Price,
    cost_per_hour_after: Price,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MachineDocument {
    pool: String,
    instance_type: String,
    zone: String,
    capacity_type: &'static str,
    price: Price,
    pods: Vec<String>,
    instance_type_options: Vec<String>,
}

#[derive(Serialize)]
struct StayDocument {
    reason: &'static str,
    detail: String,
}

impl Document {
    pub(super) fn new(savings: &Savings) -> Self {
        let names = |pods: &[PodKey]| pods.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = &savings.found;
        let moves = found.commands.iter().map(|one| MoveDocument {
            nodes: one.nodes.clone(),
            machines: one
                .machines
                .iter()
                .map(|m| MachineDocument {
                    pool: m.pool.clone(),
                    instance_type: m.instance_type.clone(),
                    zone: m.zone.clone(),
                    capacity_type: m.capacity_type.as_str(),
                    price: m.price,
                    pods: names(&m.pods),
                    instance_type_options: m.options.clone(),
                })
                .collect(),
            onto: one.onto.iter().map(|p| (p.node.clone(), names(&p.pods))).collect(),
            cost_per_hour_before: one.before,
            cost_per_hour_after: one.after,
        });
        let kept = savings
            .kept
            .iter()
            .map(|(node, why)| (node.clone(), StayDocument { reason: "Kept", detail: why.clone() }));
        let stays = found.rejections.iter().map(|(node, stay)| {
            (node.clone(), StayDocument { reason: stay.reason(), detail: stay.to_string() })
        });
        Self {
            moves: moves.collect(),
            stays: kept.chain(stays).collect(),
            cost_per_hour_before: found.before,
            cost_per_hour_after: found.after,
            saves_per_hour_in_time: savings.in_time,
        }
    }
}
