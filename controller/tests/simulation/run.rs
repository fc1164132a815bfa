//! One run: a cluster made from a seed, its controllers, and what is checked of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use croft_controller::{config::settings::Settings, merge_patch};
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use serde_json::{Value, json};

use crate::{
    actors::{Actors, Workload},
    chance::Chance,
    checks,
    cluster::{Process, Shared, SimClock},
    store::{Backup, Store, cluster},
};

const FAMILIES: [&str; 3] = ["m5", "c5", "r5"];
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

/// Types that both the world and the controllers know.
fn types() -> Arc<[InstanceType]> {
    croft_cloud::builtin_catalog()
        .iter()
        .filter(|t| {
            t.name.split_once('.').is_some_and(|(family, size)| {
                FAMILIES.contains(&family) && matches!(size, "large" | "xlarge" | "2xlarge" | "4xlarge")
            })
        })
        .cloned()
        .map(|mut t| {
            t.offerings.retain(|o| {
                ZONES.contains(&o.zone.as_str())
                    && matches!(o.capacity_type, CapacityType::OnDemand | CapacityType::Spot)
            });
            t
        })
        .collect()
}

/// A pool that pays as `capacity_types` say, by a label of this key, with `more` in its spec.
fn pool(capacity_key: &str, capacity_types: &[&str], more: &Value) -> Value {
    let mut pool = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {},
        "spec": {
            "key": "node-pool",
            "disruption": {"consolidateAfter": "30s"},
            "template": {"spec": {
                "nodeClassRef": {"name": "class"},
                "requirements": [
                    {"key": capacity_key, "operator": "In", "values": capacity_types},
                ],
            }},
        },
        // What keeps tenants isn't simulated: its word is there from the start.
        "status": {"conditions": [{
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    merge_patch::apply(&mut pool["spec"], more);
    pool
}

/// Longer than the longest time that a controller is stopped or cut off.
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// CPU, in thousandths, that instances may have together.
pub struct Limits {
    /// By pool.
    pub pools: BTreeMap<String, i64>,
    /// Over all pools.
    pub cluster: Option<i64>,
}

pub struct Purpose {
    pub shared: Arc<Shared>,
    pub actors: Arc<Mutex<Actors>>,
    pub processes: Vec<Process>,
    pub limits: Limits,
    pub chance: Chance,
    pub backup: Option<Backup>,
    /// From when on instances don't boot, and until when.
    pub dead_image: Option<(Duration, Duration)>,
    /// Nodes of the pool of a fixed size.
    pub replicas: u64,
    cpus: BTreeMap<String, i64>,
    next_process: usize,
}

impl Purpose {
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let types = types();
        let clock = SimClock { start: tokio::time::Instant::now(), skew_ms: 0 };
        let now = clock.true_wall();
        let account = Account {
            seed,
            running_after_ms: chance.between(100, 5_000),
            terminated_after_ms: chance.between(100, 20_000),
            consistency_ms: chance.between(0, 3_000),
            ..Account::default()
        };
        let world = World::new(account, u64::try_from(now.as_millisecond()).unwrap());
        let mut store = Store::default();
        store.create(
            cluster("EC2NodeClass", "class"),
            json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {},
                "spec": {"role": "croft-node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                    "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
            }),
            now,
        );
        // Of its own, so that the other draws of a seed stay what they were.
        let mut odd = Chance::new(seed ^ 0x0dd);
        let capacity_key =
            if odd.permille(300) { "croft.dev/capacity-type" } else { "karpenter.sh/capacity-type" };
        let mut limits = BTreeMap::new();
        let mut workloads = Vec::new();
        for name in ["a", "b"] {
            let pool_name = format!("pool-{name}");
            let cpu = i64::try_from(chance.between(24, 64)).unwrap();
            limits.insert(pool_name.clone(), cpu * 1000);
            let spot = name == "b" && chance.permille(500);
            let capacity_types: &[&str] = if spot { &["spot", "on-demand"] } else { &["on-demand"] };
            let mut more = json!({"limits": {"cpu": cpu.to_string()}});
            if name == "a" && chance.permille(300) {
                more["headroom"] =
                    json!({"pods": chance.between(1, 3), "requests": {"cpu": "500m", "memory": "512Mi"}});
            }
            store.create(cluster("TenantPool", &pool_name), pool(capacity_key, capacity_types, &more), now);
            store.create(
                cluster("Tenant", &format!("tenant-{name}")),
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {},
                    "spec": {"namespaces": [format!("tenant-{name}")], "pools": [pool_name]}}),
                now,
            );
            for n in 0..chance.between(1, 3) {
                workloads.push(Workload {
                    namespace: format!("tenant-{name}"),
                    app: format!("app-{name}-{n}"),
                    pool: pool_name.clone(),
                    replicas: chance.between(1, 6),
                    cpu_millis: i64::try_from(chance.between(1, 8) * 250).unwrap(),
                    memory_mi: i64::try_from(chance.between(1, 8) * 256).unwrap(),
                    away: chance.permille(500).then_some(1),
                });
            }
        }
        // Drawn apart, so that a seed without them is the run that it was.
        let mut apart = Chance::new(seed ^ 0x5EED_0F11);
        let cluster_limit = apart.permille(250).then(|| i64::try_from(apart.between(16, 72)).unwrap());
        if let Some(cpu) = cluster_limit {
            store.create(
                cluster("CroftConfig", "default"),
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {},
                    "spec": {"limits": {"cpu": cpu.to_string()}}}),
                now,
            );
        }
        let from = Duration::from_secs(apart.between(0, 60));
        let dead_image =
            apart.permille(200).then(|| (from, from + Duration::from_secs(apart.between(5, 240))));
        let limits = Limits { pools: limits, cluster: cluster_limit.map(|cpu| cpu * 1000) };
        let replicas = if chance.permille(300) { chance.between(1, 3) } else { 0 };
        if replicas > 0 {
            let mut more = json!({"replicas": replicas});
            if odd.permille(500) {
                more["key"] = json!("node-restriction.kubernetes.io/pool");
                more["value"] = json!("fixed-nodes");
            }
            let fixed = pool(capacity_key, &["on-demand"], &more);
            store.create(cluster("TenantPool", "pool-fixed"), fixed, now);
        }
        let cpus = types.iter().map(|t| (t.name.clone(), t.capacity.get("cpu"))).collect();
        let actors = Actors::new(workloads, Arc::clone(&types), chance.fork());
        let shared = Shared::new(store, world, types, clock, chance.fork());
        Self {
            shared,
            actors: Arc::new(Mutex::new(actors)),
            processes: Vec::new(),
            limits,
            chance,
            backup: None,
            dead_image,
            replicas,
            cpus,
            next_process: 0,
        }
    }

    pub fn start(&mut self) {
        let skew = i64::try_from(self.chance.between(0, 60_000)).unwrap() - 30_000;
        // What takes minutes in production takes seconds here, so that a run sees it.
        let settings = Settings {
            list_instances_every: Duration::from_secs(20),
            orphan_grace: Duration::from_secs(30),
            resolve_every: Duration::from_secs(20),
            repair_after: Duration::from_secs(90),
            registration_timeout: REGISTRATION_TIMEOUT,
            launch_backoff: Duration::from_secs(5),
            ..Settings::default()
        };
        let process = self.shared.start(self.next_process, settings, skew);
        self.next_process += 1;
        self.processes.push(process);
    }

    pub fn check(&self) -> Vec<String> {
        let store = self.shared.store.lock().unwrap();
        let world = self.shared.world.lock().unwrap();
        checks::always(&store, &world, &self.limits, &self.cpus)
    }

    /// The instances that are there.
    pub fn instances(&self) -> BTreeSet<String> {
        let world = self.shared.world.lock().unwrap();
        let alive = world.instances().filter(|(_, instance)| instance.state.is_alive());
        alive.map(|(id, _)| id.clone()).collect()
    }

    pub fn check_at_rest(&self) -> Vec<String> {
        let store = self.shared.store.lock().unwrap();
        let world = self.shared.world.lock().unwrap();
        let workloads = self.actors.lock().unwrap().workloads.clone();
        let mut broken = checks::always(&store, &world, &self.limits, &self.cpus);
        broken.extend(checks::at_rest(&store, &world, &workloads, &self.limits, &self.cpus, self.replicas));
        broken
    }
}
