//! A pool for a group of nodes that no TenantPool declares: it may launch what the group has.

use std::collections::{BTreeMap, BTreeSet};

use croft_api::{
    TenantPool,
    disruption::Disruption,
    pool::{
        NodeClassRef, NodeTemplate, NodeTemplateSpec, Operator, Provisioner, Requirement, TemplateMetadata,
        TenantPoolSpec,
    },
};
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

use super::launcher::is_of_instance;
use crate::{inventory::NodeInfo, node_index::OfferingIndex};

/// Key of the label by which pods stay in a derived pool. It is on no node of the cluster.
pub(super) const GROUP: &str = "croft.dev/launcher-group";
/// Key of the label that says whether a planned node's pool is [`DECLARED`] or [`DERIVED`].
pub(super) const ORIGIN: &str = "croft.dev/pool-origin";
/// Value of [`ORIGIN`] of nodes of TenantPools.
pub(super) const DECLARED: &str = "declared";
/// Value of [`ORIGIN`] of nodes of derived pools.
pub(super) const DERIVED: &str = "derived";

const FAMILY: &str = "karpenter.k8s.aws/instance-family";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";

/// Taints of these domains come and go while a node lives.
const TRANSIENT: [&str; 4] =
    ["node.kubernetes.io", "node.cloudprovider.kubernetes.io", "karpenter.sh", "croft.dev"];

/// A pool that may launch the families, architectures, capacity types and zones of `nodes`, with the labels and taints that all of
/// them have.
pub(super) fn pool(title: &str, nodes: &[(&Node, &NodeInfo)], offerings: &OfferingIndex<'_>) -> TenantPool {
    let mut labels = common_labels(nodes);
    labels.insert(ORIGIN.to_owned(), DERIVED.to_owned());
    let spec = NodeTemplateSpec {
        requirements: requirements(nodes, offerings),
        taints: common_taints(nodes),
        startup_taints: Vec::new(),
        // Of no class, so it has the types as the catalogue has them.
        node_class_ref: NodeClassRef { group: String::new(), kind: String::new(), name: String::new() },
        resources: Vec::new(),
        expire_after: None,
        termination_grace_period: None,
    };
    let metadata = TemplateMetadata { labels, annotations: BTreeMap::new() };
    TenantPool {
        metadata: ObjectMeta { name: Some(title.to_owned()), ..ObjectMeta::default() },
        spec: TenantPoolSpec {
            key: GROUP.to_owned(),
            value: None,
            per_tenant: false,
            for_tenant: None,
            effects: Vec::new(),
            provisioner: Provisioner::Croft,
            weight: 0,
            limits: BTreeMap::new(),
            template: Some(NodeTemplate { metadata, spec }),
            templates: Vec::new(),
            disruption: Disruption::default(),
            replicas: None,
            headroom: None,
            schedules: Vec::new(),
            shares: Vec::new(),
            template_return: None,
            shared_with: Vec::new(),
        },
        status: None,
    }
}

fn requirements(nodes: &[(&Node, &NodeInfo)], offerings: &OfferingIndex<'_>) -> Vec<Requirement> {
    let label = |key: &str| nodes.iter().filter_map(|(node, _)| node.labels().get(key).cloned()).collect();
    let infos = || nodes.iter().map(|(_, info)| *info);
    let paid_as = |info: &NodeInfo| match info.capacity_type.as_str() {
        "" => "on-demand".to_owned(),
        said => said.to_owned(),
    };
    let zones = infos().map(|info| info.zone.clone()).filter(|zone| !zone.is_empty()).collect();
    let each: [(&str, BTreeSet<String>); 5] = [
        ("kubernetes.io/arch", label("kubernetes.io/arch")),
        ("kubernetes.io/os", label("kubernetes.io/os")),
        (CAPACITY_TYPE, infos().map(paid_as).collect()),
        ("topology.kubernetes.io/zone", zones),
        types(infos(), offerings),
    ];
    let wanted = each.into_iter().filter(|(_, values)| !values.is_empty());
    wanted
        .map(|(key, values)| Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.into_iter().collect(),
            min_values: None,
        })
        .collect()
}

/// The instance families, or the instance types if the catalogue doesn't say the family of one.
fn types<'n>(
    nodes: impl Iterator<Item = &'n NodeInfo> + Clone,
    offerings: &OfferingIndex<'_>,
) -> (&'static str, BTreeSet<String>) {
    let named = nodes.map(|info| info.instance_type.as_str()).filter(|name| !name.is_empty());
    let family = |name: &str| match offerings.instance_type(name) {
        Some(known) => known.labels.get(FAMILY).cloned(),
        None => name.split_once('.').map(|(family, _)| family.to_owned()),
    };
    match named.clone().map(family).collect::<Option<BTreeSet<String>>>() {
        Some(families) => (FAMILY, families),
        None => (INSTANCE_TYPE, named.map(str::to_owned).collect()),
    }
}

fn common_labels(nodes: &[(&Node, &NodeInfo)]) -> BTreeMap<String, String> {
    let Some(((first, _), others)) = nodes.split_first() else { return BTreeMap::new() };
    let is_common = |(key, value): &(&String, &String)| {
        !is_of_instance(key) && others.iter().all(|(node, _)| node.labels().get(*key) == Some(*value))
    };
    let common = first.labels().iter().filter(is_common);
    common.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn common_taints(nodes: &[(&Node, &NodeInfo)]) -> Vec<Taint> {
    let Some(((first, _), others)) = nodes.split_first() else { return Vec::new() };
    let same = |a: &Taint, b: &Taint| (&a.key, &a.value, &a.effect) == (&b.key, &b.value, &b.effect);
    let is_common = |taint: &Taint| {
        let domain = taint.key.split_once('/').map_or("", |(domain, _)| domain);
        !TRANSIENT.contains(&domain)
            && others.iter().all(|(node, _)| taints(node).iter().any(|other| same(taint, other)))
    };
    taints(first).iter().filter(|taint| is_common(taint)).cloned().collect()
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}
