//! What is to be done for tenants, from the facts and the time.

use std::{collections::BTreeMap, time::Duration};

use croft_policy::{
    Ground, Provisioner, Tenants,
    audit::{self, Broken},
    model::{MARK_KEY, POOLS_ANNOTATION, SHARED_ANNOTATION, TENANCY_LABEL},
    plan_daemonset,
    policies::{self, Marks},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use super::{
    pods, pools,
    state::{Key, NamespaceFacts, State},
    status,
};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write a policy or a binding whole.
    Policy(Value),
    /// Write the label and annotations that only Croft writes.
    Mark {
        /// The namespace.
        namespace: String,
        /// Merge patch of it.
        patch: Value,
    },
    /// Write the mark on a node that somebody else made.
    MarkNode {
        /// The node.
        node: String,
        /// The mark.
        mark: String,
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
    /// Send an empty patch, so that admission plans the DaemonSet anew.
    Touch(Key),
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
            Self::Policy(document) => {
                let text = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                format!("policy {} {}", text("/kind"), text("/metadata/name"))
            }
            Self::Mark { namespace, .. } => format!("namespace {namespace}"),
            Self::MarkNode { node, .. } => format!("node {node}"),
            Self::Status { tenant, .. } => format!("tenant {tenant}"),
            Self::PoolStatus { pool, .. } => format!("pool {pool}"),
            Self::Touch((namespace, name)) => format!("daemonset {namespace}/{name}"),
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
    let view = state.view();
    let mut actions = Vec::new();
    actions.extend(stale_policies(state, &view));
    let in_step = actions.is_empty();
    actions.extend(stale_marks(state, &view));
    actions.extend(unmarked_nodes(state, &view));
    actions.extend(pools::stale(state, &view, wall));
    let mut placement = pods::look(state, &view);
    audit(state, &view, &mut placement);
    state.violations = std::mem::take(&mut placement.violations);
    actions.extend(status::stale(state, &view, &placement, in_step, mono, wall));
    // What is made again must come again right: that takes a webhook that knows the tenants of today.
    if status::enforced_everywhere(state, mono) {
        actions.extend(unplanned_daemonsets(state, &view));
        actions.extend(pods::remedies(state, &placement));
    }
    actions
}

fn stale_policies<'a>(state: &'a State, view: &Tenants) -> impl Iterator<Item = Action> + use<'a> {
    policies::documents(view.rules()).into_iter().filter_map(|wanted| {
        let text =
            |pointer: &str| wanted.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let there = state.policies.get(&(text("/kind"), text("/metadata/name")));
        let right = there.is_some_and(|there| {
            wanted.get("spec").zip(there.get("spec")).is_some_and(|(wanted, there)| holds(there, wanted))
        });
        (!right).then_some(Action::Policy(wanted))
    })
}

/// True if `there` says all that `wanted` says; the API server adds defaults.
fn holds(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => wanted.iter().all(|(key, value)| {
            // What is empty is left out by whoever wrote it last.
            let empty =
                value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
            there.get(key).map_or(empty, |there| holds(there, value))
        }),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(t, w)| holds(t, w))
        }
        (there, wanted) => there == wanted,
    }
}

fn stale_marks(state: &State, view: &Tenants) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
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

fn marks(view: &Tenants, namespace: &str) -> (Marks, Marks) {
    let owner = match view.ground(namespace) {
        Ground::Tenant { tenant, .. } => Some(tenant),
        _ => None,
    };
    policies::namespace_marks(view.rules(), namespace, owner)
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

/// Nodes that somebody else made for a pool carry the pool's own label; the mark is written here. Nodes of Croft's
/// pools get both when their machine is known to be the claim's.
fn unmarked_nodes(state: &State, view: &Tenants) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, mark) in &state.nodes {
        let [pool] = view.node(name).map(|pools| &*pools.labelled).unwrap_or_default() else { continue };
        let Some(pool) = view.rules().pool(*pool) else { continue };
        if pool.provisioner != Provisioner::Croft
            && *pool.key != *MARK_KEY
            && mark.as_deref() != Some(pool.mark())
        {
            actions.push(Action::MarkNode { node: name.clone(), mark: pool.mark().to_owned() });
        }
    }
    actions
}

/// What `croft audit` would find beside pods, counted.
fn audit(state: &mut State, view: &Tenants, placement: &mut pods::Placement) {
    for finding in audit::declarations(view) {
        *placement.violations.entry(finding.rule).or_default() += 1;
    }
    for finding in state.node_findings() {
        *placement.violations.entry(finding.rule).or_default() += 1;
        if matches!(finding.rule, Broken::NodeUntainted | Broken::NodeInTwoPools) {
            for tenant in &finding.tenants {
                placement.tenants.entry(tenant.clone()).or_default().open.push(finding.name.clone());
            }
        }
    }
    for ((namespace, name), daemonset) in &state.daemonsets {
        if daemonset.metadata.deletion_timestamp.is_none() {
            let planned = croft_api::convert::policy::daemonset(daemonset);
            let found = audit::daemonset(view, namespace, name, &planned).is_some();
            *placement.violations.entry(Broken::DaemonSetUnplanned).or_default() += i64::from(found);
        }
    }
    for (name, facts) in state.namespaces.iter().filter(|(_, facts)| !facts.deleting) {
        let of =
            |key: &str, value: &Option<String>| value.iter().map(|v| (key.to_owned(), v.clone())).collect();
        let labels: BTreeMap<String, String> = of(TENANCY_LABEL, &facts.tenancy);
        let mut annotations: BTreeMap<String, String> = of(POOLS_ANNOTATION, &facts.pools);
        annotations.extend(of(SHARED_ANNOTATION, &facts.shared));
        let found = audit::namespace(view, name, &labels, &annotations, true).len();
        *placement.violations.entry(Broken::NamespaceUnmarked).or_default() +=
            i64::try_from(found).unwrap_or(0);
    }
}

fn unplanned_daemonsets(state: &State, view: &Tenants) -> Vec<Action> {
    let unplanned = state.daemonsets.iter().filter(|((namespace, _), daemonset)| {
        if daemonset.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let planned = plan_daemonset(view, namespace, &croft_api::convert::policy::daemonset(daemonset));
        planned.allowed() && !planned.patch.is_empty()
    });
    unplanned.map(|(key, _)| Action::Touch(key.clone())).collect()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
