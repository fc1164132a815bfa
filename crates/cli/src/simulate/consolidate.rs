//! `croft simulate --consolidate`: what would move, what that saves, and why each other node stays.
//!
//! The controller asks the same search. Budgets only pace what it finds, so they are left out of account here; so is
//! consolidateAfter, since a file doesn't say for how long pods have been what they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
};

use croft_api::{TenantPool, disruption::ConsolidationPolicy, pool::Provisioner};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{
    CapacityType, Cluster, InstanceType, Options, PodKey, Price, Quantity,
    consolidate::{Ask, Candidate, Consolidation, Move, PodFacts, Stay, Terms, consolidate},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use serde::Serialize;

use super::text::month;
use crate::{
    failure::Failure,
    input::Input,
    output::Output,
    table::{Align, BOLD, DIM, GOOD, Table, counted, shortened},
};

/// By which pods, nodes and pools ask to be left alone.
const KEEPS: [&str; 2] = ["croft.dev/do-not-disrupt", "karpenter.sh/do-not-disrupt"];
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What the search found, and what it wasn't asked about.
#[derive(Clone, Debug)]
pub struct Savings {
    /// The search's answer.
    pub found: Consolidation,
    /// Why a node wasn't asked about, by node.
    pub kept: BTreeMap<String, String>,
}

/// Searches for a cheaper cluster.
pub(super) fn search(input: &Input, cluster: &Cluster, types: &[InstanceType], options: &Options) -> Savings {
    let now = SystemClock.wall();
    let mut kept = BTreeMap::new();
    let options = Options { without_counts: true, ..options.clone() };
    let mut ask = Ask { options, ..Ask::default() };
    let mut on: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
    let mut replicas: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in &input.pods {
        if let Some(node) = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) {
            on.entry(node).or_default().push(&pod.object);
        }
        if let Some(owner) = owner(&pod.object) {
            *replicas.entry(owner).or_default() += 1;
        }
    }
    for node in &input.nodes {
        let name = node.name_any();
        let pool = input.pools.iter().find(|p| {
            let value = croft_api::convert::scheduler::value(&p.object);
            node.labels().get(&p.spec.key) == Some(&value)
        });
        let Some(pool) = pool.filter(|p| p.spec.provisioner == Provisioner::Croft) else {
            kept.insert(name, "it belongs to no pool that Croft provisions".to_owned());
            continue;
        };
        let pods = on.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        match candidate(input, types, &node.object, &pool.object, pods, &replicas, now) {
            Ok(candidate) => {
                ask.terms.insert(candidate.pool.clone(), terms(&pool.object));
                ask.candidates.push(candidate);
            }
            Err(why) => {
                kept.insert(name, why);
            }
        }
    }
    Savings { found: consolidate(cluster, &ask, &|| false), kept }
}

fn terms(pool: &TenantPool) -> Terms {
    let least = pool.spec.disruption.min_savings.parse::<Quantity>();
    Terms {
        min_savings: least.map_or(Price::MAX, |q| Price::from_micros(q.micros_floor())),
        nodes: usize::MAX,
    }
}

fn owner(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

fn asks(object: &impl kube::ResourceExt) -> bool {
    KEEPS.iter().any(|key| object.annotations().get(*key).is_some_and(|v| v == "true"))
}

/// The node as the search takes it, or why it is kept.
fn candidate(
    input: &Input,
    types: &[InstanceType],
    node: &Node,
    pool: &TenantPool,
    pods: &[&Pod],
    replicas: &BTreeMap<&str, usize>,
    now: Timestamp,
) -> Result<Candidate, String> {
    if pool.spec.disruption.consolidation_policy == ConsolidationPolicy::WhenEmpty {
        return Err("its pool's consolidationPolicy is WhenEmpty".to_owned());
    }
    if pool.spec.disruption.consolidate_after == "Never" {
        return Err("its pool's consolidateAfter is Never".to_owned());
    }
    for (what, asks) in [("node", asks(node)), ("pool", asks(pool))] {
        if asks {
            return Err(format!("the {what} is annotated do-not-disrupt"));
        }
    }
    let of_daemon_set = |pod: &Pod| {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|o| o.controller == Some(true) && o.kind == "DaemonSet")
    };
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut disturbance = Price::ZERO;
    for pod in pods.iter().filter(|pod| !of_daemon_set(pod)) {
        let key = PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any());
        if asks(*pod) {
            return Err(format!("pod {key} is annotated do-not-disrupt"));
        }
        let Some(owner) = owner(pod) else {
            return Err(format!("pod {key} has no controller that would make it again"));
        };
        let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
        let age = started.map_or(0, |at| now.duration_since(at.0).as_secs());
        let facts = PodFacts {
            age_seconds: u64::try_from(age).unwrap_or(0),
            replicas: replicas.get(owner).copied().unwrap_or(1),
            deletion_cost: pod.annotations().get(DELETION_COST).and_then(|v| v.parse().ok()).unwrap_or(0),
            first_of_owner: seen.insert(owner),
        };
        disturbance += facts.disturbance();
    }
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let capacity_type = label("karpenter.sh/capacity-type").and_then(CapacityType::parse).unwrap_or_default();
    let paid = input.claims.iter().find_map(|claim| {
        let status = claim.status.as_ref().filter(|s| s.node_name == node.metadata.name)?;
        Price::from_dollars(status.price_per_hour.as_deref()?.parse().ok()?)
    });
    let listed = || {
        let kind =
            types.iter().find(|t| Some(t.name.as_str()) == label("node.kubernetes.io/instance-type"))?;
        let zone = label("topology.kubernetes.io/zone");
        let mut offers = kind.offerings.iter().filter(|o| o.capacity_type == capacity_type);
        offers.find(|o| Some(o.zone.as_str()) == zone)?.price
    };
    let price = paid.or_else(listed).ok_or("nobody knows what it costs")?;
    Ok(Candidate { node: node.name_any(), pool: pool.name_any(), price, capacity_type, disturbance })
}

fn machines(one: &Move) -> String {
    let types: Vec<String> =
        one.machines.iter().map(|m| format!("{} in {}", m.instance_type, m.zone)).collect();
    if types.is_empty() { "nothing".to_owned() } else { shortened(&types, 3) }
}

/// Writes the moves and why other nodes stay, for people.
pub(super) fn text(savings: &Savings, out: &mut Output) -> Result<(), Failure> {
    let Savings { found, kept } = savings;
    let mut table = Table::new(&[
        ("GIVE BACK", Align::Left),
        ("LAUNCH", Align::Left),
        ("PODS ELSEWHERE", Align::Right),
        ("$/H BEFORE", Align::Right),
        ("$/H AFTER", Align::Right),
        ("SAVES", Align::Right),
    ]);
    for one in &found.moves {
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
    let given: usize = found.moves.iter().map(|m| m.nodes.len()).sum();
    let count = counted(given, "node");
    writeln!(out, "{BOLD}{count} would be given back in {}{BOLD:#}", counted(found.moves.len(), "move"))?;
    writeln!(
        out,
        "{GOOD}${saved}/h{GOOD:#} saved ({} a month): ${}/h instead of ${}/h",
        month(saved),
        found.after,
        found.before
    )?;
    let stays: BTreeMap<&String, String> = kept
        .iter()
        .map(|(node, why)| (node, why.clone()))
        .chain(found.stays.iter().map(|(node, stay)| (node, stay.to_string())))
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

const fn word(stay: &Stay) -> &'static str {
    match stay {
        Stay::NoPlace(_) => "NoPlace",
        Stay::NoSaving { .. } => "NoSaving",
        Stay::TooLittle { .. } => "TooLittle",
        Stay::FewSpotOptions(_) => "FewSpotOptions",
        Stay::Busy => "Busy",
        Stay::Budget => "Budget",
        Stay::NotTried => "NotTried",
    }
}

impl Document {
    pub(super) fn new(savings: &Savings) -> Self {
        let names = |pods: &[PodKey]| pods.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = &savings.found;
        let moves = found.moves.iter().map(|one| MoveDocument {
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
        let stays = found.stays.iter().map(|(node, stay)| {
            (node.clone(), StayDocument { reason: word(stay), detail: stay.to_string() })
        });
        Self {
            moves: moves.collect(),
            stays: kept.chain(stays).collect(),
            cost_per_hour_before: found.before,
            cost_per_hour_after: found.after,
        }
    }
}
