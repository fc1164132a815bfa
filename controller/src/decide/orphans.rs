//! Machines without a claim, claims without a machine, nodes without either.
//!
//! A list of machines and the picture of claims are never from one moment. So nothing counts as lost before it
//! was missing from two lists that were both asked for after it could be seen, and is older than a grace period.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{NodeClaim, claim::FINALIZER, condition::LAUNCHED};
use croft_cloud::CloudMachine;
use jiff::Timestamp;
use kube::Resource;
use serde_json::json;

use super::{
    Memory, Round, conditions, lifecycle, reference,
    termination::{self, machine_id},
};
use crate::{
    action::{Action, Key},
    names,
    seam::{Call, Target, Verb},
    snapshot::MachineList,
};

/// However few machines there are, this many may be collected at once.
const ALWAYS_COLLECTED: usize = 3;

/// Decides what is lost.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let mono = round.now.mono;
    let due = memory.listed.is_none_or(|at| round.has_lasted(at, round.settings.machines_every));
    if due && round.is_idle(&Key::Machines) {
        memory.listed = Some(mono);
        round.act(Action::ListMachines);
    }
    let snapshot = round.snapshot;
    let (Some(last), Some(before)) = (&snapshot.machines.0, &snapshot.machines.1) else { return };
    // Which are alone is a matter of the list and of what claims hold; what was begun about some may have failed.
    let looked = Some((last.asked.mono, snapshot.claim_changes));
    if memory.alone_looked != looked {
        let none = machines_alone(round, memory, last, before);
        memory.alone_looked = looked.filter(|_| none);
    }
    claims_alone(round);
    nodes_alone(round, last, before);
}

/// True if there is none.
fn machines_alone(
    round: &mut Round<'_>,
    memory: &mut Memory,
    last: &MachineList,
    before: &MachineList,
) -> bool {
    let snapshot = round.snapshot;
    let held: BTreeSet<&str> = snapshot
        .claims
        .values()
        .filter_map(|c| c.status.as_ref()?.provider_id.as_deref())
        .map(machine_id)
        .collect();
    let launching: BTreeSet<&str> = snapshot
        .claims
        .values()
        .filter(|c| c.status.as_ref().is_none_or(|s| s.provider_id.is_none()))
        .filter_map(|c| c.metadata.uid.as_deref())
        .collect();
    let ready: BTreeMap<&str, bool> = snapshot
        .nodes
        .values()
        .filter_map(|n| Some((machine_id(n.provider_id.as_deref()?), n.ready)))
        .collect();
    let (adoptable, alone): (Vec<&CloudMachine>, Vec<&CloudMachine>) = last
        .machines
        .values()
        .filter(|m| m.state.is_alive() && before.machines.contains_key(&m.id))
        .filter(|m| !held.contains(m.id.as_str()))
        .filter(|m| m.claim_uid.as_deref().is_none_or(|uid| !launching.contains(uid)))
        .filter(|m| launched_before(m, last.asked.wall, round))
        .filter(|m| !memory.terminations.contains_key(&m.id))
        // Somebody's pods run there: such a machine is adopted, never collected.
        .partition(|m| ready.get(m.id.as_str()) == Some(&true));
    let none = adoptable.is_empty() && alone.is_empty();
    for machine in adoptable {
        adopt(round, machine);
    }
    let allowed = ALWAYS_COLLECTED.max(last.machines.len() / 10);
    if alone.len() > allowed {
        memory.collection_stopped = Some(format!(
            "{} of {} machines have no NodeClaim; more than {allowed} at once are not collected by themselves. If \
             the claims are lost for good, restore them or terminate the machines: {}",
            alone.len(),
            last.machines.len(),
            alone.iter().take(10).map(|m| m.id.as_str()).collect::<Vec<_>>().join(", "),
        ));
        return none;
    }
    memory.collection_stopped = None;
    let ids: Vec<String> = alone.iter().map(|m| m.id.clone()).collect();
    if !ids.is_empty() {
        for machine in &alone {
            tracing::warn!(
                machine = machine.id,
                claim = machine.claim,
                "machine without a claim is terminated"
            );
        }
        round.act(Action::Terminate { ids });
    }
    none
}

/// A machine that works and whose claim is lost, as after a restore from a backup, gets a new one.
fn adopt(round: &mut Round<'_>, machine: &CloudMachine) {
    let snapshot = round.snapshot;
    let Some(pool_name) = machine.pool.as_deref() else { return };
    let Some(pool) = snapshot.pools.get(pool_name) else { return };
    let Some(class) = pool.spec.template.as_ref().map(|t| &t.spec.node_class_ref) else { return };
    // From the machine's id: the counter's next name may be another machine's lost one.
    let name = names::claim(pool_name, &machine.id, 0);
    if snapshot.claims.contains_key(&name) || !round.is_idle(&Key::Claim(name.clone())) {
        return;
    }
    let mut labels = pool.spec.template.as_ref().map(|t| t.metadata.labels.clone()).unwrap_or_default();
    labels.insert(names::POOL_LABEL.to_owned(), pool_name.to_owned());
    labels.insert(pool.spec.key.clone(), croft_api::convert::scheduler::value(pool));
    let object = json!({
        "apiVersion": format!("{}/{}", croft_api::GROUP, croft_api::VERSION),
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "finalizers": [FINALIZER],
            "labels": {"croft.dev/pool": pool_name},
            "annotations": {names::ADOPTS: machine.id},
        },
        "spec": {
            "pool": pool_name,
            "nodeClassRef": class,
            "instanceTypes": [machine.instance_type],
            "zones": [machine.zone],
            "capacityType": machine.capacity_type.as_str(),
            "labels": labels,
            "taints": croft_api::convert::scheduler::taints(pool),
        },
    });
    tracing::warn!(machine = machine.id, claim = name, "machine with a node and without a claim is adopted");
    round.act(Action::Write {
        key: Key::Claim(name.clone()),
        call: Call { target: Target::Claim(name), verb: Verb::Create(object) },
        rest: lifecycle::WATCH_LAG,
    });
}

fn launched_before(machine: &CloudMachine, asked: Timestamp, round: &Round<'_>) -> bool {
    let launched = Timestamp::from_second(machine.launched_at).unwrap_or(Timestamp::MAX);
    let age = asked.duration_since(launched);
    std::time::Duration::try_from(age).is_ok_and(|age| age >= round.settings.orphan_grace)
}

/// True if the machine of `claim` was missing from the last two lists, both asked for when it must have been visible.
pub(super) fn is_missing(round: &Round<'_>, claim: &NodeClaim) -> bool {
    let snapshot = round.snapshot;
    let (Some(last), Some(before)) = (&snapshot.machines.0, &snapshot.machines.1) else { return false };
    let Some(status) = &claim.status else { return false };
    let Some(id) = status.provider_id.as_deref().map(machine_id) else { return false };
    let Some(launched) = conditions::find(status, LAUNCHED).map(|c| c.last_transition_time.0) else {
        return false;
    };
    let visible = later(launched, round.settings.orphan_grace);
    lacks(last, id, visible) && lacks(before, id, visible)
}

fn later(at: Timestamp, grace: std::time::Duration) -> Timestamp {
    let grace = jiff::SignedDuration::try_from(grace).unwrap_or_default();
    at.checked_add(grace).unwrap_or(Timestamp::MAX)
}

fn lacks(list: &MachineList, id: &str, visible: Timestamp) -> bool {
    list.asked.wall > visible && list.machines.get(id).is_none_or(|m| !m.state.is_alive())
}

fn claims_alone(round: &mut Round<'_>) {
    let snapshot = round.snapshot;
    for (name, claim) in snapshot.restless() {
        if claim.meta().deletion_timestamp.is_none() && is_missing(round, claim) {
            let id = claim.status.as_ref().and_then(|s| s.provider_id.as_deref()).map(machine_id);
            let note = format!(
                "machine {} is gone; the claim is given up and its pods are planned anew",
                id.unwrap_or_default()
            );
            round.tell(reference(&**claim), true, "MachineGone", note);
            round.act(lifecycle::delete(name, claim));
        }
    }
}

/// Nodes that Croft made, whose machine is gone and whose claim is, too.
fn nodes_alone(round: &mut Round<'_>, last: &MachineList, before: &MachineList) {
    let snapshot = round.snapshot;
    for (name, node) in &snapshot.nodes {
        // Others' nodes have machines that the lists never show.
        let ours = || {
            node.annotations.contains_key(names::CLAIM_ANNOTATION)
                || node.has_taint(names::UNREGISTERED_TAINT)
        };
        if node.ready || node.deleting || !ours() {
            continue;
        }
        if snapshot.claim_of_node(name).is_some_and(|claim| snapshot.node_of(claim).is_some()) {
            continue;
        }
        let (Some(id), Some(created)) = (node.provider_id.as_deref().map(machine_id), node.created) else {
            continue;
        };
        let visible = later(created, round.settings.orphan_grace);
        if lacks(last, id, visible) && lacks(before, id, visible) {
            tracing::warn!(node = name, machine = id, "node without a machine and a claim is deleted");
            round.act(termination::delete_node(name, node));
        }
    }
}
