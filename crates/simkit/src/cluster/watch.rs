//! Watches of a process: lists and logs of the store, late and broken at times.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::Tenant;
use croft_controller::kube_api::{Change, Kind, ObjectId, Response, Version};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    policy::v1::PodDisruptionBudget,
    storage::v1::VolumeAttachment,
};
use serde_json::Value;
use tokio::{sync::mpsc, time::sleep};

use super::{
    environment::{Environment, Links},
    store::{Id, answer, read},
    volumes::ATTACHMENT,
};
use crate::random::Random;

/// Kinds that the models have objects of. The lists of the controller's other kinds are empty and complete at once.
const MODELLED: [&str; 12] = [
    "Pod",
    "DaemonSet",
    "Node",
    "NodeClaim",
    "TenantPool",
    "EC2NodeClass",
    "Tenant",
    "CroftConfig",
    "PodDisruptionBudget",
    "PersistentVolumeClaim",
    "PersistentVolume",
    ATTACHMENT,
];
/// The kinds among them that only workloads with volumes have.
const OF_VOLUMES: [&str; 3] = ["PersistentVolumeClaim", "PersistentVolume", ATTACHMENT];

/// The bit of a kind in the watches that show nothing new.
pub(crate) fn bit(kind: &str) -> u64 {
    MODELLED.iter().position(|modelled| *modelled == kind).map_or(0, |at| 1 << at)
}

/// True if objects of `kind` are listed and watched.
pub(crate) fn is_modelled(kind: &str) -> bool {
    MODELLED.contains(&kind)
}

/// True if only workloads with volumes have objects of `kind`.
pub(crate) fn is_of_volumes(kind: &str) -> bool {
    OF_VOLUMES.contains(&kind)
}

/// Lists one kind, then follows the log with delays. Starts again when the log is cut and when the connection breaks.
pub(crate) async fn watch(
    environment: Arc<Environment>,
    links: Arc<Links>,
    watched: Kind,
    sender: mpsc::Sender<Change>,
    mut random: Random,
) {
    let kind = watched.name();
    let mut held: BTreeMap<Id, Box<str>> = BTreeMap::new();
    loop {
        while environment.is_api_cut(&links) {
            sleep(Duration::from_millis(200)).await;
        }
        let (listed, mut position, era) = {
            let store = environment.store.lock().unwrap();
            let listed: Vec<(Id, Arc<Value>)> =
                store.of_kind(kind).map(|(id, o)| (id.clone(), o.clone())).collect();
            (listed, store.end(), store.era)
        };
        // A large list takes seconds at times, page after page of one moment.
        sleep(Duration::from_millis(environment.delay(1, 50))).await;
        let now: BTreeMap<Id, Box<str>> = listed.iter().map(|(id, o)| (id.clone(), uid(o))).collect();
        let mut changes: Vec<Change> =
            listed.iter().map(|(id, object)| Change::Version(applied(id, object).listed())).collect();
        // As a client does: what is listed isn't held when it has been read.
        drop(listed);
        changes.extend(
            held.iter().filter(|(id, _)| !now.contains_key(*id)).map(|(id, uid)| gone(watched, id, uid)),
        );
        changes.push(Change::Synced(watched));
        if kind == ATTACHMENT {
            let (ms, mut shown) = (environment.now_ms(), links.attachments.lock().unwrap());
            let before = std::mem::take(&mut *shown);
            shown.extend(now.keys().map(|id| (id.2.clone(), before.get(&id.2).copied().unwrap_or(ms))));
        }
        held = now;
        for change in changes {
            if sender.send(change).await.is_err() {
                return;
            }
        }
        loop {
            let fresh = {
                let store = environment.store.lock().unwrap();
                if store.era != era || environment.is_api_cut(&links) {
                    break;
                }
                let fresh: Vec<_> = store.since(position).filter(|l| l.id.0 == kind).cloned().collect();
                position = store.end();
                fresh
            };
            if fresh.is_empty() {
                environment.changed.notified().await;
                continue;
            }
            sleep(Duration::from_millis(environment.delay(0, 60))).await;
            while links.is_stalled(bit(kind)) {
                sleep(Duration::from_millis(200)).await;
            }
            for logged in fresh {
                if kind == ATTACHMENT {
                    links.show_attachment(&logged.id.2, !logged.deleted, environment.now_ms());
                }
                let change = if logged.deleted {
                    held.remove(&logged.id);
                    gone(watched, &logged.id, &uid(&logged.object))
                } else {
                    held.insert(logged.id.clone(), uid(&logged.object));
                    Change::Version(applied(&logged.id, &logged.object))
                };
                if sender.send(change).await.is_err() {
                    return;
                }
            }
            if random.permille(2) {
                break;
            }
        }
        // The connection is broken, and a while passes unwatched.
        sleep(Duration::from_millis(random.between(500, 3_000))).await;
    }
}

fn applied(id: &Id, object: &Value) -> Version {
    match answer(id, object) {
        Response::Claim(o) => Version::new(o),
        Response::Pool(o) => Version::new(o),
        Response::Class(o) => Version::new(o),
        Response::Node(o) => Version::new(o),
        Response::Pod(o) => Version::new(o),
        Response::Config(o) => Version::new(o),
        Response::Done if id.0 == "PodDisruptionBudget" => Version::new(read::<PodDisruptionBudget>(object)),
        Response::Done if id.0 == "DaemonSet" => Version::new(read::<DaemonSet>(object)),
        Response::Done if id.0 == "PersistentVolumeClaim" => {
            Version::new(read::<PersistentVolumeClaim>(object))
        }
        Response::Done if id.0 == "PersistentVolume" => Version::new(read::<PersistentVolume>(object)),
        Response::Done if id.0 == ATTACHMENT => Version::new(read::<VolumeAttachment>(object)),
        Response::RecordSlot { .. } | Response::Done => Version::new(read::<Tenant>(object)),
    }
}

fn uid(object: &Value) -> Box<str> {
    object["metadata"]["uid"].as_str().unwrap_or_default().into()
}

fn gone(kind: Kind, id: &Id, uid: &str) -> Change {
    Change::Gone(ObjectId::new(kind, &id.1, &id.2).with_uid(uid))
}
