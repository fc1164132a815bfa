//! The parts of Croft in a cluster.

use std::collections::BTreeMap;

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool};
use croft_cloud::{CloudInstance, instance_id};
use croft_inspect::inventory::is_open;
use croft_policy::definitions::{CLAIM_ANNOTATION, POOL_NAME_LABEL};
use croft_scheduler::Price;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{Client, ResourceExt};

use super::{
    metadata,
    parts::{self, Part},
    tenant_objects,
};
use crate::{
    aws::{AwsArgs, Instances},
    cluster_reader::list_all,
    costs::estimate_mark,
    own_objects::{claims, crds, names},
};

/// An instance that is paid for.
#[derive(Clone, Debug)]
pub(super) struct Paid {
    pub(super) id: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) node: String,
    pub(super) pool: String,
    pub(super) price: Option<Price>,
    pub(super) estimated: bool,
}

impl Paid {
    /// Type, zone, node, pool and price in a line.
    pub(super) fn line(&self) -> String {
        let Self { id, instance_type, zone, node, pool, price, estimated } = self;
        let cost = match price {
            Some(price) => format!("{}${price}/h", estimate_mark(*estimated)),
            None => "price unknown".to_owned(),
        };
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let (instance_type, zone, node, pool) =
            (or_none(instance_type), or_none(zone), or_none(node), or_none(pool));
        format!("{id}  {instance_type}  {zone}  node {node}  pool {pool}  {cost}")
    }
}

/// The parts of Croft in a cluster. Lists of kinds whose CRD is missing are empty.
pub(super) struct Found {
    /// Croft's namespace.
    pub(super) namespace: String,
    pub(super) tenants: Vec<String>,
    pub(super) pools: Vec<String>,
    pub(super) claims: Vec<NodeClaim>,
    pub(super) classes: Vec<String>,
    pub(super) configs: Vec<String>,
    /// Nodes of pools.
    pub(super) nodes: Vec<Node>,
    /// Ready nodes of no pool.
    pub(super) other_nodes: usize,
    /// Pods that a drain of the nodes that Croft launched evicts.
    pub(super) pods: usize,
    /// The cluster's instances, by AWS.
    pub(super) instances: Instances,
    /// Namespaces with a label or an annotation of Croft, its own left out.
    pub(super) namespaces: Vec<String>,
    /// Objects that the controller kept in tenants' namespaces.
    pub(super) tenant_objects: Vec<String>,
    /// Croft's own Namespace carries parameters.
    pub(super) has_parameters: bool,
    /// Policies, webhook configurations, processes and rights.
    pub(super) parts: Vec<Part>,
    pub(super) crds: Vec<String>,
    /// The controller that leads.
    pub(super) leader: Option<String>,
    /// UID of the Namespace kube-system.
    pub(super) cluster_uid: String,
}

impl Found {
    /// Reads the cluster, and AWS if it is to be asked.
    ///
    /// # Errors
    /// If something can't be read.
    pub(super) async fn read(client: &Client, namespace: &str, aws: &AwsArgs) -> anyhow::Result<Self> {
        let all_nodes = list_all::<Node>(client).await?;
        let other_nodes = all_nodes.iter().filter(|node| !is_of_pool(node) && is_open(node)).count();
        let nodes: Vec<Node> = all_nodes.into_iter().filter(is_of_pool).collect();
        let pods = list_all::<Pod>(client).await?;
        let launched: Vec<&Node> = nodes.iter().filter(|node| is_launched(node)).collect();
        let pods = pods.iter().filter(|pod| is_evicted(pod, &launched)).count();
        let namespaces = list_all::<Namespace>(client).await?;
        let own = namespaces.iter().find(|found| found.name_any() == namespace);
        Ok(Self {
            namespace: namespace.to_owned(),
            tenants: names::<Tenant>(client).await?,
            pools: names::<TenantPool>(client).await?,
            claims: claims(client).await?,
            classes: names::<EC2NodeClass>(client).await?,
            configs: names::<CroftConfig>(client).await?,
            nodes,
            other_nodes,
            pods,
            instances: aws.instances(client, namespace).await?,
            has_parameters: own.is_some_and(metadata::is_marked),
            namespaces: namespaces
                .iter()
                .filter(|found| found.name_any() != namespace && metadata::is_marked(found))
                .map(|found| found.name_any())
                .collect(),
            tenant_objects: tenant_objects::read(client).await?,
            parts: parts::read(client, namespace).await?,
            crds: crds(client).await?.iter().map(ResourceExt::name_any).collect(),
            leader: crate::commands::check::leader_of(client, namespace).await?,
            cluster_uid: crate::aws::cluster_uid(client).await?,
        })
    }

    /// True if there is nothing for the command to remove.
    pub(super) fn is_nothing(&self, crds: bool) -> bool {
        let Self {
            tenants,
            pools,
            claims,
            classes,
            configs,
            namespaces,
            tenant_objects,
            has_parameters,
            parts,
            ..
        } = self;
        // Helm removes the objects of its releases, but for policies and configurations, which aren't left to it.
        let own = parts.iter().any(|part| part.helm.is_none() || part.enforces);
        let parameters = *has_parameters && self.leader.is_none();
        tenants.is_empty()
            && pools.is_empty()
            && claims.is_empty()
            && classes.is_empty()
            && configs.is_empty()
            && namespaces.is_empty()
            && tenant_objects.is_empty()
            && !parameters
            && !own
            && (!crds || self.crds.is_empty())
    }

    /// Every instance that is known, by NodeClaims, nodes and AWS.
    pub(super) fn paid(&self) -> Vec<Paid> {
        let mut found: BTreeMap<String, Paid> = BTreeMap::new();
        if let Instances::Found(instances) = &self.instances {
            let alive = instances.iter().filter(|instance| instance.state.is_alive());
            found.extend(alive.map(|instance| (instance.id.clone(), of_instance(instance))));
        }
        for node in self.nodes.iter().filter(|node| is_launched(node)) {
            if let Some(id) = node.spec.as_ref().and_then(|s| s.provider_id.as_deref()).map(instance_id) {
                let paid = found.entry(id.to_owned()).or_insert_with(|| of_node(id, node));
                paid.node = node.name_any();
            }
        }
        for claim in &self.claims {
            if let Some(paid) = of_claim(claim) {
                found.insert(paid.id.clone(), paid);
            }
        }
        found.into_values().collect()
    }

    /// The Helm releases of the parts, as name and namespace.
    pub(super) fn releases(&self) -> Vec<(String, String)> {
        let mut releases: Vec<(String, String)> =
            self.parts.iter().filter_map(|part| part.helm.clone()).collect();
        releases.sort();
        releases.dedup();
        releases
    }
}

fn is_of_pool(node: &Node) -> bool {
    node.labels().contains_key(POOL_NAME_LABEL) || is_launched(node)
}

/// True for a node that Croft launched; pools of other provisioners have others.
pub(super) fn is_launched(node: &Node) -> bool {
    node.annotations().contains_key(CLAIM_ANNOTATION)
}

fn is_evicted(pod: &Pod, nodes: &[&Node]) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let ended = pod
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .is_some_and(|p| p == "Succeeded" || p == "Failed");
    let of_daemon_set = pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet");
    !ended && !of_daemon_set && nodes.iter().any(|n| n.metadata.name.as_deref() == node)
}

fn of_instance(instance: &CloudInstance) -> Paid {
    Paid {
        id: instance.id.clone(),
        instance_type: instance.instance_type.clone(),
        zone: instance.zone.clone(),
        node: instance.node_name.clone(),
        pool: instance.pool.clone().unwrap_or_default(),
        price: None,
        estimated: false,
    }
}

fn of_node(id: &str, node: &Node) -> Paid {
    let label = |key: &str| node.labels().get(key).cloned().unwrap_or_default();
    Paid {
        id: id.to_owned(),
        instance_type: label("node.kubernetes.io/instance-type"),
        zone: label("topology.kubernetes.io/zone"),
        node: node.name_any(),
        pool: label(POOL_NAME_LABEL),
        price: None,
        estimated: false,
    }
}

fn of_claim(claim: &NodeClaim) -> Option<Paid> {
    let status = claim.status.as_ref()?;
    Some(Paid {
        id: instance_id(status.provider_id.as_deref()?).to_owned(),
        instance_type: status.instance_type.clone().unwrap_or_default(),
        zone: status.zone.clone().unwrap_or_default(),
        node: status.node_name.clone().unwrap_or_default(),
        pool: claim.spec.pool.clone(),
        price: status.price_per_hour.as_ref().and_then(|price| price.parse().ok()),
        estimated: status.price_estimated,
    })
}
