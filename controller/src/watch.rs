//! Watches: what is new in the API server, as changes; the whole objects are dropped right after.

use std::{collections::BTreeMap, fmt::Debug, pin::pin};

use croft_api::{EC2NodeClass, NodeClaim, Tenant, TenantPool};
use croft_scheduler::PodKey;
use futures::StreamExt;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod},
    policy::v1::PodDisruptionBudget,
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
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    snapshot::Change,
    trim::{trim, trim_node},
};

/// Changes that may wait in one channel. Beyond it the watches wait, and the API server keeps what is new for them.
pub(crate) const QUEUE: usize = 1_024;
/// Objects per page of a first list.
const PAGE: u32 = 500;

type Name = (String, String);

/// Watches everything that decisions read, until the tasks are dropped.
#[must_use]
pub fn everything(client: &Client) -> (mpsc::Receiver<Change>, JoinSet<()>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let quick = || watcher::Config::default().page_size(PAGE);
    // What has ended needs no place: leaving it out keeps finished Jobs from filling the memory.
    let alive = quick().fields("status.phase!=Succeeded,status.phase!=Failed");
    macro_rules! watch {
        ($kind:ty, $name:literal, $config:expr, $change:expr, $gone:expr) => {
            tasks.spawn(follow::<$kind>(
                Api::all(client.clone()),
                $config,
                $name,
                |o| $change(Box::new(o)),
                $gone,
                sender.clone(),
            ));
        };
    }
    watch!(Pod, "Pod", alive, Change::Pod, |(ns, name)| Change::PodGone(PodKey::new(&ns, &name)));
    watch!(Node, "Node", quick(), |node: Box<Node>| Change::Node(Box::new(trim_node(*node))), |(_, name)| {
        Change::NodeGone(name)
    });
    watch!(NodeClaim, "NodeClaim", quick(), Change::Claim, |(_, name)| Change::ClaimGone(name));
    watch!(TenantPool, "TenantPool", quick(), Change::Pool, |(_, name)| Change::PoolGone(name));
    watch!(EC2NodeClass, "EC2NodeClass", quick(), Change::Class, |(_, name)| Change::ClassGone(name));
    watch!(Tenant, "Tenant", quick(), Change::Tenant, |(_, name)| Change::TenantGone(name));
    watch!(DaemonSet, "DaemonSet", quick(), Change::DaemonSet, |(ns, name)| Change::DaemonSetGone(ns, name));
    watch!(PersistentVolumeClaim, "PersistentVolumeClaim", quick(), Change::Pvc, |(ns, name)| {
        Change::PvcGone(ns, name)
    });
    watch!(PersistentVolume, "PersistentVolume", quick(), Change::Pv, |(_, name)| Change::PvGone(name));
    watch!(StorageClass, "StorageClass", quick(), Change::StorageClass, |(_, name)| {
        Change::StorageClassGone(name)
    });
    watch!(CSINode, "CSINode", quick(), Change::CsiNode, |(_, name)| Change::CsiNodeGone(name));
    watch!(VolumeAttachment, "VolumeAttachment", quick(), Change::Attachment, |(_, name)| {
        Change::AttachmentGone(name)
    });
    watch!(PodDisruptionBudget, "PodDisruptionBudget", quick(), Change::Budget, |(ns, name)| {
        Change::BudgetGone(ns, name)
    });
    tasks.spawn(follow::<PartialObjectMeta<Namespace>>(
        Api::all(client.clone()),
        quick(),
        "Namespace",
        |o| Change::Namespace(Box::new(Namespace { metadata: o.metadata, ..Namespace::default() })),
        |(_, name)| Change::NamespaceGone(name),
        sender,
    ));
    (receiver, tasks)
}

async fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    kind: &'static str,
    change: impl Fn(K) -> Change + Send,
    gone: impl Fn(Name) -> Change + Send,
    sender: mpsc::Sender<Change>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut stream = pin!(watcher::watcher(api, config).default_backoff());
    let mut held: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let mut listed: BTreeMap<Name, Box<str>> = BTreeMap::new();
    let gone = |name: Name, uid: Box<str>| Change::Gone(uid, Box::new(gone(name)));
    let change = |object| change(trim(object));
    while let Some(event) = stream.next().await {
        let changes = match event {
            Ok(Event::Init) => {
                listed.clear();
                Vec::new()
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(name(&object), uid(&object));
                vec![Change::Listed(Box::new(change(object)))]
            }
            Ok(Event::InitDone) => {
                // What the new list lacks was deleted while nobody watched.
                let before = std::mem::replace(&mut held, std::mem::take(&mut listed));
                let lost = before.into_iter().filter(|(name, _)| !held.contains_key(name));
                let mut changes: Vec<_> = lost.map(|(name, uid)| gone(name, uid)).collect();
                changes.push(Change::Synced(kind));
                changes
            }
            Ok(Event::Apply(object)) => {
                held.insert(name(&object), uid(&object));
                vec![change(object)]
            }
            Ok(Event::Delete(object)) => {
                let (name, uid) = (name(&object), uid(&object));
                held.remove(&name);
                vec![gone(name, uid)]
            }
            Err(error) => {
                tracing::warn!(%error, kind, "watch broken; it is begun again");
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
