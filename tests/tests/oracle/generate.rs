//! Random clusters from a seed.

use std::collections::BTreeMap;

use croft_scheduler::{Cluster, ComingNode, Pool};
use croft_simkit::Random;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, Pod},
};
use serde_json::{Value, json};

use super::{
    fleet,
    pods::{self, Group, NAMESPACES, TEAM, TEAMS},
};

/// A cluster: pools, nodes, running pods, pending pods.
#[derive(Clone)]
pub struct Scene {
    pub seed: u64,
    /// The templates of a pool follow one another.
    pub pools: Vec<Pool>,
    pub nodes: Vec<Value>,
    pub coming: Vec<ComingNode>,
    pub running: Vec<Value>,
    pub waiting: Vec<Group>,
    /// A DaemonSet runs on every node.
    pub daemon: bool,
    /// Number of volumes that each node can attach, if set.
    pub attach: BTreeMap<String, usize>,
    /// Binding mode and zone of volumes, in turns.
    pub disk_zones: Vec<String>,
}

impl Scene {
    pub fn new(seed: u64) -> Self {
        let random = &mut Random::new(seed);
        let pools = fleet::pools(random);
        let (mut nodes, mut running) = (Vec::new(), Vec::new());
        for n in 0..random.index(5) {
            let name = format!("old-{n}");
            nodes.push(fleet::old_node(random, &pools, &name));
            for p in 0..random.index(3) {
                running.push(pods::running(random, &name, p));
            }
        }
        let coming = if random.percent(25) {
            (0..1 + random.index(2)).map(|n| fleet::coming(random, &pools, &format!("coming-{n}"))).collect()
        } else {
            Vec::new()
        };
        let mut waiting: Vec<Group> =
            (0..1 + random.index(5)).map(|g| pods::group(random, &pools, g)).collect();
        waiting.sort_by_key(|group| std::cmp::Reverse(group.spec["priority"].as_i64().unwrap_or(0)));
        let mut attach = BTreeMap::new();
        for node in &nodes {
            if random.percent(50) {
                attach.insert(node["metadata"]["name"].as_str().unwrap().to_owned(), random.index(3));
            }
        }
        let disk_zones = (0..3).map(|_| random.one_of(&fleet::ZONES).to_owned()).collect();
        let daemon = random.percent(20);
        let scene = Self { seed, pools, nodes, coming, running, waiting, daemon, attach, disk_zones };
        scene.with_templates()
    }

    /// Running pods on the existing nodes, including the DaemonSet's.
    fn there(&self) -> Vec<Value> {
        let daemons =
            self.nodes.iter().filter(|_| self.daemon).filter_map(|n| n["metadata"]["name"].as_str());
        self.running.iter().cloned().chain(daemons.map(pods::daemon_pod)).collect()
    }

    /// The same for Croft. Gates of pods that will be planned are ignored: they are lifted in time.
    pub fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new();
        for templates in self.pools.chunk_by(|one, next| one.name == next.name) {
            cluster.upsert_templates(templates.to_vec()).unwrap();
        }
        for (name, team) in NAMESPACES.into_iter().zip(TEAMS) {
            let namespace: Namespace =
                serde_json::from_value(json!({"metadata": {"name": name, "labels": {TEAM: team}}})).unwrap();
            cluster.upsert_namespace(&namespace);
        }
        self.storage(&mut cluster);
        for node in &self.nodes {
            let node: Node = serde_json::from_value(node.clone()).unwrap();
            cluster.upsert_node(&node).unwrap();
        }
        for coming in &self.coming {
            cluster.upsert_coming(coming.clone());
        }
        if self.daemon {
            let daemon: DaemonSet = serde_json::from_value(json!({"metadata": {"namespace": NAMESPACES[0], "name": "agent"},
                "spec": {"selector": {}, "template": {"metadata": {"labels": pods::unselected()}, "spec": pods::daemon_spec()}}}))
            .unwrap();
            cluster.upsert_daemonset(&daemon).unwrap();
        }
        for pod in self.there().into_iter().chain(self.waiting.iter().flat_map(Group::pods)) {
            let pod: Pod = serde_json::from_value(pod).unwrap();
            cluster.upsert_pod(&pod).unwrap();
        }
        cluster
    }

    pub fn show(&self) -> String {
        let pools: Vec<Value> = self
            .pools
            .iter()
            .map(|p| {
                let [limits, template_limits] = [&p.limits, &p.template_limits].map(|limits| {
                    limits.iter().map(|(k, v)| (k, v.to_string())).collect::<BTreeMap<&String, String>>()
                });
                json!({"name": p.name, "template": p.template, "labels": p.labels, "taints": p.taints,
                    "requirements": p.requirements, "weight": p.weight, "limits": limits,
                    "templateLimits": template_limits, "capacity": p.instance_types.first().map(|k| &k.capacity)})
            })
            .collect();
        let waiting: Vec<Value> = self
            .waiting
            .iter()
            .map(|g| {
                json!({"name": g.name, "namespace": g.namespace, "replicas": g.replicas, "labels": g.labels,
                    "spec": g.spec, "disk": format!("{:?}", g.disk), "gated": g.gated})
            })
            .collect();
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|n| {
                json!({"name": n["metadata"]["name"], "labels": n["metadata"]["labels"], "spec": n["spec"],
                    "capacity": n["status"]["capacity"]})
            })
            .collect();
        let coming: Vec<Value> = self
            .coming
            .iter()
            .map(|c| {
                json!({"claim": c.claim, "pool": c.pool, "type": c.instance_type, "zone": c.zone,
                "capacity": c.capacity_type.as_str()})
            })
            .collect();
        json!({"pools": pools, "nodes": nodes, "coming": coming, "running": self.running, "waiting": waiting,
            "daemon": self.daemon, "attach": self.attach, "diskZones": self.disk_zones})
        .to_string()
    }
}
