//! One run: a cluster made from a seed, its controllers, and what is checked of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_controller::{config::settings::Settings, merge_patch};
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use croft_simkit::{
    Backup, ClusterModel, Environment, Id, Placement, Process, Random, SimClock, Spread, Store, Timing,
    Workload, cluster_id, objects,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{aws, checks, edits, templates::Templates, watched::Watched};

const FAMILIES: [&str; 3] = ["m5", "c5", "r5"];
pub const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

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

/// The class of every pool: subnets in the zones that instances are in.
fn node_class() -> Value {
    let subnet = |zone| json!({"tags": {"Name": format!("croft-private-{zone}")}});
    let mut class = objects::node_class();
    class["spec"]["subnetSelectorTerms"] = ZONES.map(subnet).into();
    class["spec"]["securityGroupSelectorTerms"] = json!([{"tags": {"croft.dev/discovery": "croft"}}]);
    class
}

/// A pool that pays as `capacity_types` say, by a label of this key, with `more` in its spec.
fn pool(capacity_key: &str, capacity_types: &[&str], more: &Value) -> Value {
    let mut pool = objects::tenant_pool(capacity_key, capacity_types);
    let defects = ["Ready", "SystemStatusCheck", "InstanceStatusCheck", "EBSStatusCheck"];
    let repair_after = BTreeMap::from(defects.map(|defect| (defect, "90s")));
    pool["spec"]["disruption"] = json!({"consolidateAfter": "30s", "repairAfter": repair_after});
    merge_patch::apply(&mut pool["spec"], more);
    pool
}

/// Draws which workloads spread and end slowly, and whether DaemonSets run on every node.
fn shape(workloads: &mut [Workload], store: &mut Store, seed: u64, now: Timestamp) {
    let mut random = Random::new(seed ^ 0x05EA_D5E7);
    let mut apart = Random::new(seed ^ 0x7066_E7EB);
    for workload in workloads {
        workload.spread = match random.below(10) {
            0 | 1 => Spread::HostEach,
            2 | 3 => Spread::Zones,
            _ => Spread::Anywhere,
        };
        workload.end_ms = random.permille(250).then(|| random.between(2_000, 90_000));
        // Drawn apart, so that the other draws of a seed stay what they were.
        if workload.spread == Spread::Anywhere && apart.permille(TOGETHER) {
            workload.spread = Spread::Together;
        }
        // A volume's zone leaves no choice to pods that spread over zones or share one.
        if matches!(workload.spread, Spread::Anywhere | Spread::HostEach) && apart.permille(WITH_VOLUMES) {
            workload.volume_zones = (0..3).map(|_| apart.one_of(&ZONES).to_owned()).collect();
        }
    }
    for n in 0..random.below(3) {
        let name = format!("agent-{n}");
        let labels = json!({"app": name});
        let requests = json!({"cpu": "100m", "memory": "128Mi"});
        let set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            }}},
        });
        store.create(("DaemonSet", "kube-system".to_owned(), name), set, now);
    }
}

/// Kubelets of a run; pods start and end at the next tick.
const TIMING: Timing = Timing {
    boot_ms: (500, 3_000),
    ready_ms: (100, 1_500),
    start_ms: 0,
    end_ms: 0,
    // Half of what the controller waits for kube-scheduler to see a cordon.
    scheduler_lag_ms: 500,
};
const TICK: Duration = Duration::from_millis(250);
/// Workloads of a thousand whose pods may be anywhere so far, and that share a zone.
const TOGETHER: u64 = 120;
/// Workloads of a thousand whose pods have volumes, of those that may be anywhere or have a node each.
const WITH_VOLUMES: u64 = 200;
/// Runs of a thousand in which the real election and leader gate take part.
const ELECTS: u64 = 200;

/// Longer than the longest time that a controller is stopped or cut off.
pub const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// CPU, in thousandths, that instances may have together.
pub struct Limits {
    /// By pool.
    pub pools: BTreeMap<String, i64>,
    /// By pool and template.
    pub templates: BTreeMap<(String, String), i64>,
    /// Over all pools.
    pub cluster: Option<i64>,
}

pub struct Run {
    pub environment: Arc<Environment>,
    pub model: Arc<Mutex<ClusterModel>>,
    pub processes: Vec<Process>,
    pub limits: Arc<Limits>,
    pub random: Random,
    pub backup: Option<Backup>,
    /// From when on instances don't boot, and until when.
    pub dead_image: Option<(Duration, Duration)>,
    /// Nodes of the pool of a fixed size.
    pub replicas: u64,
    pub templates: Templates,
    /// The objects that users have applied.
    pub declared: Vec<(Id, Value)>,
    /// Faults and sequences of changes by users that go on.
    pub ongoing: Arc<AtomicUsize>,
    /// The last act of an operator without which the cluster wouldn't come to rest.
    pub helped: Option<&'static str>,
    watched: Arc<Mutex<Watched>>,
    cpus: Arc<BTreeMap<String, i64>>,
    next_process: usize,
}

impl Run {
    #[expect(clippy::too_many_lines, reason = "the draws of a seed, in their order")]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let types = types();
        let clock = SimClock::start();
        let now = clock.true_wall();
        let account = Account {
            seed,
            running_after_ms: random.between(100, 5_000),
            terminated_after_ms: random.between(100, 20_000),
            consistency_ms: random.between(0, 3_000),
            types: types.iter().map(|t| t.name.clone()).collect(),
            ..Account::default()
        };
        let world = World::new(account, u64::try_from(now.as_millisecond()).unwrap());
        let mut store = Store::default();
        store.create(cluster_id("EC2NodeClass", "class"), node_class(), now);
        // Of its own, so that the other draws of a seed stay what they were.
        let mut odd = Random::new(seed ^ 0x0dd);
        let capacity_key =
            if odd.permille(300) { "croft.dev/capacity-type" } else { "karpenter.sh/capacity-type" };
        let mut templates = Templates::new(seed);
        let mut limits = BTreeMap::new();
        let mut workloads = Vec::new();
        for name in ["a", "b"] {
            let pool_name = format!("pool-{name}");
            let cpu = i64::try_from(random.between(24, 64)).unwrap();
            limits.insert(pool_name.clone(), cpu * 1000);
            let spot = name == "b" && random.permille(500);
            let capacity_types: &[&str] = if spot { &["spot", "on-demand"] } else { &["on-demand"] };
            let mut more = json!({"limits": {"cpu": cpu.to_string()}});
            if name == "a" && random.permille(300) {
                more["headroom"] =
                    json!({"pods": random.between(1, 3), "requests": {"cpu": "500m", "memory": "512Mi"}});
            }
            let mut pool = pool(capacity_key, capacity_types, &more);
            templates.split(&pool_name, &mut pool);
            store.create(cluster_id("TenantPool", &pool_name), pool, now);
            let tenant = format!("tenant-{name}");
            store.create(cluster_id("Tenant", &tenant), objects::tenant(&tenant, &pool_name), now);
            for n in 0..random.between(1, 3) {
                workloads.push(Workload {
                    namespace: format!("tenant-{name}"),
                    app: format!("app-{name}-{n}"),
                    pool: pool_name.clone(),
                    replicas: random.between(1, 6),
                    cpu_millis: i64::try_from(random.between(1, 8) * 250).unwrap(),
                    memory_mi: i64::try_from(random.between(1, 8) * 256).unwrap(),
                    max_unavailable: random.permille(500).then_some(1),
                    ..Workload::default()
                });
            }
        }
        shape(&mut workloads, &mut store, seed, now);
        // Drawn apart, so that a seed without them is the run that it was.
        let mut apart = Random::new(seed ^ 0x5EED_0F11);
        let cluster_limit = apart.permille(250).then(|| i64::try_from(apart.between(16, 72)).unwrap());
        if let Some(cpu) = cluster_limit {
            store.create(
                cluster_id("CroftConfig", "default"),
                json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {},
                    "spec": {"limits": {"cpu": cpu.to_string()}}}),
                now,
            );
        }
        let from = Duration::from_secs(apart.between(0, 60));
        let dead_image =
            apart.permille(200).then(|| (from, from + Duration::from_secs(apart.between(5, 240))));
        let limits = Arc::new(Limits {
            pools: limits,
            templates: templates.limits.clone(),
            cluster: cluster_limit.map(|cpu| cpu * 1000),
        });
        let replicas = if random.permille(300) { random.between(1, 3) } else { 0 };
        if replicas > 0 {
            let mut more = json!({"replicas": replicas});
            if odd.permille(500) {
                more["key"] = json!("node-restriction.kubernetes.io/pool");
                more["value"] = json!("fixed-nodes");
            }
            let fixed = pool(capacity_key, &["on-demand"], &more);
            store.create(cluster_id("TenantPool", "pool-fixed"), fixed, now);
        }
        let has_volumes = workloads.iter().any(|workload| !workload.volume_zones.is_empty());
        let cpus = Arc::new(types.iter().map(|t| (t.name.clone(), t.capacity.get("cpu"))).collect());
        let model =
            ClusterModel::new(workloads, Arc::clone(&types), TIMING, Placement::Random, random.fork(), ());
        let kinds = ["EC2NodeClass", "TenantPool", "Tenant", "CroftConfig", "DaemonSet"];
        let files = kinds.into_iter().flat_map(|kind| store.of_kind(kind));
        let declared = files.map(|(id, object)| (id.clone(), edits::declared(object))).collect();
        let environment = Environment::new(store, world, types, clock, random.fork());
        environment.has_volumes.store(has_volumes, Ordering::Relaxed);
        environment.elects.store(Random::new(seed ^ 0x1EA5E).permille(ELECTS), Ordering::Relaxed);
        if Random::new(seed ^ 0xAB5).permille(aws::SHARE) {
            aws::use_provider(&environment);
        }
        Self {
            environment,
            model: Arc::new(Mutex::new(model)),
            processes: Vec::new(),
            limits,
            random,
            backup: None,
            dead_image,
            replicas,
            templates,
            declared,
            ongoing: Arc::default(),
            helped: None,
            watched: Arc::default(),
            cpus,
            next_process: 0,
        }
    }

    /// Lets kubelets, kube-scheduler and workloads act.
    pub fn start_models(&self) -> JoinHandle<()> {
        ClusterModel::run_every(&self.model, &self.environment, TICK)
    }

    pub fn start(&mut self) {
        let skew = i64::try_from(self.random.between(0, 60_000)).unwrap() - 30_000;
        // Periods of minutes are seconds here, so that a run sees it.
        let settings = Settings {
            list_instances_every: Duration::from_secs(20),
            orphan_grace: Duration::from_secs(30),
            resolve_every: Duration::from_secs(20),
            registration_timeout: REGISTRATION_TIMEOUT,
            launch_backoff: Duration::from_secs(5),
            ..Settings::default()
        };
        let process = Process::start(&self.environment, self.next_process, settings, skew);
        self.next_process += 1;
        self.processes.push(process);
    }

    /// Checks after each change of the store or the world, until the task is ended.
    pub fn start_checks(&self) -> JoinHandle<()> {
        let (environment, watched) = (Arc::clone(&self.environment), Arc::clone(&self.watched));
        let (limits, cpus) = (Arc::clone(&self.limits), Arc::clone(&self.cpus));
        tokio::spawn(async move {
            loop {
                let mut changed = std::pin::pin!(environment.changed.notified());
                changed.as_mut().enable();
                follow(&environment, &mut watched.lock().unwrap(), &limits, &cpus);
                changed.await;
            }
        })
    }

    /// True if a check let pass what no controller could have prevented.
    pub fn is_excused(&self) -> bool {
        self.watched.lock().unwrap().is_excused
    }

    /// The violations so far.
    pub fn check(&self) -> Vec<String> {
        let mut watched = self.watched.lock().unwrap();
        follow(&self.environment, &mut watched, &self.limits, &self.cpus);
        watched.broken.clone()
    }

    /// The instances that are there.
    pub fn instances(&self) -> BTreeSet<String> {
        let world = self.environment.world.lock().unwrap();
        let alive = world.instances().filter(|(_, instance)| instance.state.is_alive());
        alive.map(|(id, _)| id.clone()).collect()
    }

    /// Logs pools, claims, nodes and pods as they are.
    pub fn log_objects(&self) {
        let store = self.environment.store.lock().unwrap();
        let at = self.environment.clock.true_wall();
        for kind in ["TenantPool", "NodeClaim", "Node", "Pod"] {
            for (_, object) in store.of_kind(kind) {
                tracing::debug!(%at, %object, "left {kind}");
            }
        }
    }

    pub fn check_at_rest(&self) -> Vec<String> {
        let mut broken = self.check();
        let store = self.environment.store.lock().unwrap();
        let world = self.environment.world.lock().unwrap();
        let workloads = self.model.lock().unwrap().workloads.clone();
        broken.extend(checks::at_rest(&store, &world, &workloads, &self.limits, &self.cpus, self.replicas));
        broken
    }
}

fn follow(environment: &Environment, watched: &mut Watched, limits: &Limits, cpus: &BTreeMap<String, i64>) {
    let store = environment.store.lock().unwrap();
    let world = environment.world.lock().unwrap();
    watched.follow(&store, &world, limits, cpus, environment.now_ms());
}
