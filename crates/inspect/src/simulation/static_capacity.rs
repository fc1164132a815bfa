//! Static pools (`replicas`) and headroom, planned as the controller plans them.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{
    TenantPool,
    convert::{
        scheduler,
        static_capacity::{self, FixedSize, sizes},
    },
    sentence::counted,
};
use croft_manifest::Input;
use croft_policy::definitions::TEMPLATE_LABEL;
use croft_scheduler::{
    Cluster, ExistingPlacement, Options, Plan, PlannedInstance, PodKey, Price, resources, solve,
};
use kube::ResourceExt as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{class_types::ClassTypes, node_index::NodeIndex, simulation::leaving_nodes::leaving_nodes};

/// Instances that static pools and templates lack.
#[derive(Default)]
pub(super) struct MissingReplicas {
    instances: Vec<PlannedInstance>,
}

/// Plans the instances that static pools and templates lack, and adds them to `cluster` as coming nodes, so that pods are planned onto
/// them.
pub(super) fn launch(
    input: &Input,
    types: &ClassTypes,
    cluster: &mut Cluster,
    warnings: &mut Vec<String>,
) -> MissingReplicas {
    let mut replicas = MissingReplicas::default();
    let of_pools = input.pools.iter().map(|pool| &pool.object);
    let mut fixed: Vec<(&TenantPool, FixedSize<'_>)> =
        of_pools.flat_map(|pool| sizes(pool).map(move |size| (pool, size))).collect();
    if fixed.is_empty() {
        return replicas;
    }
    fixed.sort_by_key(|(pool, _)| pool.name_any());
    let counts = ReplicaCounts::new(input);
    let leaving = leaving_nodes(input);
    for (pool, size) in fixed {
        let missing = size.replicas.saturating_sub(counts.of(pool, &size));
        if missing == 0 || pool.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let (plan, reason) = static_capacity::new_nodes(
            cluster,
            pool,
            &size,
            scheduler::pool(pool, |template| Arc::clone(types.of_pool(template))),
            missing,
            |cluster, options| {
                solve(cluster, &Options { leaving: leaving.clone(), ..options.clone() }, &|| false)
            },
        );
        if let Some(reason) = reason {
            let lacking = missing.saturating_sub(plan.instances.len());
            let of_template = size.template.map_or_else(String::new, |name| format!("template {name} of "));
            warnings.push(format!(
                "{of_template}TenantPool {} lacks {} of its replicas: {}",
                pool.name_any(),
                counted(lacking, "node"),
                reason.detail
            ));
        }
        for mut instance in plan.instances {
            // The virtual pod that the instance was planned for is no pod of the input.
            let pods = instance.requests.get(resources::PODS);
            instance.requests.set(resources::PODS, pods.saturating_sub(1));
            cluster.upsert_coming(instance.coming(&instance.name));
            replicas.instances.push(instance);
        }
    }
    replicas
}

/// Nodes and claims that count as replicas.
struct ReplicaCounts<'i> {
    /// The template of each claim, by the name of their pool.
    claims: FxHashMap<&'i str, Vec<Option<&'i str>>>,
    /// The template of each node without a claim, by the key, then by the value of each pool's label that they carry: two pools
    /// with one label have the same nodes.
    nodes: FxHashMap<&'i str, FxHashMap<&'i str, Vec<Option<&'i str>>>>,
}

impl<'i> ReplicaCounts<'i> {
    fn new(input: &'i Input) -> Self {
        let mut counts = Self {
            claims: FxHashMap::default(),
            nodes: input.pools.iter().map(|pool| (pool.spec.key.as_str(), FxHashMap::default())).collect(),
        };
        let find = |name: &str| input.claims.get("", name).map(|claim| &claim.object);
        for claim in input.claims.iter().filter(|claim| static_capacity::counts(claim, find)) {
            counts.claims.entry(&claim.spec.pool).or_default().push(claim.template());
        }
        let index = NodeIndex::new(input);
        for node in &input.nodes {
            if node.metadata.deletion_timestamp.is_some() || index.claim_of(node).is_some() {
                continue;
            }
            let template = node.labels().get(TEMPLATE_LABEL).map(String::as_str);
            for (key, value) in node.labels() {
                if let Some(of_key) = counts.nodes.get_mut(key.as_str()) {
                    of_key.entry(value).or_default().push(template);
                }
            }
        }
        counts
    }

    fn of(&self, pool: &TenantPool, size: &FixedSize<'_>) -> usize {
        let claims = self.claims.get(pool.name_any().as_str());
        let value = scheduler::value(pool);
        let nodes = self.nodes.get(pool.spec.key.as_str()).and_then(|of_key| of_key.get(value.as_str()));
        let templates = claims.into_iter().chain(nodes).flatten();
        templates.filter(|template| size.has(**template)).count()
    }
}

impl MissingReplicas {
    /// Moves the instances from the plan's existing nodes to its new instances, with the pods planned onto them.
    pub(super) fn add_to(self, plan: &mut Plan) {
        let Self { mut instances } = self;
        let mut placed: BTreeMap<String, ExistingPlacement> = BTreeMap::new();
        let names: FxHashSet<&str> = instances.iter().map(|instance| instance.name.as_str()).collect();
        plan.existing.retain(|place| {
            let ours = place.coming && names.contains(place.node.as_str());
            if ours {
                placed.insert(place.node.clone(), place.clone());
            }
            !ours
        });
        for instance in &mut instances {
            if let Some(place) = placed.remove(&instance.name) {
                instance.pods = place.pods;
                instance.requests.add(&place.requests);
            }
            // Each is the cheapest that its pool may launch and needed whatever the demand, so it counts in the bound, too.
            let price = instance.price.unwrap_or_default();
            plan.cost = plan.cost.saturating_add(price);
            plan.bound = plan.bound.saturating_add(price);
            if instance.price.is_some() {
                *plan.bound_by_pool.entry(instance.pool.clone()).or_default() += price;
            }
        }
        instances.append(&mut plan.instances);
        plan.instances = instances;
        if plan.unpriced() > 0 {
            plan.bound = Price::ZERO;
        }
    }
}

/// Counts headroom pods as on the nodes that the plan has them on: the controller keeps them there, and a pool whose headroom has
/// room has no pending pods.
pub(super) fn nominate_headroom(plan: &Plan, cluster: &mut Cluster) {
    for place in &plan.existing {
        for pod in place.pods.iter().filter(|pod| static_capacity::headroom_of(pod).is_some()) {
            cluster.nominate(pod, &place.node, place.coming);
        }
    }
}

/// Removes the virtual headroom pods from the plan. Returns their number by node, and warns about unschedulable ones.
pub(super) fn remove_headroom_pods(plan: &mut Plan, warnings: &mut Vec<String>) -> BTreeMap<String, usize> {
    let mut headroom: BTreeMap<String, usize> = BTreeMap::new();
    let mut take = |node: &str, pods: &mut Vec<PodKey>| {
        let before = pods.len();
        pods.retain(|pod| static_capacity::headroom_of(pod).is_none());
        if pods.len() < before {
            *headroom.entry(node.to_owned()).or_default() += before - pods.len();
        }
    };
    for instance in &mut plan.instances {
        take(&instance.name, &mut instance.pods);
    }
    for place in &mut plan.existing {
        take(&place.node, &mut place.pods);
    }
    let mut missing: BTreeMap<String, (usize, String)> = BTreeMap::new();
    plan.unschedulable.retain(|left| {
        let Some(pool) = static_capacity::headroom_of(&left.pod) else { return true };
        let own = left.reasons.iter().find(|reason| reason.pool == pool);
        let why = own.map_or_else(String::new, |reason| reason.detail.clone());
        missing.entry(pool.to_owned()).or_insert((0, why)).0 += 1;
        false
    });
    warnings.extend(missing.into_iter().map(|(pool, (count, why))| {
        format!("TenantPool {pool} lacks {} of its headroom: {why}", counted(count, "pod"))
    }));
    headroom
}
