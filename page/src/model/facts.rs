//! The model: tenants, pools, nodes and pods with what the views show of them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use croft_api::{
    NodeClaim,
    condition::{
        CONSOLIDATABLE, DRIFTED, EXPIRED, INTERRUPTED, LIMITS_REACHED, READY, UNLIMITED, ZONES_CLOSED,
    },
    stored::HasConditions as _,
};
use croft_inspect::{
    NodeState, NodeUse, Tenancy,
    inventory::{self, NodeInfo},
    node_state, templates,
};
use croft_manifest::Input;
use croft_scheduler::{Resources, resources};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time},
};
use kube::ResourceExt as _;
use serde::Serialize;

use crate::cluster::{objects::Cluster, recorded::RecordedState, usage::coarse};

/// An eviction that was refused in this time before a build blocks the node.
const BLOCKED_MILLIS: i64 = 5 * 60_000;

/// A tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantFacts {
    /// Its pools, the default first.
    pub pools: Vec<String>,
    /// Its namespaces.
    pub namespaces: BTreeSet<String>,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolFacts {
    /// The tenants that use it.
    pub tenants: Vec<String>,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// Its nodes and coming nodes.
    pub nodes: Vec<String>,
    /// Its templates, the heaviest first; none if its nodes are of one kind.
    pub templates: Vec<TemplateFacts>,
    /// Its conditions.
    pub conditions: Vec<ConditionView>,
}

/// A template of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateFacts {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: i32,
    /// Its limits.
    pub limits: BTreeMap<String, String>,
    /// Why no further node is launched by it, in words.
    pub passed_over: Option<String>,
}

/// A node, or a NodeClaim whose node isn't there yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name, pool, price and so on. The name of a coming node is its NodeClaim's.
    pub info: NodeInfo,
    /// Its state.
    pub state: NodeState,
    /// Since when it is there.
    pub since: Option<i64>,
    /// Why it is in its state; may be empty.
    pub reason: String,
    /// Allocatable CPU, in thousandths.
    pub cpu: i64,
    /// Allocatable memory, in bytes.
    pub memory: i64,
    /// Used CPU and memory, where that is known.
    pub usage: Option<NodeUse>,
    /// Its pods, as `namespace/name`.
    pub pods: Vec<String>,
    /// The conditions of its NodeClaim.
    pub conditions: Vec<ConditionView>,
}

/// A pod that isn't finished.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its node; none for a pending pod.
    pub node: Option<String>,
    /// Its phase.
    pub phase: String,
    /// The tenant of its namespace.
    pub tenant: Option<String>,
    /// Kind and name of its controller.
    pub workload: String,
    /// Requested CPU, in thousandths.
    pub cpu: i64,
    /// Requested memory, in bytes.
    pub memory: i64,
    /// Since when it is there.
    pub since: Option<i64>,
    /// Since when its node's kubelet runs it.
    pub started: Option<i64>,
    /// Why it is pending, when that was last recorded.
    pub reason: String,
    /// The same as a sentence.
    pub message: String,
    /// The node that it is nominated for.
    pub nominated: Option<String>,
    /// Its placement violations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionView {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// True, False or Unknown.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Since when.
    pub since: i64,
    /// False if it says that something is wrong.
    pub healthy: bool,
}

/// Conditions whose True says that something is wrong, or is about to be. Those of the controller alone stand by their names.
const WRONG_IF_TRUE: [&str; 9] = [
    LIMITS_REACHED,
    ZONES_CLOSED,
    INTERRUPTED,
    UNLIMITED,
    DRIFTED,
    "PlanningFailed",
    "DisruptionStopped",
    "DeletionBlocked",
    "CollectionStopped",
];
/// Conditions that are neither good nor bad: a node is kept or may go, an operator paused a pool, a schedule holds.
const NEUTRAL: [&str; 4] = [CONSOLIDATABLE, EXPIRED, "DisruptionPaused", "ScheduleInForce"];

/// True unless a condition of this type with this status says that something is wrong. A type that Croft doesn't have is healthy while True.
#[must_use]
pub fn is_healthy(kind: &str, status: &str) -> bool {
    NEUTRAL.contains(&kind) || status == if WRONG_IF_TRUE.contains(&kind) { "False" } else { "True" }
}

impl From<&Condition> for ConditionView {
    fn from(condition: &Condition) -> Self {
        Self {
            kind: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            since: millis(&condition.last_transition_time),
            healthy: is_healthy(&condition.type_, &condition.status),
        }
    }
}

/// Everything at one time.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Grows with each model.
    pub version: u64,
    /// When it was built.
    pub at: i64,
    /// Tenants by name.
    pub tenants: BTreeMap<String, TenantFacts>,
    /// Pools by name.
    pub pools: BTreeMap<String, PoolFacts>,
    /// Nodes and coming nodes by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Pods by `namespace/name`.
    pub pods: BTreeMap<String, PodFacts>,
    /// The tenant of each namespace that belongs to one.
    pub owners: BTreeMap<String, String>,
    /// The number of the last entry of the log.
    pub last_entry: u64,
}

impl Model {
    /// Builds the model of a cluster, and of the log up to `at`. Times before `at` are in the past.
    #[must_use]
    pub fn build(cluster: &Cluster, log: &RecordedState, version: u64, at: i64) -> Self {
        let input = &cluster.input;
        let mut model = Self { version, at, ..Self::default() };
        let tenancy = Tenancy::new(input);
        if let Err(error) = &tenancy {
            // The API server refuses such a selector; without tenancy no reader but an operator sees anything.
            tracing::warn!(%error, "the tenancy of namespaces can't be read");
        }
        let tenancy = tenancy.ok();
        model.owners =
            tenancy.as_ref().map(|tenancy| tenancy.tenants_by_namespace(input)).unwrap_or_default();
        model.add_tenants_and_pools(input);
        model.add_nodes(cluster, log);
        for pod in input.pods.iter().filter(|pod| is_active(pod)) {
            model.add_pod(cluster, log, tenancy.as_ref(), pod);
        }
        model.last_entry = log.last_entry;
        model
    }

    fn add_tenants_and_pools(&mut self, input: &Input) {
        for pool in &input.pools {
            let limits = pool.spec.limits.iter().map(|(key, limit)| (key.clone(), limit.0.clone()));
            let facts = PoolFacts {
                limits: limits.collect(),
                conditions: views(pool.conditions()),
                ..PoolFacts::default()
            };
            self.pools.insert(pool.name_any(), facts);
        }
        let mut namespaces = inventory::namespaces_by_tenant(&self.owners);
        for tenant in &input.tenants {
            let name = tenant.name_any();
            let pools: Vec<String> = input.pools_of_tenant(tenant).map(Cow::into_owned).collect();
            for pool in &pools {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.tenants.push(name.clone());
                }
            }
            let own = namespaces.remove(name.as_str()).unwrap_or_default();
            let facts = TenantFacts {
                pools,
                namespaces: own.into_iter().map(str::to_owned).collect(),
                limits: tenant
                    .spec
                    .limits
                    .iter()
                    .map(|(key, limit)| (key.clone(), limit.0.clone()))
                    .collect(),
                conditions: views(tenant.conditions()),
            };
            self.tenants.insert(name, facts);
        }
        self.pools.values_mut().for_each(|pool| pool.tenants.sort_unstable());
    }

    fn add_nodes(&mut self, cluster: &Cluster, log: &RecordedState) {
        let input = &cluster.input;
        let mut registered = BTreeSet::new();
        let infos = inventory::nodes(input);
        self.add_templates(input, &infos);
        for info in infos {
            let Some(node) = input.nodes.get("", &info.name) else { continue };
            let claim = info.claim.as_ref().and_then(|claim| input.claims.get("", claim));
            registered.extend(info.claim.clone());
            let is_blocked =
                log.blocked(&info.name).is_some_and(|at| self.at.saturating_sub(at) < BLOCKED_MILLIS);
            let (state, reason) = node_state(Some(&node.object), claim.map(|c| &c.object), is_blocked);
            let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
            let allocatable = allocatable.and_then(|map| Resources::from_api(map).ok()).unwrap_or_default();
            let (cpu, memory) = (allocatable.get(resources::CPU), allocatable.get(resources::MEMORY));
            self.add_node(NodeFacts {
                state,
                reason,
                since: since(&node.metadata),
                cpu,
                memory,
                usage: cluster.usage.get(&info.name).map(|used| coarse(*used, cpu, memory)),
                pods: Vec::new(),
                conditions: views(claim.map(|claim| claim.conditions()).unwrap_or_default()),
                info,
            });
        }
        for claim in input.claims.iter().filter(|claim| !registered.contains(&claim.name_any())) {
            self.add_node(coming(claim));
        }
    }

    /// Without the catalogue, which would be read for each model: a limit that is used up is what rules a template out most often.
    fn add_templates(&mut self, input: &Input, nodes: &[NodeInfo]) {
        let at = Timestamp::from_millisecond(self.at).unwrap_or_default();
        let mut by_pool: BTreeMap<&str, Vec<&NodeInfo>> = BTreeMap::new();
        for node in nodes.iter().filter(|node| node.template.is_some()) {
            by_pool.entry(node.pool.as_deref().unwrap_or_default()).or_default().push(node);
        }
        for pool in input.pools.iter().filter(|pool| !pool.spec.templates.is_empty()) {
            let name = pool.name_any();
            let nodes = by_pool.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let facts = templates(input, pool, nodes, None, at).into_iter().map(|one| TemplateFacts {
                name: one.template.name,
                weight: one.template.weight,
                limits: one.template.limits.into_iter().map(|(key, limit)| (key, limit.0)).collect(),
                passed_over: one.passed_over,
            });
            if let Some(pool) = self.pools.get_mut(&name) {
                pool.templates = facts.collect();
            }
        }
    }

    fn add_node(&mut self, node: NodeFacts) {
        if let Some(pool) = node.info.pool.as_ref().and_then(|pool| self.pools.get_mut(pool)) {
            pool.nodes.push(node.info.name.clone());
        }
        self.nodes.insert(node.info.name.clone(), node);
    }

    fn add_pod(&mut self, cluster: &Cluster, log: &RecordedState, tenancy: Option<&Tenancy>, pod: &Pod) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let key = format!("{namespace}/{name}");
        let spec = pod.spec.as_ref();
        let node = spec.and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
        if let Some(node) = node.as_ref().and_then(|node| self.nodes.get_mut(node)) {
            node.pods.push(key.clone());
        }
        let (cpu, memory) = cluster.requests(&namespace, &name).unwrap_or_default();
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        let pending = log.pending(&key).filter(|_| node.is_none());
        let status = pod.status.as_ref();
        let nominated = status.and_then(|status| status.nominated_node_name.clone());
        let facts = PodFacts {
            tenant: self.owners.get(&namespace).cloned(),
            phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
            workload: owner.map(|owner| format!("{}/{}", owner.kind, owner.name)).unwrap_or_default(),
            since: since(&pod.metadata),
            started: status.and_then(|status| status.start_time.as_ref()).map(millis),
            reason: pending.map(|pending| pending.reason.clone()).unwrap_or_default(),
            message: pending.map(|pending| pending.message.clone()).unwrap_or_default(),
            nominated: nominated.filter(|node| !node.is_empty()),
            violations: tenancy.map(|tenancy| tenancy.violations(pod)).unwrap_or_default(),
            node,
            cpu,
            memory,
            namespace,
            name,
        };
        self.pods.insert(key, facts);
    }

    /// The pods of a node.
    pub fn pods_of<'a>(&'a self, node: &'a NodeFacts) -> impl Iterator<Item = &'a PodFacts> {
        node.pods.iter().filter_map(|pod| self.pods.get(pod))
    }
}

/// The status of the condition Ready: `True`, `False` with the reason, or empty.
#[must_use]
pub fn ready(conditions: &[ConditionView]) -> String {
    conditions.iter().find(|condition| condition.kind == READY).map_or_else(String::new, |condition| {
        if condition.status == "True" {
            condition.status.clone()
        } else {
            format!("{} ({})", condition.status, condition.reason)
        }
    })
}

fn views(conditions: &[Condition]) -> Vec<ConditionView> {
    conditions.iter().map(ConditionView::from).collect()
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn millis(time: &Time) -> i64 {
    time.0.as_millisecond()
}

fn since(metadata: &ObjectMeta) -> Option<i64> {
    metadata.creation_timestamp.as_ref().map(millis)
}

/// A NodeClaim whose node isn't there yet.
fn coming(claim: &NodeClaim) -> NodeFacts {
    let status = claim.status.clone().unwrap_or_default();
    let allocatable = |name: &str| {
        let amount = status.allocatable.get(name).and_then(|amount| amount.0.parse().ok());
        amount.map_or(0, |quantity| resources::native(name, quantity))
    };
    let info = NodeInfo {
        name: claim.name_any(),
        pool: Some(claim.spec.pool.clone()),
        template: claim.template().map(str::to_owned),
        instance_type: status.instance_type.clone().unwrap_or_default(),
        zone: status.zone.clone().unwrap_or_default(),
        capacity_type: status.capacity_type.clone().unwrap_or_default(),
        price: status.price_per_hour.as_deref().and_then(|price| price.parse().ok()),
        estimated: status.price_estimated,
        claim: Some(claim.name_any()),
        ready: false,
    };
    let (state, reason) = node_state(None, Some(claim), false);
    NodeFacts {
        state,
        reason,
        since: since(&claim.metadata),
        cpu: allocatable(resources::CPU),
        memory: allocatable(resources::MEMORY),
        usage: None,
        pods: Vec::new(),
        conditions: views(&status.conditions),
        info,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_healthy_by_what_they_say_and_not_by_true() {
        for (kind, status, expected) in [
            ("Ready", "True", true),
            ("Ready", "False", false),
            ("Ready", "Unknown", false),
            ("Unlimited", "False", true),
            ("Unlimited", "True", false),
            ("LimitsReached", "False", true),
            ("Interrupted", "True", false),
            ("PlanningFailed", "True", false),
            ("DisruptionStopped", "True", false),
            ("DisruptionPaused", "True", true),
            ("Consolidatable", "False", true),
            ("Consolidatable", "True", true),
            ("OfAnotherController", "False", false),
        ] {
            assert_eq!(is_healthy(kind, status), expected, "{kind}={status}");
        }
    }
}
