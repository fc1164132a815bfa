//! The ledger beside EC2's bill: days of instances that come and go, and controllers that crash.
//!
//! ```text
//!   load by the hour ─▶ pods ─▶ Croft ─▶ instances of ec2-sim ─▶ its bill ────────┐
//!                                 │                                              ├─▶ equal to the cent
//!                                 └─▶ log and ledger in ConfigMaps ─▶ statement ─┘
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use croft_controller::config::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_record::{
    SEGMENT_KEY,
    ledger::{amount::Amount, book::HOUR_MILLIS, closed::Ledger, record::statement},
    record::Record,
    slots::slot_name,
    snapshot::writer::{FIRST_SLOT, SNAPSHOT_SLOTS},
    writer::SLOTS,
};
use croft_scheduler::{CapacityType, InstanceType};
use croft_simkit::{
    ClusterModel, Environment, NAMESPACE, Placement, Process, Random, SimClock, Store, Timing, Workload,
    cluster_id, objects,
};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::log;

const TENANTS: u64 = 3;
/// Between two changes of the load.
const STEP: Duration = Duration::from_secs(15 * 60);
const HOUR: Duration = Duration::from_secs(3_600);
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];
const CENT: u128 = 10_000;
/// An entry is in the store after this time, whatever happens to its writer.
const LOST_AT_MOST: Duration = Duration::from_secs(10);
const TIMING: Timing = Timing {
    boot_ms: (10_000, 40_000),
    ready_ms: (1_000, 8_000),
    start_ms: 1_000,
    end_ms: 2_000,
    scheduler_lag_ms: 500,
};

/// Offerings at the prices that EC2 bills.
fn types(world: &World) -> Arc<[InstanceType]> {
    let is_one = |kind: &&InstanceType| ["m5.large", "m5.xlarge", "c5.xlarge"].contains(&kind.name.as_str());
    let mut types: Vec<InstanceType> =
        croft_cloud::builtin_catalog().iter().filter(is_one).cloned().collect();
    for kind in &mut types {
        kind.offerings.retain(|offering| ZONES.contains(&offering.zone.as_str()));
        for offering in &mut kind.offerings {
            offering.price = Some(match offering.capacity_type {
                CapacityType::Spot => world.market.spot(&kind.name, &offering.zone),
                _ => world.market.on_demand(&kind.name),
            });
        }
    }
    types.into()
}

/// A cluster whose pods change, and its controller.
struct Week {
    environment: Arc<Environment>,
    model: Arc<Mutex<ClusterModel>>,
    random: Random,
    process: Option<Process>,
    started: usize,
}

impl Week {
    fn new(seed: u64) -> Self {
        let clock = SimClock::start();
        let now = clock.true_wall();
        let account = Account {
            seed,
            running_after_ms: 8_000,
            terminated_after_ms: 40_000,
            template_quota: usize::MAX,
            token_ttl_ms: 10 * 60_000,
            ..Account::default()
        };
        let world = World::new(account, u64::try_from(now.as_millisecond()).unwrap());
        let types = types(&world);
        let mut store = Store::default();
        store.create(cluster_id("EC2NodeClass", "class"), objects::node_class(), now);
        let mut workloads = Vec::new();
        for n in 0..TENANTS {
            let name = format!("tenant-{n}");
            let mut pool = objects::tenant_pool(
                "karpenter.sh/capacity-type",
                if n == 0 { &["spot"] } else { &["on-demand"] },
            );
            pool["spec"]["disruption"] = json!({"consolidateAfter": "2m", "repairAfter": {"Ready": "90s"}});
            if n == 1 {
                pool["spec"]["headroom"] = json!({"pods": 1, "requests": {"cpu": "500m", "memory": "512Mi"}});
            }
            store.create(cluster_id("TenantPool", &name), pool, now);
            store.create(cluster_id("Tenant", &name), objects::tenant(&name, &name), now);
            workloads.push(Workload {
                namespace: name.clone(),
                app: format!("app-{n}"),
                pool: name,
                cpu_millis: 900,
                memory_mi: 2_048,
                max_unavailable: Some(1),
                ..Workload::default()
            });
        }
        for slot in 0..FIRST_SLOT + SNAPSHOT_SLOTS {
            store.create(
                slot_id(slot),
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
                now,
            );
        }
        let mut random = Random::new(seed);
        let model =
            ClusterModel::new(workloads, Arc::clone(&types), TIMING, Placement::Random, random.fork(), ());
        let environment = Environment::new(store, world, types, clock, random.fork());
        environment.records.store(true, Ordering::Relaxed);
        Self { environment, model: Arc::new(Mutex::new(model)), random, process: None, started: 0 }
    }

    fn start(&mut self) {
        // As far as clocks are apart that follow the same time server.
        let skew = i64::try_from(self.random.between(0, 40)).unwrap() - 20;
        // A quiet cluster is looked at less often, for the time that the test takes.
        let settings = Settings { shortest_pause: Duration::from_secs(1), ..Settings::default() };
        self.process = Some(Process::start(&self.environment, self.started, settings, skew));
        self.started += 1;
    }

    /// The controller is killed within the next minutes, and another starts soon.
    async fn crash(&mut self) {
        sleep(Duration::from_millis(self.random.between(0, 120_000))).await;
        self.process = None;
        self.everything_older_is_recorded();
        sleep(Duration::from_millis(self.random.between(100, 8_000))).await;
        self.start();
    }

    /// Each launch that was known ten seconds before a crash is in the store.
    fn everything_older_is_recorded(&self) {
        let (record, _) = self.record();
        let before = self.environment.clock.true_wall().checked_sub(LOST_AT_MOST).unwrap();
        let launched = |claim: &Value| {
            let conditions = claim["status"]["conditions"].as_array()?;
            let is_true = |c: &&Value| c["type"] == "Launched" && c["status"] == "True";
            conditions.iter().find(is_true)?["lastTransitionTime"].as_str()?.parse::<jiff::Timestamp>().ok()
        };
        let store = self.environment.store.lock().unwrap();
        for (id, claim) in store.of_kind("NodeClaim") {
            if launched(claim).is_some_and(|at| at < before) {
                let is_its = |entry: &&croft_record::entry::Entry| {
                    entry.object.name == id.2 && entry.instance.is_some()
                };
                assert!(record.entries.iter().any(|entry| is_its(&entry)), "{} is in no entry", id.2);
            }
        }
    }

    /// Log and ledger as the store holds them.
    fn record(&self) -> (Record, Ledger) {
        let store = self.environment.store.lock().unwrap();
        let slots: BTreeMap<usize, Vec<u8>> = (0..FIRST_SLOT)
            .filter_map(|slot| {
                let content = &store.get(&slot_id(slot))?["binaryData"][SEGMENT_KEY];
                let bytes: ByteString = serde_json::from_value(content.clone()).ok()?;
                Some((slot, bytes.0))
            })
            .collect();
        let of_log = slots.iter().filter(|(slot, _)| **slot < SLOTS);
        let record = Record::read(of_log.map(|(_, bytes)| ("slot", bytes.as_slice())));
        let ledger = Ledger::read(slots.iter().map(|(slot, bytes)| (*slot, bytes.as_slice())));
        assert!(record.damaged.is_empty() && !ledger.is_damaged());
        (record, ledger)
    }
}

fn slot_id(slot: usize) -> croft_simkit::Id {
    ("ConfigMap", NAMESPACE.to_owned(), slot_name(slot))
}

/// Millionths of a dollar that EC2 bills, in all.
fn billed(world: &World, now: u64) -> u128 {
    let cost = |charge: &croft_ec2_sim::bill::Charge| {
        u128::try_from(charge.price.micros()).unwrap() * u128::from(charge.seconds(now / 1_000))
    };
    world.bill().iter().map(cost).sum::<u128>() / 3_600
}

async fn play(seed: u64, days: u64) {
    let mut week = Week::new(seed);
    let begun = week.environment.clock.true_wall().as_millisecond();
    let models = ClusterModel::run_on_change(&week.model, &week.environment);
    week.start();
    let mut crashes = 0;
    for step in 0..days * 24 * 4 {
        let day = (step % 96) as f64 / 96.0;
        for workload in &mut week.model.lock().unwrap().workloads {
            let more = 12.0 * (day * std::f64::consts::TAU).sin().max(0.0);
            workload.replicas = 1 + more as u64 + week.random.below(4);
        }
        week.environment.changed.notify_waiters();
        let since = tokio::time::Instant::now();
        if week.random.permille(120) {
            crashes += 1;
            week.crash().await;
        }
        // Every tenth step ends around the end of an hour with a crash.
        if step % 4 == 3 && week.random.permille(200) {
            crashes += 1;
            sleep((since + STEP).duration_since(tokio::time::Instant::now()).saturating_sub(HOUR / 60)).await;
            week.crash().await;
        }
        sleep((since + STEP).saturating_duration_since(tokio::time::Instant::now())).await;
    }
    for workload in &mut week.model.lock().unwrap().workloads {
        workload.replicas = 0;
    }
    week.environment.changed.notify_waiters();
    // Headroom and the last hour are billed as well.
    sleep(2 * HOUR).await;
    models.abort();
    let now = week.environment.now_ms();
    let until = i64::try_from(now).unwrap();
    let (record, ledger) = week.record();
    // A day whose hours are no longer kept is one line at its beginning.
    let lines = statement(&record, &ledger, begun - 24 * HOUR_MILLIS, until);
    let paid = lines.iter().map(|line| line.amount).sum::<Amount>().micros();
    let world = week.environment.world.lock().unwrap();
    let bill = billed(&world, now);
    let instances = world.bill().len();
    println!(
        "ledger: seed={seed} days={days} crashes={crashes} instances={instances} bill_usd={:.4} ledger_usd={:.4}",
        bill as f64 / 1e6,
        paid as f64 / 1e6
    );
    assert!(crashes > 3 && instances > 20, "{crashes} crashes, {instances} instances");
    assert!(paid.abs_diff(bill) < CENT, "the ledger says {paid}, the bill {bill}");
}

#[test]
fn the_ledger_is_the_bill_to_the_cent_whatever_crashes() {
    log::start_if_asked();
    let days = std::env::var("CROFT_LEDGER_DAYS").ok().and_then(|days| days.parse().ok()).unwrap_or(1);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play(1, days));
}
