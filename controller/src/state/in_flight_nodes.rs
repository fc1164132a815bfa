//! In-flight nodes as the scheduler sees them: claims without a Node, and Nodes as they will be once initialized.

use std::collections::BTreeMap;

use croft_api::{NodeClaim, TenantPool, claim::NodeClaimStatus, condition::INITIALIZED};
use croft_scheduler::{
    CapacityType, ComingNode, EPHEMERAL_TAINTS, InputError, InstanceType, PodKey, Pool, Quantity, Resources,
};
use k8s_openapi::api::core::v1::{Node, Taint};

use super::{snapshot::Snapshot, views::has_condition};
use crate::definitions::keys;

impl Snapshot {
    pub(super) fn update_cluster_pool(&mut self, name: &str) {
        self.pool_versions.bump(name);
        let Some(pool) = self.pools.get(name) else { return };
        let types = self.launchable_types(name, pool);
        let held = self.launch_hold(name).and_then(|held| held.why.clone());
        let key = format!("TenantPool {name}");
        let read = match self.collisions.get(name) {
            None => croft_api::convert::scheduler::pool(pool, types).map(|pool| Pool { held, ..pool }),
            Some(older) => Err(InputError {
                kind: "TenantPool",
                name: name.to_owned(),
                field: "spec.value".to_owned(),
                problem: format!("its nodes would carry a label of the older TenantPool {older}"),
            }),
        };
        match read.and_then(|pool| self.cluster.upsert_pool(pool)) {
            Ok(()) => {
                self.problems.remove(&key);
            }
            Err(problem) => {
                // A pool that can be read only in part launches nothing.
                self.cluster.remove_pool(name);
                self.problems.insert(key, problem);
            }
        }
        self.plan_version += 1;
    }

    pub(super) fn update_cluster_pools_of_class(&mut self, class: &str) {
        let pools: Vec<_> = self
            .pools
            .iter()
            .filter(|(_, p)| self.class_of(p) == Some(class))
            .map(|(n, _)| n.clone())
            .collect();
        for pool in pools {
            self.update_cluster_pool(&pool);
        }
        let claims: Vec<_> = self
            .claims
            .iter()
            .filter(|(_, c)| c.spec.node_class_ref.name == class && self.node_of(c).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for claim in claims {
            self.update_cluster_claim(&claim);
        }
    }

    /// The class that a pool's template names, if its kind is EC2NodeClass.
    pub(crate) fn class_of<'a>(&self, pool: &'a TenantPool) -> Option<&'a str> {
        let class = &pool.spec.template.as_ref()?.spec.node_class_ref;
        (class.kind == "EC2NodeClass" && class.group == croft_api::GROUP).then_some(class.name.as_str())
    }

    pub(super) fn update_cluster_claim(&mut self, name: &str) {
        let Some(claim) = self.claims.get(name).cloned() else { return };
        if let Some((node, _)) = self.node_of(&claim) {
            let node = node.to_owned();
            self.cluster.remove_coming(name);
            self.update_cluster_node(&node);
        } else {
            let planned = claim.spec.instance_types.first();
            let known = planned.and_then(|t| self.instance_type(&claim, t));
            let coming = in_flight_node(&claim, known);
            self.cluster.upsert_coming(coming);
        }
        let nominated: Vec<_> = self.nominated_to(name).map(|(key, _)| key.clone()).collect();
        for pod in nominated {
            self.update_cluster_nomination(&pod, name);
        }
    }

    pub(super) fn update_cluster_node(&mut self, name: &str) {
        let Some(raw) = self.raw_nodes.get(name) else { return };
        let claim = self.registered_claim_of(name).cloned();
        let initialized = claim.as_ref().is_some_and(|c| has_condition(c, INITIALIZED));
        // A watch may show the claim's conditions before the labels of its node, and labels are removed by hand.
        let unlabelled = claim.as_ref().is_some_and(|claim| lacks_labels(raw, claim));
        let read = match &claim {
            Some(claim) if !initialized => self.cluster.upsert_node(&future_node(raw, claim)),
            Some(claim) if unlabelled => self.cluster.upsert_node(&labelled(raw, claim)),
            _ => self.cluster.upsert_node(raw),
        };
        let waits = raw
            .spec
            .iter()
            .flat_map(|s| s.taints.iter().flatten())
            .any(|t| t.key == keys::UNREGISTERED_TAINT);
        if (initialized && !unlabelled) || (claim.is_none() && !waits) {
            self.raw_nodes.remove(name);
        }
        self.record_problem("Node", name, read);
        if let Some(claim) = claim.as_ref().and_then(|c| c.metadata.name.clone()) {
            self.cluster.remove_coming(&claim);
            let nominated: Vec<_> = self.nominated_to(&claim).map(|(key, _)| key.clone()).collect();
            for pod in nominated {
                self.update_cluster_nomination(&pod, &claim);
            }
        }
    }

    pub(super) fn update_cluster_nomination(&mut self, pod: &PodKey, claim: &str) {
        let node = self.claims.get(claim).and_then(|c| self.node_of(c)).map(|(name, _)| name.to_owned());
        match node {
            Some(node) => self.cluster.nominate(pod, &node, false),
            None => self.cluster.nominate(pod, claim, true),
        }
    }

    /// An instance type by name, with the offerings of the claim's class.
    #[must_use]
    pub(crate) fn instance_type(&self, claim: &NodeClaim, name: &str) -> Option<&InstanceType> {
        let types = self.classes.get(&claim.spec.node_class_ref.name)?.types.as_ref()?;
        types.iter().find(|t| t.name == name)
    }
}

/// True if the node lacks a label of its claim, by which limits count it.
fn lacks_labels(raw: &Node, claim: &NodeClaim) -> bool {
    let held = raw.metadata.labels.as_ref();
    claim.spec.labels.iter().any(|(key, value)| held.and_then(|held| held.get(key)) != Some(value))
}

/// The node with the labels of its claim, which are about to be restored.
fn labelled(raw: &Node, claim: &NodeClaim) -> Node {
    let mut node = raw.clone();
    node.metadata.labels.get_or_insert_default().extend(claim.spec.labels.clone());
    node
}

/// The node of `claim` as it will be once it is initialized.
#[must_use]
pub fn future_node(raw: &Node, claim: &NodeClaim) -> Node {
    let mut node = raw.clone();
    let labels = node.metadata.labels.get_or_insert_default();
    let status = claim.status.clone().unwrap_or_default();
    labels.extend(status.labels);
    labels.extend(status.capacity_type.map(|paid| (keys::CROFT_CAPACITY_TYPE_LABEL.to_owned(), paid)));
    labels.extend(claim.spec.labels.clone());
    if let Some(taints) = node.spec.get_or_insert_default().taints.as_mut() {
        taints.retain(|t| {
            !EPHEMERAL_TAINTS.contains(&t.key.as_str())
                && !claim.spec.startup_taints.iter().any(|s| s.key == t.key && s.effect == t.effect)
        });
    }
    let node_status = node.status.get_or_insert_default();
    for (held, known) in
        [(&mut node_status.capacity, status.capacity), (&mut node_status.allocatable, status.allocatable)]
    {
        // Devices are reported late. A resource that the kubelet already reports is up to date.
        let held = held.get_or_insert_default();
        for (name, amount) in known {
            let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(amount.0);
            held.entry(name).or_insert(quantity);
        }
    }
    node
}

pub(super) fn in_flight_node(claim: &NodeClaim, planned: Option<&InstanceType>) -> ComingNode {
    let default = NodeClaimStatus::default();
    let status = claim.status.as_ref().unwrap_or(&default);
    let launched = status.instance_type.is_some();
    let spec = &claim.spec;
    let zone = status.zone.clone().or_else(|| spec.zones.first().cloned()).unwrap_or_default();
    let instance_type =
        status.instance_type.clone().or_else(|| spec.instance_types.first().cloned()).unwrap_or_default();
    let mut labels: BTreeMap<String, String> =
        if launched { status.labels.clone() } else { planned.map(|t| t.labels.clone()).unwrap_or_default() };
    if let Some(planned) = planned.filter(|_| !launched) {
        labels.entry("kubernetes.io/arch".to_owned()).or_insert_with(|| planned.arch.clone());
        if let Some(os) = planned.os.first() {
            labels.entry("kubernetes.io/os".to_owned()).or_insert_with(|| os.clone());
        }
    }
    labels.insert(keys::ZONE_LABEL.to_owned(), zone.clone());
    labels.insert(keys::INSTANCE_TYPE_LABEL.to_owned(), instance_type.clone());
    labels.insert(keys::CAPACITY_TYPE_LABEL.to_owned(), spec.capacity_type.clone());
    labels.extend(spec.labels.clone());
    let mut taints = spec.taints.clone();
    if claim.metadata.deletion_timestamp.is_some() {
        // Its capacity counts until the instance is terminated, and no pod is planned onto it.
        taints.push(Taint {
            key: keys::DISRUPTED_TAINT.to_owned(),
            effect: keys::DISRUPTED_EFFECT.to_owned(),
            value: None,
            time_added: None,
        });
    }
    let (capacity, allocatable) = if launched {
        (amounts(&status.capacity), amounts(&status.allocatable))
    } else {
        planned.map(|t| (t.capacity.clone(), t.allocatable())).unwrap_or_default()
    };
    ComingNode {
        claim: claim.metadata.name.clone().unwrap_or_default(),
        pool: spec.pool.clone(),
        instance_type,
        zone,
        capacity_type: CapacityType::parse(&spec.capacity_type).unwrap_or_default(),
        labels,
        taints,
        allocatable,
        capacity,
    }
}

fn amounts(map: &BTreeMap<String, croft_api::amount::Amount>) -> Resources {
    let mut resources = Resources::new();
    for (name, amount) in map {
        if let Ok(quantity) = amount.0.parse::<Quantity>() {
            resources.set_quantity(name, quantity);
        }
    }
    resources
}
