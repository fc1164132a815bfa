//! A month of a cluster's life: 50 tenants whose load follows the hours of the day, the controller's engine, executor
//! and loop on virtual time, and ec2-sim's world behind them. What was paid is compared with what a cluster without
//! friction would have cost. A pod that waits for a node is charged, so that a late launch is no saving.
//!
//! `make bench-disruption` runs it. Its last line is a list of `key=value`. `--days`, `--size` (times as many pods of
//! each tenant) and `--seed` ask for another month.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, and ends when its input is wrong"
)]

mod bill;
mod load;
mod meter;
mod watchdog;

use std::{
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bill::Bill;
use croft_controller::config::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use croft_simkit::{
    ClusterModel, Environment, Placement, Process, Random, SimClock, Store, Timing, cluster_id, objects,
};
use load::Load;
use meter::Meter;
use tokio::time::sleep;

/// The controller's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TENANTS: u64 = 50;
/// Between two changes of the load.
const STEP: Duration = Duration::from_secs(15 * 60);
/// Kubelets, pods and kube-scheduler as on EC2.
const TIMING: Timing = Timing {
    boot_ms: (30_000, 30_000),
    ready_ms: (5_000, 5_000),
    // A pod pulls its image and starts.
    start_ms: 5_000,
    end_ms: 2_000,
    scheduler_lag_ms: 500,
};
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

fn main() -> ExitCode {
    let number = |flag: &str| {
        let mut args = std::env::args().skip_while(|a| a != flag);
        args.nth(1).and_then(|text| text.parse::<u64>().ok())
    };
    let days = number("--days").unwrap_or(30);
    let (size, seed) = (number("--size").unwrap_or(1), number("--seed").unwrap_or(31));
    if std::env::var("CROFT_SIM_LOG").is_ok() {
        let _ = croft_runtime::telemetry::init("debug", croft_runtime::telemetry::LogFormat::Text);
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    match runtime.block_on(play(days, size, seed)) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Instance types of three families, as a tenant would leave them to choose from: on-demand, x86, c, m and r of
/// later generations than the second.
fn types() -> Arc<[InstanceType]> {
    let suits = |t: &&InstanceType| {
        let label = |key: &str| t.labels.get(key).map_or("", String::as_str);
        t.arch == "amd64"
            && ["c", "m", "r"].contains(&label("karpenter.k8s.aws/instance-category"))
            && label("karpenter.k8s.aws/instance-generation").parse::<u32>().is_ok_and(|g| g > 2)
    };
    let mut types: Vec<InstanceType> = croft_cloud::builtin_catalog().iter().filter(suits).cloned().collect();
    for kind in &mut types {
        kind.offerings.retain(|o| {
            o.capacity_type == CapacityType::OnDemand && o.price.is_some() && ZONES.contains(&o.zone.as_str())
        });
    }
    types.retain(|t| !t.offerings.is_empty());
    types.into()
}

fn build(load: &Load, types: &Arc<[InstanceType]>, seed: u64, clock: &SimClock) -> Arc<Environment> {
    let now = clock.true_wall();
    let account = Account {
        seed,
        running_after_ms: 15_000,
        terminated_after_ms: 40_000,
        // Each tenant's instances have user data of their own.
        template_quota: usize::MAX,
        // Nothing is repeated this late here: a day's tokens would be most of what the simulation holds.
        token_ttl_ms: 10 * 60_000,
        ..Account::default()
    };
    let world = World::new(account, u64::try_from(now.as_millisecond()).unwrap());
    let mut store = Store::default();
    store.create(cluster_id("EC2NodeClass", "class"), objects::node_class(), now);
    for pool in load.pools() {
        // Disruption has its defaults.
        let body = objects::tenant_pool("karpenter.sh/capacity-type", &["on-demand"]);
        store.create(cluster_id("TenantPool", pool), body, now);
        store.create(cluster_id("Tenant", pool), objects::tenant(pool, pool), now);
    }
    Environment::new(store, world, Arc::clone(types), clock.clone(), Random::new(seed))
}

/// Plays `days`, and returns the number of violations.
async fn play(days: u64, size: u64, seed: u64) -> usize {
    let begun = Instant::now();
    let clock = SimClock::start();
    let types = types();
    let mut load = Load::new(TENANTS, size, seed);
    let environment = build(&load, &types, seed, &clock);
    let (workloads, meter) = (load.workloads().collect(), Meter::new(&load, &types));
    let random = Random::new(seed).fork();
    let model =
        ClusterModel::new(workloads, Arc::clone(&types), TIMING, Placement::LeastAllocated, random, meter);
    let model = Arc::new(Mutex::new(model));
    let settings = Settings {
        // No instance is interrupted here; a rarer list changes only the time that the bench takes.
        list_instances_every: Duration::from_secs(600),
        // Rounds of decisions take no time on a paused clock: at full speed, a second has hundreds of them. One in a
        // second makes everything later, and what is measured here no better.
        shortest_pause: Duration::from_secs(1),
        ..Settings::default()
    };
    println!("month: {TENANTS} tenants of size {size}, {days} days, seed {seed}; {settings:?}");
    let _models = ClusterModel::run_on_change(&model, &environment);
    let _process = Process::start(&environment, 0, settings, 0);
    let mut bill = Bill::new(&load, &types);
    let steps = days * 86_400 / STEP.as_secs();
    for step in 0..steps {
        let wanted = load.at(step * STEP.as_secs() / 60);
        let least = bill.least(&load, &wanted);
        for (workload, replicas) in model.lock().unwrap().workloads.iter_mut().zip(wanted) {
            workload.replicas = replicas;
        }
        environment.changed.notify_waiters();
        sleep(STEP).await;
        let mut model = model.lock().unwrap();
        let spent = model.with_observer(|meter, index| meter.close(index, environment.now_ms()));
        bill.add(least, STEP, spent);
        if (step + 1) % (24 * 4) == 0 || days == 1 && (step + 1) % 16 == 0 {
            println!(
                "month: day {:>2}: {}, {} nodes, {} pods, {} evictions, {:.0} s",
                (step + 1) / (24 * 4),
                bill,
                model.index().nodes().len(),
                model.index().pods().len(),
                model.observer.evictions,
                begun.elapsed().as_secs_f64(),
            );
        }
        assert!(!model.index().nodes().is_empty(), "no node was launched");
        let broken = &environment.store.lock().unwrap().broken;
        assert!(broken.is_empty(), "{broken:?}");
    }
    let model = model.lock().unwrap();
    let meter = &model.observer;
    for broken in meter.watchdog.broken.iter().take(20) {
        println!("month: broken: {broken}");
    }
    let calls = environment.calls.lock().unwrap();
    let evictions = meter.evictions as f64 / meter.pod_days();
    println!(
        "month: {bill}; {} evictions, {evictions:.3} per pod and day; a pod waited {:.1} s for its place on average; \
         {} claims; {:.0} s",
        meter.evictions,
        meter.waited(),
        calls.get("create NodeClaim").copied().unwrap_or(0),
        begun.elapsed().as_secs_f64(),
    );
    println!("month: calls: {}", {
        let mut all: Vec<_> = calls.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        all.iter().map(|(call, count)| format!("{call} {count}")).collect::<Vec<_>>().join(", ")
    });
    println!(
        "month_gap={:.4} month_gap_paid={:.4} evictions_pod_day={evictions:.3} waited_s={:.1} month_s={:.0} violations={}",
        bill.gap(),
        bill.gap_paid(),
        meter.waited(),
        begun.elapsed().as_secs_f64(),
        meter.watchdog.broken.len(),
    );
    meter.watchdog.broken.len()
}
