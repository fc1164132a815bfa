//! The trait [`KubeApi`] and its types.
//!
//! Every write to the API server is one [`Call`], and every outcome is one [`Response`] or [`ApiError`]. So what
//! holds for all calls (the leader gate, metrics, injected faults) is written once, around one method.

use std::fmt;

use async_trait::async_trait;
use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, TenantPool};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

use crate::kube_api::ObjectKey;

/// The API server, as far as the controller calls it.
#[async_trait]
pub trait KubeApi: Send + Sync {
    /// Makes one call. If the future is dropped, the call may or may not have taken effect.
    async fn call(&self, call: Call) -> Result<Response, ApiError>;

    /// Lists every claim, not from a cache.
    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError>;

    /// Lists every pod that is bound to `node`, not from a cache.
    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError>;
}

/// The object that a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A NodeClaim.
    Claim(String),
    /// A TenantPool.
    Pool(String),
    /// An EC2NodeClass.
    Class(String),
    /// A CroftConfig.
    Config(String),
    /// A Tenant.
    Tenant(String),
    /// A Node.
    Node(String),
    /// A Namespace.
    Namespace(String),
    /// A DaemonSet, by namespace and name.
    DaemonSet(String, String),
    /// A Pod, by namespace and name.
    Pod(String, String),
    /// An object that Croft keeps in a tenant's namespace.
    TenantObject(ObjectKey),
    /// An Event in a namespace.
    Event(String),
    /// A slot of the decision log, by namespace and name.
    RecordSlot(String, String),
}

impl Target {
    /// The kind, for messages and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Claim(_) => "NodeClaim",
            Self::Pool(_) => "TenantPool",
            Self::Class(_) => "EC2NodeClass",
            Self::Config(_) => "CroftConfig",
            Self::Tenant(_) => "Tenant",
            Self::Node(_) => "Node",
            Self::Namespace(_) => "Namespace",
            Self::DaemonSet(..) => "DaemonSet",
            Self::Pod(..) => "Pod",
            Self::TenantObject(key) => key.kind.name(),
            Self::Event(_) => "Event",
            Self::RecordSlot(..) => "ConfigMap",
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(name)
            | Self::Pool(name)
            | Self::Class(name)
            | Self::Config(name)
            | Self::Tenant(name)
            | Self::Node(name)
            | Self::Namespace(name) => {
                write!(f, "{} {name}", self.kind())
            }
            Self::Pod(namespace, name)
            | Self::DaemonSet(namespace, name)
            | Self::RecordSlot(namespace, name) => {
                write!(f, "{} {namespace}/{name}", self.kind())
            }
            Self::TenantObject(key) => write!(f, "{key}"),
            Self::Event(namespace) => write!(f, "Event in {namespace}"),
        }
    }
}

/// The effect of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Creates the object.
    Create(Value),
    /// JSON merge patch of the object itself. `metadata.resourceVersion` in it makes the patch conditional on the
    /// version, `metadata.uid` on the identity.
    Patch(Value),
    /// JSON Patch of the object itself. If it can't be applied to the current object, that is a conflict.
    JsonPatch(Value),
    /// JSON merge patch of the object itself, as a dry run.
    DryRunPatch(Value),
    /// JSON merge patch of its status.
    PatchStatus(Value),
    /// Deletes the object if it still has this uid.
    Delete {
        /// The uid.
        uid: String,
        /// Pods only: the grace period in seconds.
        grace_seconds: Option<i64>,
    },
    /// Evicts a pod, within its PodDisruptionBudgets.
    Evict {
        /// The pod's uid.
        uid: String,
    },
}

impl Verb {
    /// The verb, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Patch(_) | Self::JsonPatch(_) | Self::DryRunPatch(_) => "patch",
            Self::PatchStatus(_) => "patch_status",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
        }
    }
}

/// One call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The object.
    pub target: Target,
    /// The effect.
    pub verb: Verb,
}

impl Call {
    /// The uid of the object that the call is for, if it names one.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        match &self.verb {
            Verb::Create(_) => None,
            Verb::Patch(patch) | Verb::DryRunPatch(patch) | Verb::PatchStatus(patch) => {
                patch.pointer("/metadata/uid")?.as_str()
            }
            Verb::JsonPatch(patch) => {
                let tests = patch.as_array()?.iter().filter(|operation| operation["op"] == "test");
                tests.filter(|t| t["path"] == "/metadata/uid").find_map(|t| t["value"].as_str())
            }
            Verb::Delete { uid, .. } | Verb::Evict { uid } => Some(uid),
        }
    }
}

/// The response to a call: the object as it is now, if the call returns it.
#[derive(Clone, Debug)]
pub enum Response {
    /// The claim.
    Claim(Box<NodeClaim>),
    /// The pool.
    Pool(Box<TenantPool>),
    /// The class.
    Class(Box<EC2NodeClass>),
    /// The CroftConfig.
    Config(Box<CroftConfig>),
    /// The node.
    Node(Box<Node>),
    /// The pod.
    Pod(Box<Pod>),
    /// A slot of the decision log.
    RecordSlot {
        /// Its resourceVersion.
        version: String,
        /// Its content; empty before the first write.
        bytes: Vec<u8>,
    },
    /// The call succeeded and returns no object.
    Done,
}

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The object doesn't exist.
    #[error("failed to {verb} {target}: not found")]
    NotFound {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
    },
    /// An object of that name already exists.
    #[error("failed to {verb} {target}: it already exists")]
    AlreadyExists {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
    },
    /// The object changed since it was read, or it is another object of the same name.
    #[error("failed to {verb} {target}: it changed meanwhile: {message}")]
    Conflict {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// The API server's message.
        message: String,
    },
    /// Too many requests; for an eviction, a PodDisruptionBudget that doesn't allow it now.
    #[error("failed to {verb} {target}: {message}")]
    TooMany {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// The API server's message.
        message: String,
    },
    /// Refused for another reason; a retry alone doesn't help.
    #[error("failed to {verb} {target}: {code}: {message}")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// HTTP status.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// The outcome is unknown: the call may or may not have taken effect.
    #[error("failed to learn the outcome of {verb} {target}: {message}")]
    Unknown {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// The error.
        message: String,
    },
}

impl ApiError {
    /// The result in the metric `api_calls`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::AlreadyExists { .. } => "already_exists",
            Self::Conflict { .. } => "conflict",
            Self::TooMany { .. } => "too_many_requests",
            Self::Refused { .. } => "refused",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// The API server's message, or the error; empty if the reason says all.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::NotFound { .. } | Self::AlreadyExists { .. } => "",
            Self::Conflict { message, .. }
            | Self::TooMany { message, .. }
            | Self::Refused { message, .. }
            | Self::Unknown { message, .. } => message,
        }
    }
}
