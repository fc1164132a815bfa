//! Where the controller touches the world: [`KubeApi`] and `croft_cloud::CloudProvider`, and nothing else.
//!
//! Everything that the controller writes into the API server is one [`Call`], and everything that comes
//! back one [`Answer`] or [`ApiError`]. So whatever holds for calls (the leader's deadline, metrics,
//! injected faults) is written once, around one method.

mod client;

pub use client::KubeClient;

use std::fmt;

use async_trait::async_trait;
use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, TenantPool};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

/// The API server, as far as the controller writes to it.
#[async_trait]
pub trait KubeApi: Send + Sync {
    /// Makes one call. Dropped half-way, it may or may not have taken effect.
    async fn call(&self, call: Call) -> Result<Answer, ApiError>;

    /// Every claim, as the API server has them now: not from a cache.
    async fn claims(&self) -> Result<Vec<NodeClaim>, ApiError>;

    /// Every pod that is bound to `node`, as the API server has them now: not from a cache.
    async fn pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError>;
}

/// What a call is about.
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
    /// A Node.
    Node(String),
    /// A Pod, by namespace and name.
    Pod(String, String),
    /// An Event in a namespace.
    Event(String),
}

impl Target {
    /// The kind's name, for messages and metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Claim(_) => "NodeClaim",
            Self::Pool(_) => "TenantPool",
            Self::Class(_) => "EC2NodeClass",
            Self::Config(_) => "CroftConfig",
            Self::Node(_) => "Node",
            Self::Pod(..) => "Pod",
            Self::Event(_) => "Event",
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
            | Self::Node(name) => {
                write!(f, "{} {name}", self.kind())
            }
            Self::Pod(namespace, name) => write!(f, "Pod {namespace}/{name}"),
            Self::Event(namespace) => write!(f, "Event in {namespace}"),
        }
    }
}

/// What a call does.
#[derive(Clone, Debug, PartialEq)]
pub enum Verb {
    /// Creates the object.
    Create(Value),
    /// JSON merge patch of the object itself. `metadata.resourceVersion` in it makes it conditional on the
    /// version, `metadata.uid` on the identity.
    Patch(Value),
    /// JSON Patch of the object itself. Where it can't be applied to what the object is now, that is a conflict.
    JsonPatch(Value),
    /// JSON merge patch of its status.
    PatchStatus(Value),
    /// Deletes it if its uid is still this one.
    Delete {
        /// The uid.
        uid: String,
        /// Pods only: seconds that its containers get.
        grace_seconds: Option<i64>,
    },
    /// Asks for a pod's eviction, within the disruption budgets.
    Evict {
        /// The pod's uid.
        uid: String,
    },
}

impl Verb {
    /// The verb's name, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Patch(_) | Self::JsonPatch(_) => "patch",
            Self::PatchStatus(_) => "patch_status",
            Self::Delete { .. } => "delete",
            Self::Evict { .. } => "evict",
        }
    }
}

/// One call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// What it is about.
    pub target: Target,
    /// What it does.
    pub verb: Verb,
}

impl Call {
    /// The uid of the object that the call is meant for, if it names one.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        match &self.verb {
            Verb::Create(_) => None,
            Verb::Patch(patch) | Verb::PatchStatus(patch) => patch.pointer("/metadata/uid")?.as_str(),
            Verb::JsonPatch(patch) => {
                let tests = patch.as_array()?.iter().filter(|operation| operation["op"] == "test");
                tests.filter(|t| t["path"] == "/metadata/uid").find_map(|t| t["value"].as_str())
            }
            Verb::Delete { uid, .. } | Verb::Evict { uid } => Some(uid),
        }
    }
}

/// What the API server answered: the object as it is now, where the call has one.
#[derive(Clone, Debug)]
pub enum Answer {
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
    /// Done, and there is no object to show.
    Done,
}

/// Why a call had no effect, or perhaps had one.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The object isn't there.
    #[error("failed to {verb} {target}: not found")]
    NotFound {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
    },
    /// An object of that name is there already.
    #[error("failed to {verb} {target}: it exists already")]
    AlreadyExists {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
    },
    /// The object changed since the caller read it, or it's another one of the same name.
    #[error("failed to {verb} {target}: it changed meanwhile: {message}")]
    Conflict {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// The API server's words.
        message: String,
    },
    /// Too many requests; for an eviction, a disruption budget that doesn't allow it now.
    #[error("failed to {verb} {target}: {message}")]
    TooMany {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// The API server's words.
        message: String,
    },
    /// Refused for another reason; repeating it won't help by itself.
    #[error("failed to {verb} {target}: {code}: {message}")]
    Refused {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// HTTP status.
        code: u16,
        /// The API server's words.
        message: String,
    },
    /// The answer was lost: it may or may not have taken effect.
    #[error("failed to learn the outcome of {verb} {target}: {message}")]
    Unknown {
        /// The verb.
        verb: &'static str,
        /// The object.
        target: Target,
        /// What broke.
        message: String,
    },
}

impl ApiError {
    /// The word for metrics.
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
}
