//! Watches: turns events of the API server into changes. The whole objects are dropped right after.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use croft_api::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
    convert::given,
    stored::{self, Checked, Stored, Unread},
};
use croft_policy::replica_status::ReplicaStatus;
use croft_runtime::{kubernetes, restore::Restores};
use futures::StreamExt;
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::DaemonSet,
    coordination::v1::Lease,
    core::v1::{
        Event as CoreEvent, LimitRange, Namespace, PersistentVolume, PersistentVolumeClaim, Pod,
        ResourceQuota,
    },
    networking::v1::NetworkPolicy,
    node::v1::RuntimeClass,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
    storage::v1::{CSINode, StorageClass, VolumeAttachment},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::mpsc, task::JoinSet};

use crate::kube_api::{
    Change, Kind, Object, ObjectId, ObjectKind, Selector, Version,
    trim::{trim, trim_node},
};

/// Changes that may wait in one channel. Beyond that the watches wait, and the API server buffers.
pub(crate) const QUEUE: usize = 1_024;
/// Between two reads of the API server's release.
const RELEASE_EVERY: Duration = Duration::from_secs(60);
/// Objects per page of a first list.
const PAGE: u32 = 500;

type Name = (String, String);

/// Watches, and where their changes go.
struct Watches {
    client: Client,
    sender: mpsc::Sender<Change>,
    /// After one of them everything is listed again.
    restores: Restores,
    tasks: JoinSet<()>,
}

/// Watches every kind of the table, until the tasks are dropped. Croft itself is in `namespace`. After one of the
/// `restores` everything is listed again.
#[must_use]
pub fn watch_all(
    client: &Client,
    namespace: &str,
    restores: &Restores,
) -> (mpsc::Receiver<Change>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut watches =
        Watches { client: client.clone(), sender, restores: restores.clone(), tasks: JoinSet::new() };
    for kind in Kind::all() {
        watches.start(kind, namespace);
    }
    watches.tasks.spawn(follow_release(client.clone(), watches.sender));
    (receiver, watches.tasks)
}

/// Reads the API server's release now and then: a control plane is upgraded while the controller runs.
async fn follow_release(client: Client, sender: mpsc::Sender<Change>) {
    let mut last = None;
    loop {
        match kubernetes::release(&client).await {
            Ok(release) if last != Some(release) => {
                last = Some(release);
                if sender.send(Change::Release(release)).await.is_err() {
                    return;
                }
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "failed to read the release"),
        }
        tokio::time::sleep(RELEASE_EVERY).await;
    }
}

impl Watches {
    /// Starts the watch of a kind. Croft itself is in `namespace`.
    fn start(&mut self, kind: Kind, namespace: &str) {
        match kind {
            Kind::Pod => self.follow_all::<Pod>(kind),
            Kind::Node => self.follow(kind, |node| Some(Version::new(Box::new(trim_node(node))))),
            Kind::NodeClaim => self.follow_own::<NodeClaim>(kind),
            Kind::TenantPool => self.follow_own::<TenantPool>(kind),
            Kind::EC2NodeClass => self.follow_own::<EC2NodeClass>(kind),
            Kind::Tenant => self.follow_own::<Tenant>(kind),
            Kind::CroftConfig => self.follow_own::<CroftConfig>(kind),
            Kind::Namespace => self.follow(kind, |object: PartialObjectMeta<Namespace>| {
                let namespace = Namespace { metadata: object.metadata, ..Namespace::default() };
                Some(Version::new(Box::new(namespace)))
            }),
            Kind::DaemonSet => self.follow_all::<DaemonSet>(kind),
            Kind::LimitRange => self.follow_all::<LimitRange>(kind),
            Kind::RuntimeClass => self.follow_all::<RuntimeClass>(kind),
            Kind::PersistentVolumeClaim => self.follow_all::<PersistentVolumeClaim>(kind),
            Kind::PersistentVolume => self.follow_all::<PersistentVolume>(kind),
            Kind::StorageClass => self.follow_all::<StorageClass>(kind),
            Kind::CSINode => self.follow_all::<CSINode>(kind),
            Kind::VolumeAttachment => self.follow_all::<VolumeAttachment>(kind),
            Kind::PodDisruptionBudget => self.follow_all::<PodDisruptionBudget>(kind),
            Kind::WebhookReplica => {
                let leases = Api::<Lease>::namespaced(self.client.clone(), namespace);
                self.follow_in(leases, kind, |lease| {
                    let status = Box::new(ReplicaStatus::read(lease.annotations()));
                    Some(Version::new(Object::WebhookReplica(lease.name_any(), status)))
                });
            }
            Kind::ValidatingAdmissionPolicy => self.follow_json::<ValidatingAdmissionPolicy>(kind),
            Kind::ValidatingAdmissionPolicyBinding => {
                self.follow_json::<ValidatingAdmissionPolicyBinding>(kind);
            }
            Kind::TenantObject(object) => match object {
                ObjectKind::NetworkPolicy => self.follow_json::<NetworkPolicy>(kind),
                ObjectKind::ResourceQuota => self.follow_json::<ResourceQuota>(kind),
                ObjectKind::LimitRange => self.follow_json::<LimitRange>(kind),
                ObjectKind::RoleBinding => self.follow_json::<RoleBinding>(kind),
                ObjectKind::ClusterRoleBinding => self.follow_json::<ClusterRoleBinding>(kind),
            },
            Kind::Event => {
                // Of pods that were refused for a share of their tenant's quota. Other events aren't sent.
                let share = given::share_name();
                self.follow(kind, move |event: CoreEvent| {
                    let is_share = event.message.as_deref().is_some_and(|message| message.contains(&share));
                    is_share.then_some(())?;
                    Some(Version::new(Object::ShareExceeded(event.involved_object.namespace?)))
                });
            }
        }
    }

    /// Watches a kind whose objects are compared as JSON.
    fn follow_json<K: Watched + Serialize>(&mut self, kind: Kind) {
        self.follow(kind, move |object: K| {
            Some(Version::new(Object::Json(kind, Box::new(serde_json::to_value(object).ok()?))))
        });
    }

    /// Watches a kind of Croft's. Each object is read on its own, so that an invalid one affects no other.
    fn follow_own<K: stored::Kind + Send + 'static>(&mut self, kind: Kind)
    where
        Box<K>: Into<Object>,
    {
        let mut checked = Checked::default();
        self.follow(kind, move |stored: Stored<K>| match stored.read(&mut checked) {
            Ok(object) => Some(Version::new(Box::new(object))),
            Err(unread) => {
                let Unread { stand_in, flaw } = *unread;
                Some(Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(stand_in?)) })
            }
        });
    }

    /// Watches a kind whose objects are sent as they are.
    fn follow_all<K: Watched>(&mut self, kind: Kind)
    where
        Box<K>: Into<Object>,
    {
        self.follow(kind, |object: K| Some(Version::new(Box::new(object))));
    }

    fn follow<K: Watched>(&mut self, kind: Kind, read: impl FnMut(K) -> Option<Version> + Send + 'static) {
        self.follow_in(Api::all(self.client.clone()), kind, read);
    }

    fn follow_in<K: Watched>(
        &mut self,
        api: Api<K>,
        kind: Kind,
        read: impl FnMut(K) -> Option<Version> + Send + 'static,
    ) {
        self.tasks.spawn(follow(api, kind, read, self.sender.clone(), self.restores.clone()));
    }
}

/// A type that can be watched.
trait Watched: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static> Watched for K {}

/// The part of a kind's objects that is watched.
fn config(kind: Kind) -> watcher::Config {
    let all = watcher::Config::default().page_size(PAGE);
    match kind.selector() {
        Selector::All => all,
        Selector::Fields(fields) => all.fields(fields),
        Selector::Label(label) => all.labels(label),
        Selector::LabelIs(label, value) => all.labels(&format!("{label}={value}")),
    }
}

async fn follow<K: Watched>(
    api: Api<K>,
    kind: Kind,
    mut read: impl FnMut(K) -> Option<Version> + Send,
    sender: mpsc::Sender<Change>,
    mut restores: Restores,
) {
    let watch = || watcher::watcher(api.clone(), config(kind)).default_backoff().boxed();
    let mut stream = watch();
    let mut held: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let mut listed: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let gone = |(namespace, name): Name, uid: Box<str>| {
        Change::Gone(ObjectId { kind, namespace, name, uid: Some(uid) })
    };
    let mut read = |object| read(trim(object));
    loop {
        let event = tokio::select! {
            () = restores.next() => {
                stream = watch();
                continue;
            }
            event = stream.next() => event,
        };
        let Some(event) = event else { return };
        let changes = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(name(&object), uid(&object));
                read(object).map(|version| Change::Version(version.listed())).into_iter().collect()
            }
            Ok(Event::InitDone) => {
                // Objects that the new list lacks were deleted while the watch was interrupted.
                let before = std::mem::replace(&mut held, std::mem::take(&mut listed));
                let lost = before.into_iter().filter(|(name, _)| !held.contains_key(name));
                let mut changes: Vec<_> = lost.map(|(name, uid)| gone(name, uid)).collect();
                changes.push(Change::Synced(kind));
                changes
            }
            Ok(Event::Apply(object)) => {
                held.insert(name(&object), uid(&object));
                read(object).map(Change::Version).into_iter().collect()
            }
            Ok(Event::Delete(object)) => {
                let (name, uid) = (name(&object), uid(&object));
                held.remove(&name);
                vec![gone(name, uid)]
            }
            Err(error) => {
                tracing::warn!(%error, kind = kind.name(), "the watch failed and is restarted");
                Vec::new()
            }
        };
        for change in changes {
            if sender.send(change).await.is_err() {
                return;
            }
        }
    }
}

fn uid<K: Resource>(object: &K) -> Box<str> {
    object.uid().unwrap_or_default().into()
}

fn name<K: Resource>(object: &K) -> Name {
    (object.namespace().unwrap_or_default(), object.name_any())
}
