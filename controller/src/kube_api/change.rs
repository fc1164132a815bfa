//! Changes of objects, as watches and responses report them.

use croft_api::{CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool, stored::Flaw};
use croft_policy::replica_status::ReplicaStatus;
use croft_runtime::kubernetes::Release;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
        node::v1::RuntimeClass,
        policy::v1::PodDisruptionBudget,
        storage::v1::{CSINode, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;
use serde_json::Value;

use crate::kube_api::Kind;

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    /// An object was created or changed, or is in a list.
    Version(Version),
    /// An object was deleted.
    Gone(ObjectId),
    /// The first full list of a kind is complete.
    Synced(Kind),
    /// The API server has this release.
    Release(Release),
}

/// The newest version of an object.
#[derive(Clone, Debug)]
pub struct Version {
    /// The object.
    pub object: Object,
    /// It is in a fresh list. It replaces what is held, whatever the versions: after a restore from a backup versions go
    /// back, and deleted objects exist again.
    pub listed: bool,
    /// Why its stored spec can't be read, or the rule that it breaks. Then `object` has its metadata and status with a
    /// harmless spec, and an earlier version that is held stays in force.
    pub flaw: Option<Box<Flaw>>,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectId {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty if the kind is cluster-scoped.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: a later object of the same name has another. `None` is for whichever object has the name.
    pub uid: Option<Box<str>>,
}

impl ObjectId {
    /// Whichever object has the name.
    #[must_use]
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned(), uid: None }
    }

    /// The object of this uid.
    #[must_use]
    pub fn with_uid(self, uid: &str) -> Self {
        Self { uid: Some(uid.into()), ..self }
    }
}

macro_rules! objects {
    ($($kind:ident($type:ty)),+ $(,)?) => {
        /// An object, with the fields that deciders read.
        #[derive(Clone, Debug, Serialize)]
        #[serde(untagged)]
        pub enum Object {
            $(#[doc = concat!("Of the kind ", stringify!($kind), ".")] $kind(Box<$type>),)+
            /// The status of a replica of the webhook, by the name of its Lease.
            #[serde(skip)]
            WebhookReplica(String, Box<ReplicaStatus>),
            /// An object that is compared as JSON with what Croft would write: an admission policy of Croft's, its binding,
            /// or what Croft keeps for a tenant.
            #[serde(skip)]
            Json(Kind, Box<Value>),
            /// The API server refused a pod of this namespace for the namespace's share of its tenant's quota.
            #[serde(skip)]
            ShareExceeded(String),
        }

        impl Object {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)+
                    Self::WebhookReplica(..) => Kind::WebhookReplica,
                    Self::Json(kind, _) => *kind,
                    Self::ShareExceeded(_) => Kind::Event,
                }
            }

            /// Its metadata; `None` for kinds that only decisions about tenancy read.
            #[must_use]
            pub fn metadata(&self) -> Option<&ObjectMeta> {
                match self {
                    $(Self::$kind(object) => Some(&object.metadata),)+
                    _ => None,
                }
            }
        }

        $(
            impl From<Box<$type>> for Object {
                fn from(object: Box<$type>) -> Self {
                    Self::$kind(object)
                }
            }

            impl From<Box<$type>> for Change {
                fn from(object: Box<$type>) -> Self {
                    Object::from(object).into()
                }
            }

            impl From<$type> for Change {
                fn from(object: $type) -> Self {
                    Box::new(object).into()
                }
            }
        )+
    };
}

objects! {
    Pod(Pod),
    Node(Node),
    NodeClaim(NodeClaim),
    TenantPool(TenantPool),
    EC2NodeClass(EC2NodeClass),
    Tenant(Tenant),
    CroftConfig(CroftConfig),
    Namespace(Namespace),
    DaemonSet(DaemonSet),
    LimitRange(LimitRange),
    RuntimeClass(RuntimeClass),
    PersistentVolumeClaim(PersistentVolumeClaim),
    PersistentVolume(PersistentVolume),
    StorageClass(StorageClass),
    CSINode(CSINode),
    VolumeAttachment(VolumeAttachment),
    PodDisruptionBudget(PodDisruptionBudget),
}

impl Object {
    /// Its name in its metadata; empty without.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
    }

    /// Its uid in its metadata; empty without.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata().and_then(|metadata| metadata.uid.as_deref()).unwrap_or_default()
    }
}

impl Version {
    /// The object as a watch shows it after a change, or a response.
    #[must_use]
    pub fn new(object: impl Into<Object>) -> Self {
        Self { object: object.into(), listed: false, flaw: None }
    }

    /// The same in a fresh list.
    #[must_use]
    pub fn listed(self) -> Self {
        Self { listed: true, ..self }
    }
}

impl From<Object> for Change {
    fn from(object: Object) -> Self {
        Self::Version(Version::new(object))
    }
}

impl Change {
    /// True for what concerns tenancy alone, so that the snapshot has no use for it.
    #[must_use]
    pub const fn is_about_tenancy(&self) -> bool {
        match self {
            Self::Version(version) => !version.object.kind().is_awaited_by_capacity(),
            Self::Gone(id) => !id.kind.is_awaited_by_capacity(),
            Self::Synced(_) | Self::Release(_) => false,
        }
    }
}
