//! Machines that no claim has: somebody took the claim away with its finalizer, or a restore did. They count towards
//! limits until they are known to be gone, since they are paid for until then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::NodeClaim;
use croft_cloud::CloudMachine;
use croft_scheduler::{ComingNode, Resources};

use super::{MachineList, Snapshot, coming::coming};
use crate::{decide::termination::machine_id, names, time::Now};

/// What is counted, and what for.
#[derive(Debug, Default)]
pub(super) struct Unclaimed {
    /// Claims that went without Croft's word that their machine is gone, by uid, and when.
    lost: BTreeMap<String, (Arc<NodeClaim>, Now)>,
    /// The names that the scheduler knows them by.
    counted: BTreeSet<String>,
    /// When the list of machines was asked for that was looked at last.
    looked: Option<Now>,
}

impl Unclaimed {
    /// The claim has gone; its machine, or one that is being launched for it, may still be there.
    pub(super) fn lose(&mut self, claim: Arc<NodeClaim>, now: Now) {
        if let Some(uid) = claim.metadata.uid.clone() {
            self.lost.insert(uid, (claim, now));
        }
    }

    /// The claim is there again, or it went because its machine is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.lost.remove(uid);
    }
}

impl Snapshot {
    /// Counts the machines that no claim has. A launch that was on its way when its claim went shows up within
    /// `grace`; `is_gone` knows the machines that the cloud has confirmed to be gone.
    pub fn count_unclaimed(&mut self, grace: Duration, is_gone: impl Fn(&str) -> bool) {
        let asked = self.machines.0.as_ref().map(|list| list.asked);
        let none = self.unclaimed.lost.is_empty() && self.unclaimed.counted.is_empty();
        if none && asked == self.unclaimed.looked {
            return;
        }
        self.unclaimed.looked = asked;
        let list = self.machines.0.take();
        let mut lost = std::mem::take(&mut self.unclaimed.lost);
        lost.retain(|uid, (claim, since)| match machine_of(claim) {
            Some(id) => !is_gone(id) && list.as_ref().is_none_or(|list| shows(list, id, *since, grace)),
            None => list.as_ref().is_none_or(|list| {
                let tagged = |m: &CloudMachine| m.state.is_alive() && m.claim_uid.as_deref() == Some(uid);
                list.asked.mono < since.mono.saturating_add(grace) || list.machines.values().any(tagged)
            }),
        });
        let mut found: BTreeMap<String, ComingNode> = BTreeMap::new();
        for (uid, (claim, _)) in &lost {
            let node = claim.status.as_ref().and_then(|s| s.node_name.as_deref());
            if self.counts_as_node(node, machine_of(claim), &claim.spec.pool) {
                continue;
            }
            let planned = claim.spec.instance_types.first().and_then(|t| self.instance_type(claim, t));
            let name = format!("claim/{uid}");
            found.insert(name.clone(), ComingNode { claim: name, ..full(coming(claim, planned)) });
        }
        let claimed = self.claimed();
        for machine in list.iter().flat_map(|list| list.machines.values()) {
            let uid = machine.claim_uid.as_deref();
            let known = claimed.contains(machine.id.as_str())
                || uid.is_some_and(|uid| claimed.contains(uid) || lost.contains_key(uid));
            if machine.state.is_alive()
                && !known
                && !is_gone(&machine.id)
                && let Some(node) = self.unclaimed_machine(machine)
            {
                found.insert(node.claim.clone(), node);
            }
        }
        self.machines.0 = list;
        self.unclaimed.lost = lost;
        let before = std::mem::replace(&mut self.unclaimed.counted, found.keys().cloned().collect());
        if before != self.unclaimed.counted {
            self.plan_version += 1;
        }
        for name in before.iter().filter(|name| !found.contains_key(*name)) {
            self.cluster.remove_coming(name);
        }
        for node in found.into_values() {
            self.cluster.upsert_coming(node);
        }
    }

    /// Machines that claims have, and claims that are still to get theirs.
    fn claimed(&self) -> BTreeSet<&str> {
        let claimed = self.claims.values().filter_map(|claim| {
            let adopts = claim.metadata.annotations.as_ref().and_then(|a| a.get(names::ADOPTS));
            machine_of(claim).or(adopts.map(String::as_str)).or(claim.metadata.uid.as_deref())
        });
        claimed.collect()
    }

    fn unclaimed_machine(&self, machine: &CloudMachine) -> Option<ComingNode> {
        let pool_name = machine.pool.as_deref()?;
        if self.counts_as_node(Some(&machine.node_name), Some(&machine.id), pool_name) {
            return None;
        }
        let pool = self.pools.get(pool_name)?;
        let types = self.class_of(pool).and_then(|class| self.classes.get(class)?.types.as_ref());
        let kind = types.and_then(|types| types.iter().find(|t| t.name == machine.instance_type));
        let mut labels = kind.map(|kind| kind.labels.clone()).unwrap_or_default();
        labels.insert(pool.spec.key.clone(), croft_api::convert::scheduler::value(pool));
        Some(full(ComingNode {
            claim: format!("machine/{}", machine.id),
            pool: pool_name.to_owned(),
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
            capacity_type: machine.capacity_type,
            labels,
            taints: Vec::new(),
            allocatable: Resources::new(),
            capacity: kind.map(|kind| kind.capacity.clone()).unwrap_or_default(),
        }))
    }

    fn pool_name_label(&self, pool: &str) -> String {
        let found = self.pools.get(pool).map(|pool| croft_api::convert::scheduler::pool_name_label(pool));
        found.unwrap_or_else(|| pool.to_owned())
    }

    /// True if the machine's node is there with the pool's label, by which it counts already.
    fn counts_as_node(&self, node: Option<&str>, machine: Option<&str>, pool: &str) -> bool {
        let node = node.and_then(|name| self.nodes.get(name));
        node.is_some_and(|node| {
            node.provider_id.as_deref().map(machine_id) == machine
                && node.labels.get(names::POOL_LABEL) == Some(&self.pool_name_label(pool))
        })
    }
}

/// Nobody is planned onto it.
fn full(node: ComingNode) -> ComingNode {
    ComingNode { allocatable: Resources::new(), ..node }
}

fn machine_of(claim: &NodeClaim) -> Option<&str> {
    claim.status.as_ref()?.provider_id.as_deref().map(machine_id)
}

/// True if `list` shows the machine, or may not show it yet.
fn shows(list: &MachineList, id: &str, since: Now, grace: Duration) -> bool {
    match list.machines.get(id) {
        Some(machine) => machine.state.is_alive(),
        None => list.asked.mono < since.mono.saturating_add(grace),
    }
}
