//! Pools of a fixed size and spare places, planned as the controller plans them.

use std::{collections::BTreeMap, sync::Arc};

use croft_api::{TenantPool, convert::static_capacity};
use croft_scheduler::{Cluster, ExistingPlacement, InstanceType, Machine, Plan, PodKey, resources, solve};
use kube::ResourceExt as _;

use super::cluster::belongs;
use crate::{input::Input, table::counted};

/// Machines that pools of a fixed size lack.
#[derive(Default)]
pub(super) struct Fixed {
    machines: Vec<Machine>,
}

/// Plans what pools of a fixed size lack. The machines are on their way by the time that pods are planned.
pub(super) fn launch(
    input: &Input,
    types: &Arc<[InstanceType]>,
    cluster: &mut Cluster,
    warnings: &mut Vec<String>,
) -> Fixed {
    let mut fixed = Fixed::default();
    let mut pools: Vec<&TenantPool> = input.pools.iter().map(|pool| &pool.object).collect();
    pools.sort_by_key(|pool| pool.name_any());
    for pool in pools {
        let there = nodes(input, pool);
        let missing = static_capacity::replicas(pool).map_or(0, |wanted| wanted.saturating_sub(there));
        if missing == 0 || pool.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let (plan, lack) =
            static_capacity::new_nodes(cluster, pool, Arc::clone(types), missing, |cluster, options| {
                solve(cluster, options, &|| false)
            });
        if let Some(lack) = lack {
            let lacking = missing.saturating_sub(plan.machines.len());
            warnings.push(format!(
                "TenantPool {} lacks {} of its replicas: {}",
                pool.name_any(),
                counted(lacking, "node"),
                lack.detail
            ));
        }
        for mut machine in plan.machines {
            // The place that was planned for nobody is free.
            let pods = machine.requests.get(resources::PODS);
            machine.requests.set(resources::PODS, pods.saturating_sub(1));
            cluster.upsert_coming(machine.coming(&machine.name));
            fixed.machines.push(machine);
        }
    }
    fixed
}

/// Nodes and claims of the pool that count as its replicas.
fn nodes(input: &Input, pool: &TenantPool) -> usize {
    let name = pool.name_any();
    let find = |name: &str| input.claims.iter().map(|claim| &claim.object).find(|c| c.name_any() == name);
    let of_pool = input.claims.iter().filter(|claim| claim.spec.pool == name);
    let claims = of_pool.filter(|claim| static_capacity::counts(claim, find)).count();
    let value = croft_api::convert::scheduler::value(pool);
    let alone = input.nodes.iter().filter(|node| {
        node.labels().get(&pool.spec.key) == Some(&value)
            && node.metadata.deletion_timestamp.is_none()
            && !input.claims.iter().any(|claim| belongs(node, claim))
    });
    claims.saturating_add(alone.count())
}

impl Fixed {
    /// Shows the machines as what they are: to be launched, with the pods that the plan puts there.
    pub(super) fn settle(self, plan: &mut Plan) {
        let Self { mut machines } = self;
        let mut placed: BTreeMap<String, ExistingPlacement> = BTreeMap::new();
        plan.existing.retain(|place| {
            let ours = place.coming && machines.iter().any(|machine| machine.name == place.node);
            if ours {
                placed.insert(place.node.clone(), place.clone());
            }
            !ours
        });
        for machine in &mut machines {
            if let Some(place) = placed.remove(&machine.name) {
                machine.pods = place.pods;
                machine.requests.add(&place.requests);
            }
            // Each is the cheapest that its pool may launch, whatever the demand: no plan is without it.
            plan.cost = plan.cost.saturating_add(machine.price);
            plan.bound = plan.bound.saturating_add(machine.price);
        }
        machines.append(&mut plan.machines);
        plan.machines = machines;
    }
}

/// Takes the spare places out of the plan: answers how many each node has, and notes those that found no room.
pub(super) fn take_spare(plan: &mut Plan, warnings: &mut Vec<String>) -> BTreeMap<String, usize> {
    let mut spare: BTreeMap<String, usize> = BTreeMap::new();
    let mut take = |node: &str, pods: &mut Vec<PodKey>| {
        let before = pods.len();
        pods.retain(|pod| static_capacity::headroom_of(pod).is_none());
        if pods.len() < before {
            *spare.entry(node.to_owned()).or_default() += before - pods.len();
        }
    };
    for machine in &mut plan.machines {
        take(&machine.name, &mut machine.pods);
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
        format!("TenantPool {pool} lacks {} of its headroom: {why}", counted(count, "spare place"))
    }));
    spare
}
