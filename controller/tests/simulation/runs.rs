//! Runs from seeds.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use croft_controller::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    actors::{Actors, Workload},
    chance::Chance,
    checks,
    cluster::{Faults, Process, Shared, SimClock},
    store::{Store, cluster},
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
            t.offerings
                .retain(|o| ZONES.contains(&o.zone.as_str()) && o.capacity_type == CapacityType::OnDemand);
            t
        })
        .collect()
}

fn pool(cpu_limit: i64) -> serde_json::Value {
    json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {},
        "spec": {
            "key": "node-pool", "limits": {"cpu": cpu_limit.to_string()},
            "disruption": {"consolidateAfter": "30s"},
            "template": {"spec": {
                "nodeClassRef": {"name": "class"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
            }},
        },
        "status": {},
    })
}

struct Run {
    shared: Arc<Shared>,
    actors: Arc<Mutex<Actors>>,
    processes: Vec<Process>,
    limits: BTreeMap<String, i64>,
    cpus: BTreeMap<String, i64>,
    chance: Chance,
    next_process: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
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
        let mut limits = BTreeMap::new();
        let mut workloads = Vec::new();
        for name in ["a", "b"] {
            let pool_name = format!("pool-{name}");
            let cpu = i64::try_from(chance.between(24, 64)).unwrap();
            limits.insert(pool_name.clone(), cpu * 1000);
            store.create(cluster("TenantPool", &pool_name), pool(cpu), now);
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
        let cpus = types.iter().map(|t| (t.name.clone(), t.capacity.get("cpu"))).collect();
        let actors = Actors::new(workloads, Arc::clone(&types), chance.fork());
        let shared = Shared::new(store, world, types, clock, chance.fork());
        Self {
            shared,
            actors: Arc::new(Mutex::new(actors)),
            processes: Vec::new(),
            limits,
            cpus,
            chance,
            next_process: 0,
        }
    }

    fn start(&mut self) {
        let skew = i64::try_from(self.chance.between(0, 4_000)).unwrap() - 2_000;
        // What takes minutes in production takes seconds here, so that a run sees it.
        let settings = Settings {
            machines_every: Duration::from_secs(20),
            orphan_grace: Duration::from_secs(30),
            ..Settings::default()
        };
        let process = self.shared.start(self.next_process, settings, skew);
        self.next_process += 1;
        self.processes.push(process);
    }

    fn check(&self) -> Vec<String> {
        let store = self.shared.store.lock().unwrap();
        let world = self.shared.world.lock().unwrap();
        checks::always(&store, &world, &self.limits, &self.cpus)
    }

    fn check_at_rest(&self) -> Vec<String> {
        let store = self.shared.store.lock().unwrap();
        let world = self.shared.world.lock().unwrap();
        let workloads = self.actors.lock().unwrap().workloads.clone();
        let mut broken = checks::always(&store, &world, &self.limits, &self.cpus);
        broken.extend(checks::at_rest(&store, &world, &workloads, &self.limits, &self.cpus));
        broken
    }

    /// One thing that goes wrong, or that a user does.
    async fn trouble(&mut self) {
        match self.chance.below(10) {
            // A controller dies wherever it is, and another starts some time after.
            0..=2 => {
                if !self.processes.is_empty() {
                    let n = usize::try_from(self.chance.below(self.processes.len() as u64)).unwrap();
                    drop(self.processes.remove(n));
                }
                sleep(Duration::from_millis(self.chance.between(0, 5_000))).await;
                self.start();
            }
            // One is stopped for a while and goes on, not knowing.
            3 => {
                if let Some(process) = self.processes.first() {
                    let paused = Arc::clone(&process.paused);
                    paused.store(true, Ordering::Relaxed);
                    let ms = self.chance.between(1_000, 30_000);
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(ms)).await;
                        paused.store(false, Ordering::Relaxed);
                    });
                }
            }
            4 => {
                if self.processes.len() < 2 {
                    self.start();
                }
            }
            5..=8 => {
                let mut actors = self.actors.lock().unwrap();
                let n = usize::try_from(self.chance.below(actors.workloads.len() as u64)).unwrap();
                actors.workloads[n].replicas = self.chance.below(7);
            }
            _ => {
                let permille = self.chance.between(0, 150);
                self.shared.set_faults(Faults {
                    api_lost: permille,
                    api_cut: permille / 2,
                    api_conflict: permille,
                    cloud_lost: permille,
                    cloud_cut: permille,
                });
            }
        }
    }
}

/// Plays one run; what is broken, if anything is.
async fn play(seed: u64) -> Vec<String> {
    let mut run = Run::new(seed);
    let actors = run.shared.surround(Arc::clone(&run.actors));
    run.start();
    let troubles = run.chance.between(3, 12);
    for _ in 0..troubles {
        let quiet = run.chance.between(100, 15_000);
        for _ in 0..quiet / 500 {
            sleep(Duration::from_millis(500)).await;
            let broken = run.check();
            if !broken.is_empty() {
                return broken;
            }
        }
        run.trouble().await;
    }
    run.shared.set_faults(Faults::default());
    if run.processes.is_empty() {
        run.start();
    }
    // Long enough for the longest rest after a failure, and for whatever is lost to be found.
    for _ in 0..60 {
        sleep(Duration::from_secs(15)).await;
        let broken = run.check();
        if !broken.is_empty() {
            return broken;
        }
        if run.check_at_rest().is_empty() {
            break;
        }
    }
    let broken = run.check_at_rest();
    actors.abort();
    broken
}

fn play_alone(seed: u64) -> Vec<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(play(seed))));
    played.unwrap_or_else(|panic| vec![format!("panicked: {:?}", panic.downcast_ref::<String>())])
}

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("CROFT_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("CROFT_SIM_RUNS").unwrap_or(500)).collect(),
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_paid_for_twice_whatever_fails() {
    if std::env::var("CROFT_SIM_LOG").is_ok() {
        let _ = croft_runtime::telemetry::init("debug", croft_runtime::telemetry::LogFormat::Text);
    }
    let seeds = seeds();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut violations: Vec<u64> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|n| {
                let mine = seeds.iter().skip(n).step_by(threads);
                scope.spawn(move || {
                    let mut violations = Vec::new();
                    for seed in mine {
                        let broken = play_alone(*seed);
                        if !broken.is_empty() {
                            println!("seed {seed}: {broken:#?}");
                            violations.push(*seed);
                        }
                    }
                    violations
                })
            })
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    violations.sort_unstable();
    println!("soak: runs={} violations={} seeds={violations:?}", seeds.len(), violations.len());
    assert!(violations.is_empty(), "CROFT_SIM_SEED={} repeats the first", violations[0]);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(seed);
            let _actors = run.shared.surround(Arc::clone(&run.actors));
            run.start();
            sleep(Duration::from_secs(60)).await;
            run.trouble().await;
            sleep(Duration::from_secs(60)).await;
            let store = run.shared.store.lock().unwrap();
            let log: Vec<String> = store.log.iter().map(|l| format!("{:?} {}", l.id, l.object)).collect();
            log
        })
    };
    let (first, second) = (trace(7), trace(7));
    assert!(first.len() > 50, "nothing happened");
    assert_eq!(first, second);
}
