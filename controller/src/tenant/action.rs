//! The writes of tenants.

use croft_policy::node::NodeRepair;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::Value;

use crate::tenant::state::Key;

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the parameters of the admission policies on Croft's own Namespace.
    Parameters {
        /// The namespace.
        namespace: String,
        /// Merge patch of the namespace.
        patch: Value,
    },
    /// Probe whether the admission policies read the parameters that were written.
    Probe {
        /// Croft's own namespace.
        namespace: String,
        /// The revision of the parameters.
        revision: String,
    },
    /// Write the label and annotations of a namespace that are reserved to Croft.
    NamespaceMetadata {
        /// The namespace.
        namespace: String,
        /// Merge patch of the namespace.
        patch: Value,
    },
    /// Write the pool-name label and the pool's taints on a node that Croft didn't launch.
    RepairNode {
        /// The node.
        node: String,
        /// The label and taints that the node lacks.
        missing: NodeRepair,
    },
    /// Record an event: a node has left its pool, since the pool's label was removed.
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
        /// Events to record: reason and note.
        events: Vec<(&'static str, String)>,
    },
    /// Write the conditions of a TenantPool if it still has this version: the status has other writers.
    PoolStatus {
        /// The pool.
        pool: String,
        /// Its resourceVersion.
        version: Option<String>,
        /// All of its conditions.
        conditions: Vec<Condition>,
        /// An event to record: reason and note.
        event: Option<(&'static str, String)>,
    },
    /// Write the conditions of an EC2NodeClass if it still has this version: the status has other writers.
    ClassStatus {
        /// The class.
        class: String,
        /// Its resourceVersion.
        version: Option<String>,
        /// All of its conditions.
        conditions: Vec<Condition>,
        /// An event to record: reason and note.
        event: Option<(&'static str, String)>,
    },
    /// Send an empty patch, so that admission plans the DaemonSet again.
    Touch(Key),
    /// Remove what was injected into a DaemonSet of a namespace that is exempt by now; the webhook isn't called for
    /// it.
    Restore {
        /// The DaemonSet.
        daemonset: Key,
        /// JSON Patch of the DaemonSet.
        patch: Value,
    },
    /// Delete a pending pod that was admitted before its tenant was known; its controller recreates it.
    Recreate {
        /// The pod.
        pod: Key,
        /// Its uid.
        uid: String,
    },
    /// Evict a pod that is bound to a wrong node.
    Evict {
        /// The pod.
        pod: Key,
        /// Its uid.
        uid: String,
    },
}

impl Action {
    /// The key of the object that is written. Of two actions with one key the newer replaces the older.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Parameters { namespace, .. } => format!("parameters on namespace {namespace}"),
            Self::Probe { revision, .. } => format!("parameters of revision {revision}"),
            Self::NamespaceMetadata { namespace, .. } => format!("namespace {namespace}"),
            Self::RepairNode { node, .. } => format!("node {node}"),
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
