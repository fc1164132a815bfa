//! Nodes that become drifted, expired, surplus or empty by the edit.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{
    EC2NodeClass, NodeClaim, TenantPool,
    convert::static_capacity::{counts, size_of, sizes},
    drift::{self, DriftStatus},
    expiry,
    pool::Provisioner,
};
use croft_inspect::NodeIndex;
use croft_manifest::{Input, Sourced};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::model::NodeImpact;

/// Nodes that the edit replaces or terminates, whatever their pods.
pub(super) fn replaced(now: &Input, then: &Input, wall: Timestamp) -> Vec<NodeImpact> {
    let mut impacts = Vec::new();
    let registered = with_nodes(now);
    for &(claim, node) in &registered {
        let pool_before = managed(now, claim);
        let Some(pool) = managed(then, claim) else {
            if pool_before.is_some() && then.pools.get("", &claim.spec.pool).is_none() {
                let detail = format!("TenantPool {} is removed", claim.spec.pool);
                impacts.push(impact(claim, node, "PoolRemoved", detail));
            }
            continue;
        };
        let fields = drifted(then, claim, node, pool);
        let before = pool_before.map(|pool| drifted(now, claim, node, pool)).unwrap_or_default();
        let fields: Vec<String> = fields.into_iter().filter(|field| !before.contains(field)).collect();
        let expired = |pool: &TenantPool| {
            let template = pool.of_template(claim.template());
            template.and_then(|template| expiry::at(claim, &template)).is_some_and(|at| at <= wall)
        };
        if expired(pool) && !pool_before.is_some_and(expired) {
            let template = pool.of_template(claim.template());
            let after = template.and_then(|pool| pool.spec.template.as_ref()?.spec.expire_after.clone());
            let detail = format!("it is older than {}", after.unwrap_or_default());
            impacts.push(impact(claim, node, "Expired", detail));
        } else if !fields.is_empty() {
            impacts.push(impact(claim, node, "Drifted", fields.join(", ")));
        }
    }
    impacts.extend(surplus(now, then, &registered, &impacts));
    impacts
}

fn impact(claim: &NodeClaim, node: &Node, reason: &'static str, detail: String) -> NodeImpact {
    NodeImpact {
        node: node.name_any(),
        claim: claim.name_any(),
        pool: claim.spec.pool.clone(),
        reason,
        detail,
    }
}

/// Claims that aren't being deleted, with their nodes.
fn with_nodes(input: &Input) -> Vec<(&NodeClaim, &Node)> {
    let index = NodeIndex::new(input);
    let stays = |claim: &&Sourced<NodeClaim>| claim.metadata.deletion_timestamp.is_none();
    let claims = input.claims.iter().filter(stays);
    claims.filter_map(|claim| Some((&claim.object, index.node_of(claim)?))).collect()
}

/// The claim's pool, if Croft provisions it.
fn managed<'i>(input: &'i Input, claim: &NodeClaim) -> Option<&'i TenantPool> {
    let pool = &input.pools.get("", &claim.spec.pool)?.object;
    (pool.spec.provisioner == Provisioner::Croft).then_some(pool)
}

fn class_of<'i>(input: &'i Input, pool: &TenantPool) -> Option<&'i EC2NodeClass> {
    let name = &pool.spec.template.as_ref()?.spec.node_class_ref.name;
    input.classes.get("", name).map(|class| &class.object)
}

fn drifted(input: &Input, claim: &NodeClaim, node: &Node, pool: &TenantPool) -> Vec<String> {
    let Some(pool) = pool.of_template(claim.template()) else { return vec![drift::TEMPLATE.to_owned()] };
    let Some(class) = class_of(input, &pool) else { return Vec::new() };
    let wanted = drift::Wanted::new(&pool.into_owned().into(), &class.clone().into());
    let labels = node.metadata.labels.clone().unwrap_or_default();
    match drift::compare(claim, &labels, &wanted) {
        DriftStatus::Drifted(fields) => fields,
        DriftStatus::Current | DriftStatus::Unstamped(_) => Vec::new(),
    }
}

/// Nodes that are being removed already, whatever is edited.
pub(super) fn leaving(input: &Input) -> Vec<NodeImpact> {
    let index = NodeIndex::new(input);
    let goes = |claim: &&Sourced<NodeClaim>| claim.metadata.deletion_timestamp.is_some();
    let leaving = input.claims.iter().filter(goes).filter_map(|claim| {
        let node = index.node_of(claim)?;
        Some(impact(claim, node, "Terminating", "its NodeClaim is being deleted".to_owned()))
    });
    leaving.collect()
}

/// Surplus nodes of static pools and templates: of each those with the fewest pods, then the youngest.
fn surplus(
    now: &Input,
    then: &Input,
    registered: &[(&NodeClaim, &Node)],
    others: &[NodeImpact],
) -> Vec<NodeImpact> {
    let fixed = || then.pools.iter().flat_map(|pool| sizes(pool).map(move |size| (pool, size)));
    if fixed().next().is_none() {
        return Vec::new();
    }
    let find = |name: &str| now.claims.get("", name).map(|claim| &claim.object);
    let mut of_pools: BTreeMap<&str, Vec<(&NodeClaim, &Node)>> = BTreeMap::new();
    for &(claim, node) in registered {
        if counts(claim, find) {
            of_pools.entry(&claim.spec.pool).or_default().push((claim, node));
        }
    }
    let others: BTreeSet<&str> = others.iter().map(|other| other.claim.as_str()).collect();
    let pods = WorkloadPods::new(now);
    let mut impacts = Vec::new();
    for (pool, size) in fixed() {
        let name = pool.name_any();
        let before = now.pools.get("", &name).map(|pool| &pool.object);
        let had = before.and_then(|pool| size_of(pool, size.template)).map(|had| had.replicas);
        let mut there = of_pools.get(name.as_str()).cloned().unwrap_or_default();
        there.retain(|(claim, _)| size.has(claim.template()));
        let least = had.map_or(there.len(), |had| had.min(there.len()));
        let surplus = least.saturating_sub(size.replicas);
        there.retain(|(claim, _)| !others.contains(claim.name_any().as_str()));
        there.sort_by_cached_key(|(claim, node)| {
            let age = std::cmp::Reverse(claim.metadata.creation_timestamp.clone());
            (pods.on(&node.name_any()), age, claim.name_any())
        });
        let field = size.template.map_or_else(|| "spec".to_owned(), |name| format!("spec.templates[{name}]"));
        let detail = format!("{field}.replicas is {}", size.replicas);
        let surplus = there.into_iter().take(surplus);
        impacts.extend(surplus.map(|(claim, node)| impact(claim, node, "ScaledDown", detail.clone())));
    }
    impacts
}

/// How many pods keep each node from being empty.
struct WorkloadPods<'i>(BTreeMap<&'i str, usize>);

impl<'i> WorkloadPods<'i> {
    fn new(input: &'i Input) -> Self {
        let mut pods = BTreeMap::new();
        for pod in input.pods.iter().filter(|pod| keeps_node(&pod.object)) {
            if let Some(node) = pod.object.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
                *pods.entry(node).or_default() += 1;
            }
        }
        Self(pods)
    }

    fn on(&self, node: &str) -> usize {
        self.0.get(node).copied().unwrap_or_default()
    }
}

/// True for a pod that is neither finished nor a DaemonSet's.
fn keeps_node(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    !matches!(phase, Some("Succeeded" | "Failed")) && owners.iter().all(|owner| owner.kind != "DaemonSet")
}

/// Nodes whose pods all leave by the edit.
pub(super) fn emptied(now: &Input, then: &Input, after: &Input) -> Vec<NodeImpact> {
    let mut impacts = Vec::new();
    let (before, left) = (WorkloadPods::new(now), WorkloadPods::new(after));
    for (claim, node) in with_nodes(now) {
        let name = node.name_any();
        let there = after.nodes.get("", &name).is_some();
        let Some(pool) = managed(then, claim).filter(|_| there) else { continue };
        let follows_demand = size_of(pool, claim.template()).is_none();
        let goes = follows_demand && pool.spec.disruption.consolidate_after() != "Never";
        if goes && before.on(&name) > 0 && left.on(&name) == 0 {
            let detail = format!(
                "its pods leave; it is terminated {} later",
                pool.spec.disruption.consolidate_after()
            );
            impacts.push(impact(claim, node, "Empty", detail));
        }
    }
    impacts
}

/// Removes nodes and their claims from the input.
pub(super) fn remove(input: &mut Input, impacts: &[NodeImpact]) {
    let gone: BTreeMap<&str, &str> =
        impacts.iter().map(|impact| (impact.node.as_str(), impact.claim.as_str())).collect();
    let claims: BTreeSet<&str> = gone.values().copied().collect();
    input.nodes.retain(|node| !gone.contains_key(node.name_any().as_str()));
    input.claims.retain(|claim| !claims.contains(claim.name_any().as_str()));
}
