//! What is to be done for tenants, from the facts and the time.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{
    NamespaceTenancy, Tenants, Violation, audit,
    definitions::{POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    node::NodeRepair,
    policies::{self, MetadataEntries},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::{
    daemonsets, evictions, parameters, pods, pools,
    state::{Key, NamespaceFacts, State},
    status, unread,
};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write what the policies read, on Croft's own Namespace.
    Parameters {
        /// The namespace.
        namespace: String,
        /// Merge patch of it.
        patch: Value,
    },
    /// Ask the API server whether its policies read what was written.
    Probe {
        /// Croft's own namespace.
        namespace: String,
        /// The revision of the parameters.
        revision: String,
    },
    /// Write the label and annotations that only Croft writes.
    Mark {
        /// The namespace.
        namespace: String,
        /// Merge patch of it.
        patch: Value,
    },
    /// Write the mark and the pool's taints on a node that Croft doesn't make.
    MarkNode {
        /// The node.
        node: String,
        /// What it lacks.
        upkeep: NodeRepair,
    },
    /// Say that a node has left its pool, since the pool's label was removed.
    NodeLeft {
        /// The node.
        node: String,
        /// The pool.
        pool: String,
    },
    /// Write a Tenant's status.
    Status {
        /// The tenant.
        tenant: String,
        /// The status.
        status: Box<croft_api::TenantStatus>,
        /// What users are told by an Event: reason, sentence.
        tell: Vec<(&'static str, String)>,
    },
    /// Write the conditions of a TenantPool's status, if it is still this version: others write there too.
    PoolStatus {
        /// The pool.
        pool: String,
        /// Its version.
        version: Option<String>,
        /// All of its conditions.
        conditions: Vec<Condition>,
        /// What users are told by an Event: reason, sentence.
        tell: Option<(&'static str, String)>,
    },
    /// Write the conditions of an EC2NodeClass's status, if it is still this version: others write there too.
    ClassStatus {
        /// The class.
        class: String,
        /// Its version.
        version: Option<String>,
        /// All of its conditions.
        conditions: Vec<Condition>,
        /// What users are told by an Event: reason, sentence.
        tell: Option<(&'static str, String)>,
    },
    /// Send an empty patch, so that admission plans the DaemonSet anew.
    Touch(Key),
    /// Take what was injected out of a DaemonSet of an exempt namespace, about which admission is not asked.
    Restore {
        /// The DaemonSet.
        daemonset: Key,
        /// JSON Patch of it.
        patch: Value,
    },
    /// Delete a pod that was admitted before its tenant was known and runs nowhere yet.
    Recreate {
        /// The pod.
        pod: Key,
        /// Its uid.
        uid: String,
    },
    /// Evict a pod that runs where it mustn't.
    Evict {
        /// The pod.
        pod: Key,
        /// Its uid.
        uid: String,
    },
}

impl Action {
    /// Names what is written: of two actions of one key only the newer counts.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Parameters { namespace, .. } => format!("parameters on namespace {namespace}"),
            Self::Probe { revision, .. } => format!("parameters of revision {revision}"),
            Self::Mark { namespace, .. } => format!("namespace {namespace}"),
            Self::MarkNode { node, .. } => format!("node {node}"),
            Self::NodeLeft { node, .. } => format!("event about node {node}"),
            Self::Status { tenant, .. } => format!("tenant {tenant}"),
            Self::PoolStatus { pool, .. } => format!("pool {pool}"),
            Self::ClassStatus { class, .. } => format!("class {class}"),
            Self::Touch((namespace, name)) | Self::Restore { daemonset: (namespace, name), .. } => {
                format!("daemonset {namespace}/{name}")
            }
            Self::Recreate { uid, .. } | Self::Evict { uid, .. } => format!("pod {uid}"),
        }
    }
}

/// Compares what is with what should be.
#[must_use]
pub fn decide(state: &mut State, mono: Duration, wall: Timestamp) -> Vec<Action> {
    if !state.is_complete() {
        return Vec::new();
    }
    state.absences.confirm(mono);
    state.confirm_absence(mono);
    let view = state.view();
    state.refresh_nodes();
    let mut actions = Vec::new();
    let active = parameters::is_active(state, &view, mono);
    actions.extend(parameters::stale(state, &view, active));
    if active {
        actions.extend(stale_marks(state, &view));
    }
    actions.extend(nodes(state, active));
    actions.extend(pools::stale(state, &view, wall));
    actions.extend(unread::stale_classes(state, wall));
    let mut placement = pods::look(state, &view);
    audit(state, &view, &mut placement);
    state.violations = std::mem::take(&mut placement.violations);
    // What is made again must come again right: that takes a webhook that knows the tenants of today.
    let enforced = status::enforced_everywhere(state, mono);
    let evictions = if enforced { evictions::due(state, &view, &mut placement, mono) } else { Vec::new() };
    actions.extend(status::stale(state, &view, &placement, mono, wall));
    if enforced {
        actions.extend(daemonsets::unplanned(state, &view, mono));
        actions.extend(pods::remedies(state, &view, &placement, mono));
        actions.extend(evictions);
    }
    actions
}

fn stale_marks(state: &State, view: &Tenants) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        if unread::is_held(view, name) {
            continue;
        }
        let (labels, annotations) = marks(view, name);
        let stale =
            |kept: &BTreeMap<&'static str, Option<String>>| -> BTreeMap<&'static str, Option<String>> {
                let differs = |key: &str, value: &Option<String>| written(facts, key) != value.as_ref();
                kept.iter().filter(|(key, value)| differs(key, value)).map(|(k, v)| (*k, v.clone())).collect()
            };
        let (labels, annotations) = (stale(&labels), stale(&annotations));
        if !labels.is_empty() || !annotations.is_empty() {
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            actions.push(Action::Mark { namespace: name.clone(), patch });
        }
    }
    actions
}

fn marks(view: &Tenants, namespace: &str) -> (MetadataEntries, MetadataEntries) {
    let owner = match view.tenancy(namespace) {
        NamespaceTenancy::Tenant { tenant, .. } => Some(tenant),
        _ => None,
    };
    policies::namespace_metadata(view.declarations(), namespace, owner)
}

/// True if the namespace carries what the policies must know of it.
pub(super) fn is_marked(view: &Tenants, namespace: &str, facts: &NamespaceFacts) -> bool {
    let (labels, annotations) = marks(view, namespace);
    labels.iter().chain(&annotations).all(|(key, value)| written(facts, key) == value.as_ref())
}

fn written<'f>(facts: &'f NamespaceFacts, key: &str) -> Option<&'f String> {
    match key {
        TENANCY_LABEL => facts.tenancy.as_ref(),
        POOLS_ANNOTATION => facts.pools.as_ref(),
        SHARED_ANNOTATION => facts.shared.as_ref(),
        _ => None,
    }
}

/// Nodes that Croft doesn't make carry their pool's own label; mark and taints are written here, in one patch. Nodes of
/// Croft's pools get all of it when their machine is known to be the claim's.
/// As long as no tenant is enforced, no node is touched.
fn nodes(state: &mut State, active: bool) -> Vec<Action> {
    let left = std::mem::take(&mut state.left_pools).into_iter();
    let left = left.map(|(node, pool)| Action::NodeLeft { node, pool });
    let upkeep = state.node_upkeep.iter().filter(|_| active);
    let upkeep = upkeep.map(|(node, upkeep)| Action::MarkNode { node: node.clone(), upkeep: upkeep.clone() });
    left.chain(upkeep).collect()
}

/// What `croft audit` would find beside pods, counted.
fn audit(state: &mut State, view: &Tenants, placement: &mut pods::Placement) {
    for finding in audit::declarations(view) {
        *placement.violations.entry(finding.violation).or_default() += 1;
    }
    for finding in state.node_findings() {
        *placement.violations.entry(finding.violation).or_default() += 1;
        if matches!(finding.violation, Violation::NodeUntainted | Violation::NodeInTwoPools) {
            for tenant in &finding.tenants {
                placement.tenants.entry(tenant.clone()).or_default().open.push(finding.name.clone());
            }
        }
    }
    for ((namespace, name), daemonset) in &state.daemonsets {
        if daemonset.metadata.deletion_timestamp.is_none() {
            let planned = croft_api::convert::policy::daemonset(daemonset);
            let found = audit::daemonset(view, namespace, name, &planned).is_some();
            *placement.violations.entry(Violation::DaemonSetUnplanned).or_default() += i64::from(found);
        }
    }
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        let of =
            |key: &str, value: &Option<String>| value.iter().map(|v| (key.to_owned(), v.clone())).collect();
        let labels: BTreeMap<String, String> = of(TENANCY_LABEL, &facts.tenancy);
        let mut annotations: BTreeMap<String, String> = of(POOLS_ANNOTATION, &facts.pools);
        annotations.extend(of(SHARED_ANNOTATION, &facts.shared));
        let found = audit::namespace(view, name, &labels, &annotations, true).len();
        *placement.violations.entry(Violation::NamespaceMetadataStale).or_default() +=
            i64::try_from(found).unwrap_or(0);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
