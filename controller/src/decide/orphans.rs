//! Machines without a claim, claims without a machine, nodes without either.
//!
//! A list of machines and the picture of claims are never from one moment. So an instance without a claim is one that
//! two lists show, a grace period apart. If it has a Node it is adopted, and drained like any other when it goes; if it has
//! none, the API server is asked for pods before it is terminated. A claim or a Node is lost when the cloud, asked by
//! id, says that the instance is going, or hasn't known it for long (see [`super::instances`]).

use std::collections::BTreeSet;

use croft_api::definitions::FINALIZER;
use croft_cloud::CloudMachine;
use serde_json::json;

use super::{
    Memory, Round,
    breaker::Cause,
    instances, lifecycle, reference,
    termination::{self, machine_id},
};
use crate::{
    action::{Action, Key, Look},
    names,
    seam::{Call, Target, Verb},
    snapshot::{MachineList, NodeView},
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
    claims_alone(round, memory);
    nodes_alone(round, memory, last);
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
    let with_node: BTreeSet<&str> =
        snapshot.nodes.values().filter_map(|n| Some(machine_id(n.provider_id.as_deref()?))).collect();
    let (adoptable, alone): (Vec<&CloudMachine>, Vec<&CloudMachine>) = last
        .machines
        .values()
        .filter(|m| m.state.is_alive() && before.machines.contains_key(&m.id))
        .filter(|m| !held.contains(m.id.as_str()))
        .filter(|m| m.claim_uid.as_deref().is_none_or(|uid| !launching.contains(uid)))
        .filter(|m| {
            let listed = snapshot.listed_since(&m.id);
            listed.is_some_and(|at| last.asked.mono >= at.saturating_add(round.settings.orphan_grace))
        })
        .filter(|m| !instances::is_going(memory, &m.id))
        // Pods may run there, whether or not the node is Ready now: such an instance is adopted, never collected.
        .partition(|m| with_node.contains(m.id.as_str()));
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
    for machine in alone {
        let look = Look {
            subject: machine.id.clone(),
            instance: machine.id.clone(),
            provider_id: machine.provider_id.clone(),
            node: machine.node_name.clone(),
            ended: BTreeSet::new(),
        };
        if termination::is_vacant(round, memory, look) {
            tracing::warn!(
                instance = machine.id,
                claim = machine.claim,
                "instance without a claim and a node is terminated"
            );
            round.act(Action::Terminate { ids: vec![machine.id.clone()] });
        }
    }
    none
}

/// An instance with a Node whose claim is lost, as after a restore from a backup, gets a new one.
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

/// Claims whose instance is going or gone, by the cloud's word on its id.
fn claims_alone(round: &mut Round<'_>, memory: &Memory) {
    let snapshot = round.snapshot;
    for (name, claim) in snapshot.restless() {
        let Some(id) = instances::instance_of(claim) else { continue };
        let node = snapshot.node_of(claim).map(|(_, node)| node);
        if claim.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // The cloud's word on the id needs no cap: what it says is going runs nothing any more.
        let gone = instances::is_going(memory, id)
            || (instances::is_lost(round, memory, id, node)
                && round.may_remove(Cause::InstanceMissing, &claim.spec.pool, name));
        if gone {
            let note = format!("instance {id} is gone; the claim is deleted and its pods are planned anew");
            round.tell(reference(&**claim), true, "InstanceGone", note);
            round.act(lifecycle::delete(name, claim));
        }
    }
}

/// Nodes of Croft that no claim has: they go with their instance, and Croft's finalizer keeps none that is deleted.
fn nodes_alone(round: &mut Round<'_>, memory: &Memory, last: &MachineList) {
    let snapshot = round.snapshot;
    let mut ask = Vec::new();
    for (name, node) in &snapshot.nodes {
        // Others' nodes have instances that the lists never show.
        let is_ours = node.annotations.contains_key(names::CLAIM_ANNOTATION)
            || node.has_taint(names::UNREGISTERED_TAINT)
            || node.is_held();
        if !is_ours || (node.ready && !node.deleting) {
            continue;
        }
        if snapshot.claim_of_node(name).is_some_and(|claim| snapshot.node_of(claim).is_some()) {
            continue;
        }
        let Some(id) = node.provider_id.as_deref().map(machine_id) else { continue };
        let listed = last.machines.get(id);
        if node.deleting {
            // One whose instance works is adopted and drained first.
            if !listed.is_some_and(|m| m.state.is_alive() && is_adoptable(round, m)) {
                termination::let_go(round, name, node);
            }
            continue;
        }
        if listed.is_some_and(|m| m.state.is_alive()) || !was_visible(round, node, last) {
            continue;
        }
        if instances::is_going(memory, id) || instances::is_lost(round, memory, id, Some(node)) {
            tracing::warn!(node = name, instance = id, "node without an instance and a claim is deleted");
            termination::let_go(round, name, node);
        } else if memory.answers.is_due(id, round.now.mono, round.settings.machines_every) {
            ask.push(id.to_owned());
        }
    }
    if !ask.is_empty() {
        round.act(Action::DescribeInstances(ask));
    }
}

/// True if the list was asked for when the instance of a node must have been visible.
fn was_visible(round: &Round<'_>, node: &NodeView, list: &MachineList) -> bool {
    list.asked.mono >= node.seen_at.saturating_add(round.settings.orphan_grace)
}

/// True if the pool of an instance says what its claim would be.
fn is_adoptable(round: &Round<'_>, machine: &CloudMachine) -> bool {
    let pool = machine.pool.as_deref().and_then(|pool| round.snapshot.pools.get(pool));
    pool.is_some_and(|pool| pool.spec.template.is_some())
}
