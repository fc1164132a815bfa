//! Watches: turns events of the API server into changes. The whole objects are dropped right after.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use croft_api::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
    convert::given,
    stored::{Checked, Kind, Stored, Unread},
};
use croft_policy::{
    definitions::{REPLICA_LABEL, TENANT_LABEL},
    replica_status::{ReplicaStatus, WEBHOOK},
};
use croft_runtime::{kubernetes, restore::Restores};
use croft_scheduler::PodKey;
use futures::StreamExt;
use k8s_openapi::{
    ClusterResourceScope,
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::DaemonSet,
        coordination::v1::Lease,
        core::v1::{
            Event as CoreEvent, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
            ResourceQuota,
        },
        networking::v1::NetworkPolicy,
        node::v1::RuntimeClass,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRoleBinding, RoleBinding},
        storage::v1::{CSINode, StorageClass, VolumeAttachment},
    },
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
    ANY_LIMIT_RANGE, Change, ObjectKey, ObjectKind, WEBHOOK_REPLICA,
    trim::{trim, trim_node},
};

/// Changes that may wait in one channel. Beyond that the watches wait, and the API server buffers.
pub(crate) const QUEUE: usize = 1_024;
/// Between two reads of the API server's release.
const RELEASE_EVERY: Duration = Duration::from_secs(60);
/// Objects per page of a first list.
const PAGE: u32 = 500;

type Name = (String, String);
/// Where the changes of a watch go, and what makes it begin again.
type Ends = (mpsc::Sender<Change>, Restores);

/// Watches every kind that deciders read, until the tasks are dropped. Croft itself is in `namespace`. After one of the
/// `restores` everything is listed again.
#[must_use]
pub fn watch_all(
    client: &Client,
    namespace: &str,
    restores: &Restores,
) -> (mpsc::Receiver<Change>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let list = || watcher::Config::default().page_size(PAGE);
    // Finished pods need no node: leaving them out keeps finished Jobs from filling the memory.
    let unfinished = list().fields("status.phase!=Succeeded,status.phase!=Failed");
    macro_rules! watch {
        ($kind:ty, $name:literal, $config:expr, $change:expr, $gone:expr) => {
            tasks.spawn(follow::<$kind>(
                Api::all(client.clone()),
                $config,
                $name,
                |o| Some($change(Box::new(o))),
                $gone,
                (sender.clone(), restores.clone()),
            ));
        };
    }
    watch!(Pod, "Pod", unfinished, Change::Pod, |(ns, name)| Change::PodGone(PodKey::new(&ns, &name)));
    watch!(Node, "Node", list(), |node: Box<Node>| Change::Node(Box::new(trim_node(*node))), |(_, name)| {
        Change::NodeGone(name)
    });
    macro_rules! watch_own {
        ($kind:ty, $name:literal, $change:expr, $gone:expr) => {
            let mut checked = Checked::default();
            let read = move |stored: Stored<$kind>| own_change(stored, &mut checked, $change);
            let api = Api::all(client.clone());
            let ends = (sender.clone(), restores.clone());
            tasks.spawn(follow::<Stored<$kind>>(api, list(), $name, read, $gone, ends));
        };
    }
    watch_own!(NodeClaim, "NodeClaim", Change::Claim, |(_, name)| Change::ClaimGone(name));
    watch_own!(TenantPool, "TenantPool", Change::Pool, |(_, name)| Change::PoolGone(name));
    watch_own!(EC2NodeClass, "EC2NodeClass", Change::Class, |(_, name)| Change::ClassGone(name));
    watch_own!(Tenant, "Tenant", Change::Tenant, |(_, name)| Change::TenantGone(name));
    watch_own!(CroftConfig, "CroftConfig", Change::Config, |(_, name)| Change::ConfigGone(name));
    watch!(DaemonSet, "DaemonSet", list(), Change::DaemonSet, |(ns, name)| Change::DaemonSetGone(ns, name));
    watch!(PersistentVolumeClaim, "PersistentVolumeClaim", list(), Change::Pvc, |(ns, name)| {
        Change::PvcGone(ns, name)
    });
    watch!(PersistentVolume, "PersistentVolume", list(), Change::Pv, |(_, name)| Change::PvGone(name));
    watch!(StorageClass, "StorageClass", list(), Change::StorageClass, |(_, name)| {
        Change::StorageClassGone(name)
    });
    watch!(CSINode, "CSINode", list(), Change::CsiNode, |(_, name)| Change::CsiNodeGone(name));
    watch!(VolumeAttachment, "VolumeAttachment", list(), Change::Attachment, |(_, name)| {
        Change::AttachmentGone(name)
    });
    watch!(PodDisruptionBudget, "PodDisruptionBudget", list(), Change::Budget, |(ns, name)| {
        Change::BudgetGone(ns, name)
    });
    tasks.spawn(follow::<PartialObjectMeta<Namespace>>(
        Api::all(client.clone()),
        list(),
        "Namespace",
        |o| Some(Change::Namespace(Box::new(Namespace { metadata: o.metadata, ..Namespace::default() }))),
        |(_, name)| Change::NamespaceGone(name),
        (sender.clone(), restores.clone()),
    ));
    tasks.spawn(follow::<Lease>(
        Api::namespaced(client.clone(), namespace),
        list().labels(&format!("{REPLICA_LABEL}={WEBHOOK}")),
        WEBHOOK_REPLICA,
        |lease| {
            Some(Change::WebhookReplica(lease.name_any(), Box::new(ReplicaStatus::read(lease.annotations()))))
        },
        |(_, name)| Change::WebhookReplicaGone(name),
        (sender.clone(), restores.clone()),
    ));
    tasks.spawn(follow_release(client.clone(), sender.clone()));
    let ends = || (sender.clone(), restores.clone());
    watch_tenant_objects(client, &mut tasks, &ends);
    watch_pod_defaults(client, &mut tasks, &ends);
    tasks.spawn(follow_policies::<ValidatingAdmissionPolicy>(client, (sender.clone(), restores.clone())));
    tasks.spawn(follow_policies::<ValidatingAdmissionPolicyBinding>(client, (sender, restores.clone())));
    (receiver, tasks)
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

/// Watches what admission adds to the requests of agents' pods.
fn watch_pod_defaults(client: &Client, tasks: &mut JoinSet<()>, ends: &impl Fn() -> Ends) {
    let list = || watcher::Config::default().page_size(PAGE);
    tasks.spawn(follow::<LimitRange>(
        Api::all(client.clone()),
        list(),
        ANY_LIMIT_RANGE,
        |range| Some(Change::LimitRange(Box::new(range))),
        |(namespace, name)| Change::LimitRangeGone(namespace, name),
        ends(),
    ));
    tasks.spawn(follow::<RuntimeClass>(
        Api::all(client.clone()),
        list(),
        "RuntimeClass",
        |class| Some(Change::RuntimeClass(Box::new(class))),
        |(_, name)| Change::RuntimeClassGone(name),
        ends(),
    ));
}

/// Watches what Croft keeps in tenants' namespaces.
fn watch_tenant_objects(client: &Client, tasks: &mut JoinSet<()>, ends: &impl Fn() -> Ends) {
    tasks.spawn(follow_tenant_objects::<NetworkPolicy>(client, ObjectKind::NetworkPolicy, ends()));
    tasks.spawn(follow_tenant_objects::<ResourceQuota>(client, ObjectKind::ResourceQuota, ends()));
    tasks.spawn(follow_tenant_objects::<LimitRange>(client, ObjectKind::LimitRange, ends()));
    tasks.spawn(follow_tenant_objects::<RoleBinding>(client, ObjectKind::RoleBinding, ends()));
    tasks.spawn(follow_tenant_objects::<ClusterRoleBinding>(client, ObjectKind::ClusterRoleBinding, ends()));
    tasks.spawn(follow_refusals(client, ends()));
}

/// Watches admission policies of Croft, or their bindings.
fn follow_policies<K>(client: &Client, ends: Ends) -> impl Future<Output = ()> + use<K>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>
        + k8s_openapi::Resource
        + Clone
        + Serialize
        + DeserializeOwned
        + Debug
        + Send
        + 'static,
{
    let config = watcher::Config::default().page_size(PAGE).labels("app.kubernetes.io/part-of=croft");
    follow::<K>(
        Api::all(client.clone()),
        config,
        K::KIND,
        |object| {
            let name = object.name_any();
            let value = serde_json::to_value(object).ok()?;
            Some(Change::AdmissionPolicy(K::KIND, name, Box::new(value)))
        },
        |(_, name)| Change::AdmissionPolicyGone(K::KIND, name),
        ends,
    )
}

/// Watches the objects of a kind that Croft keeps in tenants' namespaces. Those of others have no such label, and aren't
/// read.
fn follow_tenant_objects<K>(
    client: &Client,
    kind: ObjectKind,
    ends: Ends,
) -> impl Future<Output = ()> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug + Send + 'static,
{
    follow::<K>(
        Api::all(client.clone()),
        watcher::Config::default().page_size(PAGE).labels(TENANT_LABEL),
        kind.name(),
        move |object| Some(Change::TenantObject(kind, Box::new(serde_json::to_value(object).ok()?))),
        move |(namespace, name)| Change::TenantObjectGone(ObjectKey { kind, namespace, name }),
        ends,
    )
}

/// Watches for pods that the API server refused for a share of a tenant's quota: ReplicaSets, Jobs and the like say so in
/// events. Those of other reasons aren't sent.
fn follow_refusals(client: &Client, ends: Ends) -> impl Future<Output = ()> + use<> {
    let share = given::share_name();
    follow::<CoreEvent>(
        Api::all(client.clone()),
        watcher::Config::default().page_size(PAGE).fields("reason=FailedCreate"),
        "Event",
        move |event| {
            let is_share = event.message.as_deref().is_some_and(|message| message.contains(&share));
            is_share.then_some(())?;
            Some(Change::ShareExceeded(event.involved_object.namespace?))
        },
        |(namespace, _)| Change::ShareExceededGone(namespace),
        ends,
    )
}

/// A change of one of Croft's objects. Each object is read on its own, so that an invalid one affects no other.
fn own_change<K: Kind>(
    stored: Stored<K>,
    checked: &mut Checked,
    change: fn(Box<K>) -> Change,
) -> Option<Change> {
    match stored.read(checked) {
        Ok(object) => Some(change(Box::new(object))),
        Err(unread) => {
            let Unread { stand_in, flaw } = *unread;
            let stand_in = change(Box::new(stand_in?));
            Some(Change::Unread(Box::new(stand_in), Box::new(flaw)))
        }
    }
}

async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: &'static str,
    mut change: impl FnMut(K) -> Option<Change> + Send,
    gone: impl Fn(Name) -> Change + Send,
    (sender, mut restores): Ends,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let watch = || watcher::watcher(api.clone(), config.clone()).default_backoff().boxed();
    let mut stream = watch();
    let mut held: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let mut listed: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let gone = |name: Name, uid: Box<str>| Change::Gone(uid, Box::new(gone(name)));
    let mut change = |object| change(trim(object));
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
                change(object).map(|change| Change::Listed(Box::new(change))).into_iter().collect()
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
                change(object).into_iter().collect()
            }
            Ok(Event::Delete(object)) => {
                let (name, uid) = (name(&object), uid(&object));
                held.remove(&name);
                vec![gone(name, uid)]
            }
            Err(error) => {
                tracing::warn!(%error, kind, "the watch failed and is restarted");
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
