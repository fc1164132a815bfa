//! Changes of objects, as watches and responses report them.

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, stored::Flaw};
use croft_policy::replica_status::ReplicaStatus;
use croft_runtime::kubernetes::Release;
use croft_scheduler::PodKey;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use serde_json::Value;

use crate::kube_api::{ObjectKey, ObjectKind};

/// The kind of [`Change::WebhookReplica`] in [`Change::Synced`].
pub const WEBHOOK_REPLICA: &str = "WebhookReplica";

/// The kind of [`Change::LimitRange`] in [`Change::Synced`]: those that Croft keeps are watched apart from all of them.
pub const ANY_LIMIT_RANGE: &str = "AnyLimitRange";

/// One change.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the kind it is named for; `Gone` variants carry the object's name")]
pub enum Change {
    Pod(Box<Pod>),
    PodGone(PodKey),
    Node(Box<Node>),
    NodeGone(String),
    Claim(Box<NodeClaim>),
    ClaimGone(String),
    Pool(Box<TenantPool>),
    PoolGone(String),
    Class(Box<EC2NodeClass>),
    ClassGone(String),
    Tenant(Box<Tenant>),
    TenantGone(String),
    Config(Box<CroftConfig>),
    ConfigGone(String),
    Namespace(Box<Namespace>),
    NamespaceGone(String),
    DaemonSet(Box<DaemonSet>),
    DaemonSetGone(String, String),
    LimitRange(Box<LimitRange>),
    LimitRangeGone(String, String),
    RuntimeClass(Box<RuntimeClass>),
    RuntimeClassGone(String),
    Pvc(Box<PersistentVolumeClaim>),
    PvcGone(String, String),
    Pv(Box<PersistentVolume>),
    PvGone(String),
    StorageClass(Box<StorageClass>),
    StorageClassGone(String),
    CsiNode(Box<CSINode>),
    CsiNodeGone(String),
    Attachment(Box<VolumeAttachment>),
    AttachmentGone(String),
    Budget(Box<PodDisruptionBudget>),
    BudgetGone(String, String),
    /// A replica of the webhook, by the name of its Lease.
    WebhookReplica(String, Box<ReplicaStatus>),
    WebhookReplicaGone(String),
    /// The API server's release.
    Release(Release),
    /// An admission policy of Croft's or its binding, by kind and name.
    AdmissionPolicy(&'static str, String, Box<Value>),
    AdmissionPolicyGone(&'static str, String),
    /// An object that Croft keeps in a tenant's namespace.
    TenantObject(ObjectKind, Box<Value>),
    TenantObjectGone(ObjectKey),
    /// The API server refused a pod of this namespace for the namespace's share of its tenant's quota.
    ShareExceeded(String),
    /// The event that says so has expired.
    ShareExceededGone(String),
    /// An object in a fresh list. It replaces what is held, whatever the versions: after a restore from a backup
    /// versions go back, and deleted objects exist again.
    Listed(Box<Change>),
    /// An object of Croft's whose stored spec can't be read or breaks a rule: its newest metadata and status, with a
    /// harmless spec. An earlier version that is held stays in force.
    Unread(Box<Change>, Box<Flaw>),
    /// The object with this uid was deleted. A later object of the same name has another uid, and stays.
    Gone(Box<str>, Box<Change>),
    /// The first full list of one kind is complete.
    Synced(&'static str),
}

impl Change {
    /// True for what concerns the enforcement of tenancy alone, so that the snapshot has no use for it.
    #[must_use]
    pub fn is_about_enforcement(&self) -> bool {
        match self {
            Self::WebhookReplica(..)
            | Self::WebhookReplicaGone(_)
            | Self::AdmissionPolicy(..)
            | Self::AdmissionPolicyGone(..)
            | Self::TenantObject(..)
            | Self::TenantObjectGone(_)
            | Self::ShareExceeded(_)
            | Self::ShareExceededGone(_) => true,
            Self::Listed(change) | Self::Gone(_, change) => change.is_about_enforcement(),
            _ => false,
        }
    }
}
