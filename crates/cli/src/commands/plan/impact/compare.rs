//! Compares two clusters: before and after the edit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_inspect::{
    admission::Admission,
    inventory::Cost,
    simulation::{in_force, simulate, time_of},
};
use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options, Plan, PodKey, Price};
use kube::ResourceExt as _;

use super::{
    changes, given,
    model::{Impact, Launched, Pending, PodImpact},
    nodes, pods,
    removal::{self, Removal},
};

/// A cluster after an edit, before the scheduler has planned for it.
pub(in crate::commands) struct Edit {
    /// The effects of the edit itself: all but launches, pending pods and cost.
    pub(in crate::commands) impact: Impact,
    /// The cluster with the objects of the edit, and pods and nodes as before.
    pub(in crate::commands) then: Input,
    /// The same without the nodes that the edit replaces or empties. Displaced pods are pending, as their controllers and admission
    /// recreate them.
    pub(in crate::commands) after: Input,
}

/// Puts the objects of `edit` over those of `now`, and removes `removals`.
///
/// # Errors
/// A Tenant whose selector can't be read, or an object that can't be removed.
pub(in crate::commands) fn edit(now: &Input, edit: &Input, removals: &[Removal]) -> Result<Edit, InputError> {
    let (mut then, mut objects) = changes::apply(now, edit);
    objects.extend(removal::apply(&mut then, edit, removals)?);
    then.end_pools_for_tenants(now);
    then.make_pools_for_tenants();
    let (admission_before, admission_after) = (Admission::new(now)?, Admission::new(&then)?);
    let mut impact = Impact { objects, ..Impact::default() };
    changes::warn_of_classes(&impact.objects, now, &then, &mut impact.warnings);
    impact.daemon_sets = pods::daemon_sets(now, &admission_before, &admission_after);
    impact.given = given::compare(
        &impact.objects,
        &given::Side::new(now, admission_before.tenants()),
        &given::Side::new(&then, admission_after.tenants()),
    );
    // A schedule may hold already that the edit gives a pool.
    let (now_in_force, then_in_force) = (in_force(now).0, in_force(&then).0);
    impact.nodes = nodes::replaced(&now_in_force, &then_in_force, time_of(now));
    let mut after = then.clone();
    nodes::remove(&mut after, &impact.nodes);
    impact.pods = pods::displace(now, &mut after, &admission_before, &admission_after);
    let emptied = nodes::emptied(now, &then_in_force, &after);
    drop(then_in_force);
    nodes::remove(&mut after, &emptied);
    impact.nodes.extend(emptied);
    Ok(Edit { impact, then, after })
}

/// `now` without the nodes that are being removed already, whatever is edited. Their pods are pending.
///
/// # Errors
/// A Tenant whose selector can't be read.
pub(in crate::commands) fn without_leaving(now: &Input) -> Result<Input, InputError> {
    let mut after = now.clone();
    let leaving = nodes::leaving(now);
    if !leaving.is_empty() {
        let admission = Admission::new(now)?;
        nodes::remove(&mut after, &leaving);
        pods::displace(now, &mut after, &admission, &admission);
    }
    Ok(after)
}

/// Compares the cluster `now` with the cluster after `objects` are applied. Also returns the latter.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub(in crate::commands::plan) fn impact(
    now: &Input,
    objects: &Input,
    types: &Arc<[InstanceType]>,
) -> Result<(Impact, Input), InputError> {
    let Edit { mut impact, then, after } = edit(now, objects, &[])?;
    changes::warn_of_disruption(&impact.objects, now, &then, &mut impact.warnings);
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
    let (cost_before, cost_after) = costs(now, &impact);
    (impact.cost_per_hour_before, impact.instances_of_unknown_price_before) =
        (cost_before.sum, cost_before.unknown);
    (impact.cost_per_hour_after, impact.instances_of_unknown_price_after) =
        (cost_after.sum, cost_after.unknown);
    Ok((impact, then))
}

/// Instances of `after` that `before` doesn't have.
fn launched(before: &Plan, after: &Plan) -> Vec<Launched> {
    let count_by_offering = |plan: &Plan| {
        let mut counts: BTreeMap<_, (Option<Price>, usize)> = BTreeMap::new();
        for instance in &plan.instances {
            let key = (
                instance.pool.clone(),
                instance.instance_type.clone(),
                instance.zone.clone(),
                instance.capacity_type.as_str(),
            );
            let (_, count) = counts.entry(key).or_insert((instance.price, 0));
            *count += 1;
        }
        counts
    };
    let had = count_by_offering(before);
    count_by_offering(after)
        .into_iter()
        .filter_map(|(key, (price, count))| {
            let count = count.saturating_sub(had.get(&key).map_or(0, |(_, count)| *count));
            let (pool, instance_type, zone, capacity_type) = key;
            (count > 0).then_some(Launched { pool, instance_type, zone, capacity_type, price, count })
        })
        .collect()
}

fn pending(before: &Plan, after: &Plan) -> Vec<Pending> {
    let old: BTreeSet<&PodKey> = before.unschedulable.iter().map(|old| &old.pod).collect();
    let is_new = |left: &&croft_scheduler::Unschedulable| !old.contains(&left.pod);
    let left = after.unschedulable.iter().filter(is_new);
    left.map(|left| Pending {
        pod: left.pod.to_string(),
        why: left.reasons.first().map(|reason| reason.detail.clone()).unwrap_or_default(),
    })
    .collect()
}

fn costs(now: &Input, impact: &Impact) -> (Cost, Cost) {
    let gone: BTreeSet<&str> = impact.nodes.iter().map(|node| node.claim.as_str()).collect();
    let (mut before, mut after) = (Cost::default(), Cost::default());
    for claim in &now.claims {
        let price = claim.status.as_ref().and_then(|s| s.price_per_hour.as_deref()?.parse::<Price>().ok());
        before.add(price);
        if !gone.contains(claim.name_any().as_str()) {
            after.add(price);
        }
    }
    for one in &impact.launched {
        (0..one.count).for_each(|_| after.add(one.price));
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use croft_manifest::{LoadOptions, parse};

    use super::*;

    fn read(text: &str) -> Input {
        parse("test", text, &LoadOptions::default()).unwrap()
    }

    const NIGHT: &str = r#"
apiVersion: debug.croft.dev/v1
kind: Snapshot
time: "2026-11-25T02:14:00Z"
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: p}
spec: {template: {spec: {nodeClassRef: {name: c}}}}
---
apiVersion: croft.dev/v1alpha1
kind: NodeClaim
metadata: {name: p-1}
spec: {pool: p, nodeClassRef: {name: c}, instanceTypes: [large], zones: [z1], capacityType: on-demand}
status: {providerId: "aws:///z1/i-1", nodeName: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-restriction.kubernetes.io/pool: p}}
spec: {providerID: "aws:///z1/i-1"}
"#;

    #[test]
    fn edit_that_adds_a_schedule_in_its_time_removes_the_nodes_at_once() {
        let removed = |hour: u32| {
            let pool = format!(
                "{{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {{name: p}}, spec: {{schedules: [{{schedule: \"0 {hour} * * *\", \
                 duration: 2h, replicas: 0}}], template: {{spec: {{nodeClassRef: {{name: c}}}}}}}}}}"
            );
            let Edit { impact, .. } = edit(&read(NIGHT), &read(&pool), &[]).unwrap();
            impact.nodes.iter().map(|node| (node.node.clone(), node.reason)).collect::<Vec<_>>()
        };
        assert_eq!(removed(2), [("n1".to_owned(), "ScaledDown")]);
        assert!(removed(4).is_empty(), "{:?}", removed(4));
    }

    #[test]
    fn nodes_of_a_tenant_that_leaves_a_pool_for_many_go_with_its_pool() {
        let cluster = "
{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: shop}, spec: {namespaces: [shop], pools: [dev]}}
---
{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {name: own}, spec: {provisioner: None}}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: dev}
spec: {perTenant: true, template: {spec: {nodeClassRef: {name: default}}}}
---
apiVersion: croft.dev/v1alpha1
kind: NodeClaim
metadata: {name: dev-shop-1}
spec:
  pool: dev-shop
  nodeClassRef: {group: croft.dev, kind: EC2NodeClass, name: default}
  instanceTypes: [m5.large]
  zones: [us-east-1a]
  capacityType: on-demand
status: {nodeName: node-1}
---
apiVersion: v1
kind: Node
metadata:
  name: node-1
  annotations: {croft.dev/claim: dev-shop-1}
  labels: {node-restriction.kubernetes.io/pool: shop, node.kubernetes.io/instance-type: m5.large}
";
        let tenant = |pools: &str| {
            let spec = format!("{{namespaces: [shop], pools: {pools}}}");
            read(&format!(
                "{{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {{name: shop}}, spec: {spec}}}"
            ))
        };
        let nodes = |pools: &str| {
            let impact = edit(&read(cluster), &tenant(pools), &[]).unwrap().impact;
            impact.nodes.iter().map(|one| (one.node.clone(), one.reason)).collect::<Vec<_>>()
        };
        assert_eq!(nodes("[own]"), [("node-1".to_owned(), "PoolRemoved")]);
        assert!(nodes("[own, dev]").is_empty(), "it still names the pool");
    }
}
