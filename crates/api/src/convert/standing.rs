//! What pools keep without any pod that asks for it, as demand for the scheduler: machines of a pool of a fixed size, and
//! spare places. The controller and `croft simulate` plan both by these.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{Cluster, InstanceType, Options, Plan, PodKey, ReasonKind};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use kube::ResourceExt;
use serde_json::json;

use super::scheduler as convert;
use crate::{
    NodeClaim, TenantPool,
    claim::REPLACES,
    pool::{DEFAULT_KEY, Provisioner},
};

/// Only a machine that is yet to be launched has this label, and only while it is planned.
const SLOT: &str = "croft.dev/slot";
/// No namespace can be called so.
const REPLICAS: &str = "croft.dev/replicas";
/// Nor so.
const HEADROOM: &str = "croft.dev/headroom";

/// How many nodes a pool is to have, if that is fixed.
#[must_use]
pub fn replicas(pool: &TenantPool) -> Option<usize> {
    let replicas = pool.spec.replicas.filter(|_| pool.spec.provisioner == Provisioner::Croft)?;
    usize::try_from(replicas).ok()
}

/// True if a claim is one of those that make up its pool's fixed size: not going, and not in place of one that still
/// counts. `find` looks up a claim by name.
pub fn counts<'a>(claim: &NodeClaim, find: impl Fn(&str) -> Option<&'a NodeClaim>) -> bool {
    let stays = |claim: &NodeClaim| claim.metadata.deletion_timestamp.is_none();
    let replaced = claim.annotations().get(REPLACES).into_iter().flat_map(|names| names.split(','));
    stays(claim) && !replaced.filter_map(find).any(stays)
}

/// Why a pool of a fixed size gets fewer nodes than it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// What keeps the pool from launching; none if the pool itself can't be planned with.
    pub reason: Option<ReasonKind>,
    /// In words.
    pub detail: String,
}

impl Lack {
    fn unreadable(error: &croft_scheduler::InputError) -> Self {
        Self { reason: None, detail: error.to_string() }
    }
}

/// `count` machines of the pool beside what `cluster` has, each the cheapest that it may launch, as far as limits and
/// capacity allow; and why they aren't more. Pods that wait have no part in it. `solve` makes the plan.
#[must_use]
pub fn machines(
    cluster: &Cluster,
    pool: &TenantPool,
    types: Arc<[InstanceType]>,
    count: usize,
    solve: impl FnOnce(&Cluster, &Options) -> Plan,
) -> (Plan, Option<Lack>) {
    let name = pool.name_any();
    let mut cluster = cluster.at_rest();
    let mut open = match convert::pool(pool, types) {
        Ok(open) => open,
        Err(error) => return (Plan::default(), Some(Lack::unreadable(&error))),
    };
    open.launches = true;
    open.replicas = None;
    open.labels.insert(SLOT.to_owned(), "new".to_owned());
    let slots = (0..count).filter_map(|n| slot(pool, n));
    let fed = cluster
        .upsert_pool(open)
        .and_then(|()| slots.into_iter().try_for_each(|pod| cluster.upsert_pod(&pod)));
    if let Err(error) = fed {
        return (Plan::default(), Some(Lack::unreadable(&error)));
    }
    let mut plan = solve(&cluster, &Options { effort: 0, ..Options::default() });
    let lack = plan.unschedulable.first().map(|left| {
        let own = left.reasons.iter().find(|reason| reason.pool == name);
        Lack {
            reason: own.map(|reason| reason.reason),
            detail: own
                .map_or_else(|| "no node of it can be planned".to_owned(), |reason| reason.detail.clone()),
        }
    });
    for machine in &mut plan.machines {
        machine.labels.remove(SLOT);
        machine.requirements.retain(|r| r.key != SLOT);
        machine.pods.clear();
    }
    plan.existing.clear();
    plan.unschedulable.clear();
    (plan, lack)
}

/// A pod that wants a new machine of the pool for itself.
fn slot(pool: &TenantPool, number: usize) -> Option<Pod> {
    let name = pool.name_any();
    serde_json::from_value(json!({
        "metadata": {"namespace": REPLICAS, "name": format!("{name}/{number}"), "labels": {SLOT: name}},
        "spec": {
            "nodeSelector": {DEFAULT_KEY: convert::pool_name_label(pool), SLOT: "new"},
            "tolerations": tolerations(pool),
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {SLOT: name}}},
            ]}},
            "containers": [{"name": "slot"}],
        },
    }))
    .ok()
}

fn tolerations(pool: &TenantPool) -> Vec<Toleration> {
    let own = |taint: k8s_openapi::api::core::v1::Taint| Toleration {
        key: Some(taint.key),
        operator: Some("Equal".to_owned()),
        value: Some(taint.value.unwrap_or_default()),
        effect: Some(taint.effect),
        ..Toleration::default()
    };
    convert::taints(pool).into_iter().map(own).collect()
}

/// The pods that stand for a pool's spare places: of the lowest priority, each asking for what one place is to have.
pub fn spare_places(pool: &TenantPool) -> impl Iterator<Item = Pod> {
    let wanted =
        pool.spec.headroom.as_ref().map_or(0, |headroom| usize::try_from(headroom.pods).unwrap_or(0));
    (0..wanted).filter_map(|number| spare_place(pool, number))
}

/// Names a pool's spare place.
#[must_use]
pub fn spare_key(pool: &str, number: usize) -> PodKey {
    PodKey::new(HEADROOM, &format!("{pool}/{number}"))
}

/// The pool whose spare place a pod stands for, if it does.
#[must_use]
pub fn spare_of(pod: &PodKey) -> Option<&str> {
    let pool = pod.name.rsplit_once('/').map(|(pool, _)| pool);
    pool.filter(|_| &*pod.namespace == HEADROOM)
}

fn spare_place(pool: &TenantPool, number: usize) -> Option<Pod> {
    let name = pool.name_any();
    let key = spare_key(&name, number);
    let headroom = pool.spec.headroom.as_ref()?;
    let requests: BTreeMap<&String, &String> = headroom.requests.iter().map(|(k, v)| (k, &v.0)).collect();
    serde_json::from_value(json!({
        "metadata": {"namespace": &*key.namespace, "name": &*key.name},
        "spec": {
            "priority": i32::MIN,
            "nodeSelector": {DEFAULT_KEY: convert::pool_name_label(pool), pool.spec.key.clone(): convert::value(pool)},
            "tolerations": tolerations(pool),
            "containers": [{"name": "headroom", "resources": {"requests": requests}}],
        },
    }))
    .ok()
}
