//! The model of kube-scheduler with pods that spread, and pods that take their time to end.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use croft_ec2_sim::world::{Settings, World};
use croft_simkit::{
    ClusterModel, Id, Placement, Random, Spread, Store, Timing, Workload, cluster_id, is_of_daemonset,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const TIMING: Timing =
    Timing { boot_ms: (0, 0), ready_ms: (0, 0), start_ms: 0, end_ms: 0, scheduler_lag_ms: 0 };

struct Cluster {
    store: Store,
    world: World,
    model: ClusterModel,
    now: Timestamp,
}

impl Cluster {
    /// A cluster with nodes of these zones and cpus, and one workload of pods of one cpu.
    fn new(nodes: &[(&str, &str)], workload: Workload) -> Self {
        let now = Timestamp::from_second(1_780_000_000).unwrap();
        let mut store = Store::default();
        for (n, (zone, cpu)) in nodes.iter().enumerate() {
            let node = json!({
                "metadata": {"labels": {"node-pool": "p", "topology.kubernetes.io/zone": zone}}, "spec": {},
                "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}]},
            });
            store.create(cluster_id("Node", &format!("node-{n}")), node, now);
        }
        let world = World::new(Settings::default(), u64::try_from(now.as_millisecond()).unwrap());
        let model =
            ClusterModel::new(vec![workload], [].into(), TIMING, Placement::Random, Random::new(1), ());
        Self { store, world, model, now }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        for _ in 0..3 {
            self.model.tick(&mut self.store, &mut self.world, self.now);
        }
    }

    /// The node of each attached volume.
    fn attached(&self) -> Vec<String> {
        let attachments = self.store.of_kind("VolumeAttachment");
        let node =
            |attachment: &serde_json::Value| attachment["spec"]["nodeName"].as_str().map(str::to_owned);
        let mut nodes: Vec<String> = attachments.filter_map(|(_, attachment)| node(attachment)).collect();
        nodes.sort();
        nodes
    }

    /// How many pods are bound to each node; those of none under the empty name.
    fn pods(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (_, pod) in self.store.of_kind("Pod") {
            *counts.entry(pod["spec"]["nodeName"].as_str().unwrap_or_default()).or_default() += 1;
        }
        counts
    }
}

fn workload(replicas: u64, spread: Spread) -> Workload {
    Workload {
        namespace: "n".to_owned(),
        app: "app".to_owned(),
        pool: "p".to_owned(),
        replicas,
        cpu_millis: 1_000,
        memory_mi: 64,
        spread,
        ..Workload::default()
    }
}

#[test]
fn pods_with_anti_affinity_have_a_node_each_and_one_without_a_node_waits() {
    let mut cluster = Cluster::new(&[("a", "8"), ("a", "8")], workload(3, Spread::HostEach));
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("", 1), ("node-0", 1), ("node-1", 1)].into());
}

#[test]
fn pods_that_spread_over_zones_go_no_further_than_the_zone_with_the_least() {
    let mut even = Cluster::new(&[("a", "8"), ("b", "8")], workload(6, Spread::Zones));
    even.pass(1);
    assert_eq!(even.pods(), [("node-0", 3), ("node-1", 3)].into());
    // Zone b has room for one.
    let mut narrow = Cluster::new(&[("a", "8"), ("b", "1")], workload(6, Spread::Zones));
    narrow.pass(1);
    assert_eq!(narrow.pods(), [("", 3), ("node-0", 2), ("node-1", 1)].into());
}

#[test]
fn pods_that_are_together_are_in_the_zone_of_the_first_and_wait_for_it() {
    let mut cluster = Cluster::new(&[("a", "8"), ("b", "8")], workload(4, Spread::Together));
    cluster.pass(1);
    let of_first = cluster.pods();
    assert_eq!(of_first.values().copied().collect::<Vec<_>>(), [4], "{of_first:?}");
    // Neither zone has room for all: the others wait, though the other zone has room.
    let mut narrow = Cluster::new(&[("a", "2"), ("b", "2")], workload(3, Spread::Together));
    narrow.pass(1);
    let bound: Vec<usize> =
        narrow.pods().into_iter().filter(|(node, _)| !node.is_empty()).map(|(_, count)| count).collect();
    assert_eq!(bound, [2]);
}

#[test]
fn a_pod_that_ends_slowly_stays_on_its_node_until_its_time_is_over() {
    let slow = Workload { end_ms: Some(40_000), ..workload(1, Spread::Anywhere) };
    let mut cluster = Cluster::new(&[("a", "8")], slow);
    cluster.pass(1);
    cluster.model.workloads[0].replicas = 0;
    cluster.pass(1);
    let deleted = cluster.store.of_kind("Pod").map(|(_, pod)| pod.clone()).next().unwrap();
    assert!(deleted["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleted["spec"]["terminationGracePeriodSeconds"], json!(50));
    cluster.pass(39);
    assert_eq!(cluster.pods(), [("node-0", 1)].into());
    cluster.pass(2);
    assert_eq!(cluster.pods(), BTreeMap::new());
}

#[test]
fn a_daemonset_has_a_pod_on_every_node_whatever_its_taints() {
    let mut cluster = Cluster::new(&[("a", "8"), ("b", "8")], workload(0, Spread::Anywhere));
    let set = json!({"metadata": {}, "spec": {"template": {"metadata": {"labels": {"app": "agent"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}}});
    let id: Id = ("DaemonSet", "kube-system".to_owned(), "agent".to_owned());
    cluster.store.create(id, set, cluster.now);
    let node = cluster_id("Node", "node-1");
    cluster.store.edit(&node, |node| node["spec"]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]));
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 1), ("node-1", 1)].into());
    assert!(cluster.store.of_kind("Pod").all(|(_, pod)| is_of_daemonset(pod)));
    assert_eq!(cluster.store.get(&node).unwrap()["metadata"]["generation"], json!(2));
}

#[test]
fn pods_with_volumes_are_in_the_zones_of_these_which_are_detached_some_time_after_they_end() {
    let zones = ["a", "b"].map(str::to_owned).to_vec();
    let stateful = Workload { volume_zones: zones, ..workload(3, Spread::Anywhere) };
    let mut cluster = Cluster::new(&[("a", "8"), ("b", "8"), ("c", "8")], stateful);
    cluster.model.hang_detachments(0);
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 2), ("node-1", 1)].into());
    assert_eq!(cluster.attached(), ["node-0", "node-0", "node-1"]);
    cluster.model.workloads[0].replicas = 2;
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 1), ("node-1", 1)].into());
    assert_eq!(cluster.attached(), ["node-0", "node-0", "node-1"], "the driver takes a second at least");
    cluster.pass(60);
    assert_eq!(cluster.attached(), ["node-0", "node-1"]);
    // A pod has the name and the volume of the one before it.
    let names: Vec<&str> = cluster.store.of_kind("Pod").map(|(id, _)| id.2.as_str()).collect();
    assert_eq!(names, ["app-0", "app-1"]);
    assert_eq!(cluster.store.of_kind("PersistentVolume").count(), 3);
}

#[test]
fn a_volume_whose_driver_hangs_is_attached_until_its_node_is_gone() {
    let stateful = Workload { volume_zones: vec!["a".to_owned()], ..workload(1, Spread::Anywhere) };
    let mut cluster = Cluster::new(&[("a", "8")], stateful);
    cluster.model.hang_detachments(1_000);
    cluster.pass(1);
    cluster.model.workloads[0].replicas = 0;
    cluster.pass(1);
    cluster.pass(3_600);
    assert_eq!(cluster.attached(), ["node-0"]);
    cluster.store.remove(&cluster_id("Node", "node-0"));
    cluster.pass(1);
    assert_eq!(cluster.attached(), Vec::<String>::new());
}

#[test]
fn nodes_with_a_taint_that_is_only_avoided_come_last_and_keep_no_pod_off() {
    let avoided = |cluster: &mut Cluster, node: &str, taints: &[&str]| {
        let taint = |key: &&str| json!({"key": key, "effect": "PreferNoSchedule"});
        let taints: Vec<_> = taints.iter().map(taint).collect();
        cluster.store.edit(&cluster_id("Node", node), |node| node["spec"]["taints"] = json!(taints));
    };
    let emptiest = |nodes: &[(&str, &str)], replicas| {
        let pods = workload(replicas, Spread::Anywhere);
        let mut cluster = Cluster::new(nodes, pods.clone());
        cluster.model =
            ClusterModel::new(vec![pods], [].into(), TIMING, Placement::LeastAllocated, Random::new(1), ());
        cluster
    };
    let mut cluster = emptiest(&[("a", "32"), ("a", "4")], 3);
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 3)].into());
    let mut cluster = emptiest(&[("a", "32"), ("a", "4")], 5);
    avoided(&mut cluster, "node-0", &["k"]);
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 1), ("node-1", 4)].into());
    // The score is a share of the most taints of a node: one of eight weighs less than an empty node.
    let mut cluster = emptiest(&[("a", "32"), ("a", "1"), ("a", "1")], 2);
    avoided(&mut cluster, "node-0", &["k"]);
    avoided(&mut cluster, "node-2", &["k", "l", "m", "n", "o", "p", "q", "r"]);
    cluster.pass(1);
    assert_eq!(cluster.pods(), [("node-0", 2)].into());
}
