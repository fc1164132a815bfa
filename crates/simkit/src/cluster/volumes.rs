//! Volumes of StatefulSets: their claims, zonal volumes bound from the start, and what the attach/detach controller of
//! kube-controller-manager and the driver do. A pod starts whether or not its volume is attached yet.

use std::collections::{BTreeMap, BTreeSet};

use croft_ec2_sim::world::World;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    daemonset::is_of_daemonset,
    index::{ClusterIndex, ZONE},
    kubelet::REGION,
    model::Tick,
    store::{Id, Store, cluster_id},
    workload::Workload,
};

/// The kind of objects that say which volume is attached to which node.
pub(crate) const ATTACHMENT: &str = "VolumeAttachment";
/// From the end of the last pod that uses a volume on a node until it is detached, in milliseconds.
const DETACH_MS: (u64, u64) = (1_000, 60_000);
/// How many of a thousand detachments come to no end while the node is there: the driver hangs.
const HANG_PERMILLE: u64 = 60;
/// How long the controller waits for volumes once a node has no pods left, as docs/concepts/node-life-cycle.md says.
const WAITED_FOR_MS: u64 = 360_000;
/// A watch has shown an object for this long before the controller must act on it.
const KNOWN_AFTER_MS: u64 = 1_000;

/// The name of the claim of a StatefulSet's pod.
pub(crate) fn claim_name(workload: &Workload, ordinal: u64) -> String {
    format!("data-{}-{ordinal}", workload.app)
}

/// Creates the claim of a pod and its volume, if they aren't there.
pub(crate) fn provide(workload: &Workload, ordinal: u64, tick: &mut Tick<'_>) {
    let zones = &workload.volume_zones;
    let Some(zone) = usize::try_from(ordinal).ok().and_then(|n| zones.get(n % zones.len())) else { return };
    let (claim, namespace) = (claim_name(workload, ordinal), &workload.namespace);
    let volume = format!("{namespace}-{claim}");
    let class = "zonal";
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "claimRef": {"namespace": namespace, "name": claim},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": volume},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": [zone]}]}]}},
        },
        "status": {"phase": "Bound"},
    });
    tick.store.create(cluster_id("PersistentVolume", &volume), object, tick.now);
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    });
    tick.store.create(("PersistentVolumeClaim", namespace.clone(), claim), object, tick.now);
}

/// The volume of a claim.
fn volume_of<'s>(store: &'s Store, namespace: &str, claim: &str) -> Option<&'s str> {
    let id = ("PersistentVolumeClaim", namespace.to_owned(), claim.to_owned());
    store.get(&id)?["spec"]["volumeName"].as_str()
}

/// The zone of a claim's volume.
pub(crate) fn zone_of<'s>(store: &'s Store, namespace: &str, claim: &str) -> Option<&'s str> {
    let volume = store.get(&cluster_id("PersistentVolume", volume_of(store, namespace, claim)?))?;
    let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0];
    term["matchExpressions"][0]["values"][0].as_str()
}

fn node_of(attachment: &Value) -> &str {
    attachment["spec"]["nodeName"].as_str().unwrap_or_default()
}

/// The attach/detach controller, and a driver that hangs at times.
#[derive(Debug)]
pub(crate) struct Attachments {
    /// Volumes that no pod uses on their node, and when they are detached; `None` where the driver hangs.
    detaching: BTreeMap<Id, Option<u64>>,
    pub(crate) hang_permille: u64,
}

impl Attachments {
    pub(crate) const fn new() -> Self {
        Self { detaching: BTreeMap::new(), hang_permille: HANG_PERMILLE }
    }

    pub(crate) fn is_due(&self, ms: u64) -> bool {
        self.detaching.values().flatten().any(|at| *at <= ms)
    }

    pub(crate) fn next_due(&self, ms: u64) -> Option<u64> {
        self.detaching.values().flatten().copied().filter(|at| *at > ms).min()
    }

    /// Attaches the volumes of bound pods, and detaches those whose pods have ended.
    pub(crate) fn follow(&mut self, index: &ClusterIndex, tick: &mut Tick<'_>) {
        let used = attach(index, tick);
        let ms = tick.ms;
        let free: Vec<(Id, String)> = tick
            .store
            .of_kind(ATTACHMENT)
            .filter(|(id, _)| !used.contains(id))
            .map(|(id, attachment)| (id.clone(), node_of(attachment).to_owned()))
            .collect();
        let mut detaching = BTreeMap::new();
        for (id, node) in free {
            let drawn = |random: &mut crate::random::Random| {
                let takes = random.between(DETACH_MS.0, DETACH_MS.1);
                (!random.permille(self.hang_permille)).then_some(ms + takes)
            };
            let due = self.detaching.get(&id).copied().unwrap_or_else(|| drawn(tick.random));
            if due.is_some_and(|at| at <= ms) || is_gone(&node, index, tick.world) {
                tick.store.remove(&id);
            } else {
                detaching.insert(id, due);
            }
        }
        self.detaching = detaching;
        note_emptied(index, tick);
    }
}

/// Creates the attachments of bound pods. Returns all that pods use.
fn attach(index: &ClusterIndex, tick: &mut Tick<'_>) -> BTreeSet<Id> {
    let mut used = BTreeSet::new();
    for (id, pod) in index.pods() {
        let (Some(claim), Some(node)) = (&pod.spec.claim, &pod.node) else { continue };
        let Some(volume) = volume_of(tick.store, &id.1, claim).map(str::to_owned) else { continue };
        let attachment = cluster_id(ATTACHMENT, &format!("csi-{volume}-{node}"));
        if !pod.deleting && index.nodes().contains_key(node) {
            let object = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": ATTACHMENT, "metadata": {},
                "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node,
                    "source": {"persistentVolumeName": volume}},
                "status": {"attached": true},
            });
            tick.store.create(attachment.clone(), object, tick.now);
        }
        used.insert(attachment);
    }
    used
}

/// True if neither the Node nor its instance is there.
fn is_gone(node: &str, index: &ClusterIndex, world: &World) -> bool {
    let runs = || world.instances().any(|(_, i)| i.state.is_alive() && i.dns_name(REGION) == node);
    !index.nodes().contains_key(node) && !runs()
}

/// Notes since when each node has no pod that has to leave.
fn note_emptied(index: &ClusterIndex, tick: &mut Tick<'_>) {
    let attached: Vec<String> =
        tick.store.of_kind(ATTACHMENT).map(|(_, attachment)| node_of(attachment).to_owned()).collect();
    let is_busy = |node: &str| index.pods_on(node).any(|id| index.pods()[id].workload.is_some());
    let nodes = index.nodes().keys().chain(&attached);
    tick.store.emptied = nodes
        .filter(|node| !is_busy(node))
        .map(|node| (node.clone(), tick.store.emptied.get(node).copied().unwrap_or(tick.ms)))
        .collect();
}

/// Volumes that are attached to a node when a process ends its instance, although the controller's rule says that it
/// waits: its watch has shown them, and the node hasn't been without pods for as long as it waits. `shown` are the
/// attachments that its watch shows, and since when.
pub(crate) fn not_waited_for(
    store: &Store,
    node: &str,
    shown: &BTreeMap<String, u64>,
    ms: u64,
) -> Vec<String> {
    let attached = store.of_kind(ATTACHMENT).filter(|(id, attachment)| {
        node_of(attachment) == node && shown.get(&id.2).is_some_and(|since| since + KNOWN_AFTER_MS <= ms)
    });
    let names: Vec<String> = attached.map(|(id, _)| id.2.clone()).collect();
    let is_due = || emptied_ms(store, node).is_some_and(|since| since + WAITED_FOR_MS > ms);
    if names.is_empty() || !is_due() { Vec::new() } else { names }
}

/// Since when a node is without pods. A pod that doesn't end counts until it was due, since a controller's clock may be
/// off by the minute that it grants. None while a pod is to stay: that is another check's.
fn emptied_ms(store: &Store, node: &str) -> Option<u64> {
    let is_there = |pod: &Value| pod["spec"]["nodeName"].as_str() == Some(node) && !is_of_daemonset(pod);
    let due = |pod: &Value| pod["metadata"]["deletionTimestamp"].as_str()?.parse::<Timestamp>().ok();
    let left = store.of_kind("Pod").filter(|(_, pod)| is_there(pod));
    let due: Option<Vec<Timestamp>> = left.map(|(_, pod)| due(pod)).collect();
    let last = due?.into_iter().max().and_then(|at| u64::try_from(at.as_millisecond()).ok());
    last.or_else(|| store.emptied.get(node).copied())
}
