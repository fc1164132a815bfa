//! Machines without a claim, claims without a machine, nodes without either.
//!
//! A list of machines and the picture of claims are never from one moment. So nothing counts as lost before it
//! was missing from two lists that were both asked for after it could be seen, and is older than a grace period.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::condition::LAUNCHED;
use croft_cloud::CloudMachine;
use jiff::Timestamp;
use kube::Resource;

use super::{Memory, Round, conditions, lifecycle, reference, termination::machine_id};
use crate::{
    action::{Action, Key},
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
    machines_alone(round, memory, last, before);
    claims_alone(round, last, before);
}

fn machines_alone(round: &mut Round<'_>, memory: &mut Memory, last: &MachineList, before: &MachineList) {
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
    let alone: Vec<&CloudMachine> = last
        .machines
        .values()
        .filter(|m| m.state.is_alive() && before.machines.contains_key(&m.id))
        .filter(|m| !held.contains(m.id.as_str()))
        .filter(|m| m.claim_uid.as_deref().is_none_or(|uid| !launching.contains(uid)))
        .filter(|m| launched_before(m, last.asked.wall, round))
        // Somebody's pods run there: such a machine is adopted, never collected.
        .filter(|m| ready.get(m.id.as_str()) != Some(&true))
        .filter(|m| !memory.terminations.contains_key(&m.id))
        .collect();
    let allowed = ALWAYS_COLLECTED.max(last.machines.len() / 10);
    if alone.len() > allowed {
        memory.collection_stopped = Some(format!(
            "{} of {} machines have no NodeClaim; more than {allowed} at once are not collected by themselves. If \
             the claims are lost for good, restore them or terminate the machines: {}",
            alone.len(),
            last.machines.len(),
            alone.iter().take(10).map(|m| m.id.as_str()).collect::<Vec<_>>().join(", "),
        ));
        return;
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
}

fn launched_before(machine: &CloudMachine, asked: Timestamp, round: &Round<'_>) -> bool {
    let launched = Timestamp::from_second(machine.launched_at).unwrap_or(Timestamp::MAX);
    let age = asked.duration_since(launched);
    std::time::Duration::try_from(age).is_ok_and(|age| age >= round.settings.orphan_grace)
}

fn claims_alone(round: &mut Round<'_>, last: &MachineList, before: &MachineList) {
    let snapshot = round.snapshot;
    for (name, claim) in &snapshot.claims {
        if claim.meta().deletion_timestamp.is_some() {
            continue;
        }
        let Some(status) = &claim.status else { continue };
        let Some(id) = status.provider_id.as_deref().map(machine_id) else { continue };
        let Some(launched) = conditions::find(status, LAUNCHED).map(|c| c.last_transition_time.0) else {
            continue;
        };
        let grace = jiff::SignedDuration::try_from(round.settings.orphan_grace).unwrap_or_default();
        let visible = launched.checked_add(grace).unwrap_or(Timestamp::MAX);
        let missing = |list: &MachineList| {
            list.asked.wall > visible && list.machines.get(id).is_none_or(|m| !m.state.is_alive())
        };
        if missing(last) && missing(before) {
            let note = format!("machine {id} is gone; the claim is given up and its pods are planned anew");
            round.tell(reference(&**claim), true, "MachineGone", note);
            round.act(lifecycle::delete(name, claim));
        }
    }
}
