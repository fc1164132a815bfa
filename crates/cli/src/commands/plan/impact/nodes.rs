//! Nodes that become drifted, expired, surplus or empty by the edit.

use std::collections::BTreeMap;

use croft_api::{
    EC2NodeClass, NodeClaim, TenantPool,
    convert::static_capacity,
    drift::{self, DriftStatus},
    expiry,
    pool::Provisioner,
};
use croft_inspect::simulation::belongs;
use croft_manifest::{Input, Sourced};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::model::NodeImpact;

/// Nodes that the edit replaces or terminates, whatever their pods.
pub(super) fn replaced(now: &Input, then: &Input, wall: Timestamp) -> Vec<NodeImpact> {
    let mut impacts = Vec::new();
    for (claim, node) in with_nodes(now) {
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
        let expired = |pool: &TenantPool| expiry::at(claim, pool).is_some_and(|at| at <= wall);
        if expired(pool) && !pool_before.is_some_and(expired) {
            let after = pool.spec.template.as_ref().and_then(|t| t.spec.expire_after.clone());
            let detail = format!("it is older than {}", after.unwrap_or_default());
            impacts.push(impact(claim, node, "Expired", detail));
        } else if !fields.is_empty() {
            impacts.push(impact(claim, node, "Drifted", fields.join(", ")));
        }
    }
    for pool in &then.pools {
        impacts.extend(surplus(now, then, &pool.object, &impacts));
    }
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

fn with_nodes(input: &Input) -> impl Iterator<Item = (&NodeClaim, &Node)> {
    let stays = |claim: &&Sourced<NodeClaim>| claim.metadata.deletion_timestamp.is_none();
    input.claims.iter().filter(stays).filter_map(|claim| {
        let node = input.nodes.iter().find(|node| belongs(node, claim))?;
        Some((&claim.object, &node.object))
    })
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
    let Some(class) = class_of(input, pool) else { return Vec::new() };
    let wanted = drift::Wanted::new(&pool.clone().into(), &class.clone().into());
    let labels = node.metadata.labels.clone().unwrap_or_default();
    match drift::compare(claim, &labels, &wanted) {
        DriftStatus::Drifted(fields) => fields,
        DriftStatus::Current | DriftStatus::Unstamped(_) => Vec::new(),
    }
}

/// Nodes that are being removed already, whatever is edited.
pub(super) fn leaving(input: &Input) -> Vec<NodeImpact> {
    let goes = |claim: &&Sourced<NodeClaim>| claim.metadata.deletion_timestamp.is_some();
    let leaving = input.claims.iter().filter(goes).filter_map(|claim| {
        let node = input.nodes.iter().find(|node| belongs(node, claim))?;
        Some(impact(claim, node, "Terminating", "its NodeClaim is being deleted".to_owned()))
    });
    leaving.collect()
}

/// Surplus nodes of a static pool: those with the fewest pods, then the youngest.
fn surplus(now: &Input, then: &Input, pool: &TenantPool, others: &[NodeImpact]) -> Vec<NodeImpact> {
    let Some(wanted) = static_capacity::replicas(pool) else { return Vec::new() };
    let name = pool.name_any();
    let find = |name: &str| now.claims.get("", name).map(|claim| &claim.object);
    let of_pool = || {
        with_nodes(now).filter(|(claim, _)| claim.spec.pool == name && static_capacity::counts(claim, find))
    };
    let had = then.pools.get("", &name).and(now.pools.get("", &name));
    let had = had.and_then(|pool| static_capacity::replicas(&pool.object));
    let mut there: Vec<(&NodeClaim, &Node)> = of_pool().collect();
    let least = had.map_or(there.len(), |had| had.min(there.len()));
    let surplus = least.saturating_sub(wanted);
    there.retain(|(claim, _)| others.iter().all(|other| other.claim != claim.name_any()));
    let pods = |node: &Node| workload_pods(now, &node.name_any()).count();
    there.sort_by_key(|(claim, node)| {
        (pods(node), std::cmp::Reverse(claim.metadata.creation_timestamp.clone()), claim.name_any())
    });
    let detail = format!("spec.replicas is {wanted}");
    there
        .into_iter()
        .take(surplus)
        .map(|(claim, node)| impact(claim, node, "ScaledDown", detail.clone()))
        .collect()
}

/// Pods that keep a node from being empty.
fn workload_pods<'i>(input: &'i Input, node: &'i str) -> impl Iterator<Item = &'i Pod> {
    let here = |pod: &&Pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(node);
    let works = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        !matches!(phase, Some("Succeeded" | "Failed")) && owners.iter().all(|owner| owner.kind != "DaemonSet")
    };
    input.pods.iter().map(|pod| &pod.object).filter(move |pod| here(pod)).filter(works)
}

/// Nodes whose pods all leave by the edit.
pub(super) fn emptied(now: &Input, then: &Input, after: &Input) -> Vec<NodeImpact> {
    let mut impacts = Vec::new();
    for (claim, node) in with_nodes(now) {
        let name = node.name_any();
        let there = after.nodes.get("", &name).is_some();
        let Some(pool) = managed(then, claim).filter(|_| there) else { continue };
        let goes = pool.spec.replicas.is_none() && pool.spec.disruption.consolidate_after != "Never";
        if goes && workload_pods(now, &name).next().is_some() && workload_pods(after, &name).next().is_none()
        {
            let detail =
                format!("its pods leave; it is terminated {} later", pool.spec.disruption.consolidate_after);
            impacts.push(impact(claim, node, "Empty", detail));
        }
    }
    impacts
}

/// Removes nodes and their claims from the input.
pub(super) fn remove(input: &mut Input, impacts: &[NodeImpact]) {
    let gone: BTreeMap<&str, &str> =
        impacts.iter().map(|impact| (impact.node.as_str(), impact.claim.as_str())).collect();
    input.nodes.retain(|node| !gone.contains_key(node.name_any().as_str()));
    input.claims.retain(|claim| gone.values().all(|name| *name != claim.name_any()));
}
