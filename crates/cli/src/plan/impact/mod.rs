//! `croft plan --live`: what an edit of Tenants, TenantPools, EC2NodeClasses or the CroftConfig does to what runs.
//!
//! ```text
//!  cluster ──▶ Input now ──┬──────────────────────▶ gate, simulate ──┐
//!  -f ─────────────────────┴──put──▶ Input then ──▶ gate, simulate ──┴──difference──▶ Impact
//! ```
//!
//! The rules are the controller's own: admission's plan of each pod and DaemonSet, drift and expiry of each claim, and the
//! scheduler's plan for the pods that need another place.

mod changes;
mod nodes;
mod pods;
mod text;

use std::{collections::BTreeMap, sync::Arc};

use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{InstanceType, Options, Plan, Price};
use kube::ResourceExt as _;
use serde::Serialize;

pub(super) use text::write;

use crate::{
    admission::Gate,
    input::{Input, InputError},
    simulate::simulate,
};

/// What an edit does.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Impact {
    /// The objects of the edit.
    pub objects: Vec<Edited>,
    /// Pods that are evicted, made again, or reported as being where they may not be.
    pub pods: Vec<PodImpact>,
    /// DaemonSets whose template is planned again, which replaces their pods.
    pub daemon_sets: Vec<DaemonSetImpact>,
    /// Nodes that are replaced or terminated.
    pub nodes: Vec<NodeImpact>,
    /// Instances that are launched because of the edit.
    pub launched: Vec<Launched>,
    /// Pods that find no place after the edit, and find one, or have one, without it.
    pub pending: Vec<Pending>,
    /// What the instances cost together, in dollars per hour.
    pub cost_per_hour_before: Price,
    /// The same after the edit.
    pub cost_per_hour_after: Price,
    #[serde(skip)]
    warnings: Vec<String>,
}

/// An object of the edit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Edited {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// `created`, `changed` or `unchanged`.
    pub change: &'static str,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PodImpact {
    /// Namespace and name.
    pub pod: String,
    /// `evicted`, `recreated`, or `reported`: Croft does nothing about it but say so.
    pub action: &'static str,
    /// Why.
    pub why: String,
}

/// What becomes of a DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonSetImpact {
    /// Namespace and name.
    pub daemon_set: String,
    /// `rewritten` or `refused`.
    pub action: &'static str,
    /// Why.
    pub why: String,
}

/// What becomes of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeImpact {
    /// The node.
    pub node: String,
    /// Its NodeClaim.
    pub claim: String,
    /// Its pool.
    pub pool: String,
    /// `Drifted`, `Expired`, `Empty` or `ScaledDown`.
    pub reason: &'static str,
    /// What has changed.
    pub detail: String,
}

/// Instances of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Launched {
    /// The pool.
    pub pool: String,
    /// Their type.
    pub instance_type: String,
    /// Their zone.
    pub zone: String,
    /// How they are paid for.
    pub capacity_type: &'static str,
    /// What each costs, in dollars per hour.
    pub price: Price,
    /// How many.
    pub count: usize,
}

/// A pod without a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Namespace and name.
    pub pod: String,
    /// Why.
    pub why: String,
}

/// Compares the cluster, which is `now`, with what it is once `edit` is applied; answers also the cluster then.
///
/// # Errors
/// What can't be read of either, by object and field.
pub(super) fn impact(
    now: &Input,
    edit: &Input,
    types: &Arc<[InstanceType]>,
) -> Result<(Impact, Input), InputError> {
    let (then, objects) = changes::apply(now, edit);
    let (was, is) = (Gate::new(now)?, Gate::new(&then)?);
    let mut impact = Impact { objects, ..Impact::default() };
    changes::warn(&impact.objects, now, &then, &mut impact.warnings);
    impact.daemon_sets = pods::daemon_sets(now, &was, &is);
    impact.nodes = nodes::replaced(now, &then, SystemClock.wall());
    let mut after = then.clone();
    nodes::remove(&mut after, &impact.nodes);
    impact.pods = pods::displace(now, &mut after, &was, &is);
    let emptied = nodes::emptied(now, &then, &after);
    nodes::remove(&mut after, &emptied);
    impact.nodes.extend(emptied);

    let options = Options { without_counts: true, ..Options::default() };
    let before = simulate(now, Arc::clone(types), &options)?;
    let after = simulate(&after, Arc::clone(types), &options)?;
    impact.launched = launched(&before.plan, &after.plan);
    impact.pending = pending(&before.plan, &after.plan);
    impact.pods.extend(after.denied.iter().flat_map(|denied| {
        let refused = |pod: &croft_scheduler::PodKey| PodImpact {
            pod: pod.to_string(),
            action: "refused",
            why: denied.refusal.clone(),
        };
        denied.pods.iter().map(refused)
    }));
    (impact.cost_per_hour_before, impact.cost_per_hour_after) = costs(now, &impact);
    Ok((impact, then))
}

/// Instances of `after` that `before` hasn't.
fn launched(before: &Plan, after: &Plan) -> Vec<Launched> {
    let kinds = |plan: &Plan| {
        let mut kinds: BTreeMap<_, (Price, usize)> = BTreeMap::new();
        for machine in &plan.machines {
            let key = (
                machine.pool.clone(),
                machine.instance_type.clone(),
                machine.zone.clone(),
                machine.capacity_type.as_str(),
            );
            let kind = kinds.entry(key).or_insert((machine.price, 0));
            kind.1 += 1;
        }
        kinds
    };
    let had = kinds(before);
    kinds(after)
        .into_iter()
        .filter_map(|(key, (price, count))| {
            let count = count.saturating_sub(had.get(&key).map_or(0, |(_, count)| *count));
            let (pool, instance_type, zone, capacity_type) = key;
            (count > 0).then_some(Launched { pool, instance_type, zone, capacity_type, price, count })
        })
        .collect()
}

fn pending(before: &Plan, after: &Plan) -> Vec<Pending> {
    let is_new =
        |left: &&croft_scheduler::Unschedulable| before.unschedulable.iter().all(|old| old.pod != left.pod);
    let left = after.unschedulable.iter().filter(is_new);
    left.map(|left| Pending {
        pod: left.pod.to_string(),
        why: left.reasons.first().map(|reason| reason.detail.clone()).unwrap_or_default(),
    })
    .collect()
}

fn costs(now: &Input, impact: &Impact) -> (Price, Price) {
    let mut before = Price::default();
    let mut after = Price::default();
    for claim in &now.claims {
        let price = claim.status.as_ref().and_then(|s| s.price_per_hour.as_deref()?.parse::<Price>().ok());
        let price = price.unwrap_or_default();
        before = before.saturating_add(price);
        if impact.nodes.iter().all(|node| node.claim != claim.name_any()) {
            after = after.saturating_add(price);
        }
    }
    for kind in &impact.launched {
        (0..kind.count).for_each(|_| after = after.saturating_add(kind.price));
    }
    (before, after)
}

impl Impact {
    /// What can't be known before the edit is applied.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// True if nothing that runs changes.
    fn is_nothing(&self) -> bool {
        let Self { objects: _, pods, daemon_sets, nodes, launched, pending, .. } = self;
        pods.is_empty()
            && daemon_sets.is_empty()
            && nodes.is_empty()
            && launched.is_empty()
            && pending.is_empty()
    }
}
