//! A month of a cluster's life: 50 tenants whose load follows the hours of the day, the controller's engine, executor
//! and loop on virtual time, and ec2-sim's world behind them. What was paid is compared with what a cluster without
//! friction would have cost.
//!
//! `make bench-disruption` runs it. Its last line is a list of `key=value`. `--days`, `--size` (times as many pods of
//! each tenant) and `--seed` ask for another month.
#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, ends when its input is wrong, and uses parts of the simulation"
)]

mod bill;
#[path = "../../tests/simulation/chance.rs"]
mod chance;
#[path = "../../tests/simulation/cloud.rs"]
mod cloud;
#[path = "../../tests/simulation/cluster.rs"]
mod cluster;
mod crowd;
mod load;
#[path = "../../tests/simulation/store.rs"]
mod store;
mod watchdog;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bill::Bill;
use chance::Chance;
use cluster::{Shared, SimClock};
use croft_controller::config::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_scheduler::{CapacityType, InstanceType};
use crowd::Crowd;
use load::Load;
use serde_json::json;
use store::{Store, cluster as named};
use tokio::time::sleep;

/// The controller's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TENANTS: u64 = 50;
/// Between two changes of the load.
const STEP: Duration = Duration::from_secs(15 * 60);
const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

fn main() {
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
    runtime.block_on(play(days, size, seed));
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

fn build(load: &Load, types: &Arc<[InstanceType]>, seed: u64, clock: &SimClock) -> Arc<Shared> {
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
    let class = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {},
        "spec": {"role": "croft-node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
    });
    store.create(named("EC2NodeClass", "class"), class, now);
    for pool in load.pools() {
        let tenant = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {},
            "spec": {"namespaces": [pool], "pools": [pool]}});
        // Disruption has its defaults.
        let body = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {},
            "spec": {"key": "node-pool", "template": {"spec": {"nodeClassRef": {"name": "class"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]}}},
            "status": {},
        });
        store.create(named("TenantPool", pool), body, now);
        store.create(named("Tenant", pool), tenant, now);
    }
    Shared::new(store, world, Arc::clone(types), clock.clone(), Chance::new(seed))
}

async fn play(days: u64, size: u64, seed: u64) {
    let begun = Instant::now();
    let clock = SimClock { start: tokio::time::Instant::now(), skew_ms: 0 };
    let types = types();
    let mut load = Load::new(TENANTS, size, seed);
    let shared = build(&load, &types, seed, &clock);
    let crowd = Arc::new(Mutex::new(Crowd::new(&load, Arc::clone(&types))));
    let settings = Settings {
        // No instance is interrupted here; a rarer list changes only the time that the bench takes.
        list_instances_every: Duration::from_secs(600),
        // Rounds of decisions take no time on a paused clock: at full speed, a second has hundreds of them. One in a
        // second makes everything later, and what is measured here no better.
        shortest_pause: Duration::from_secs(1),
        ..Settings::default()
    };
    println!("month: {TENANTS} tenants of size {size}, {days} days, seed {seed}; {settings:?}");
    let _surroundings = crowd::surround(&shared, &crowd);
    let _process = shared.start(0, settings, 0);
    let mut bill = Bill::new(&load, &types);
    let steps = days * 86_400 / STEP.as_secs();
    for step in 0..steps {
        let wanted = load.at(step * STEP.as_secs() / 60);
        let least = bill.least(&load, &wanted);
        crowd.lock().unwrap().want(wanted);
        shared.changed.notify_waiters();
        sleep(STEP).await;
        let mut crowd = crowd.lock().unwrap();
        let spent = crowd.close(shared.now_ms());
        bill.add(least, STEP, spent);
        if (step + 1) % (24 * 4) == 0 || days == 1 && (step + 1) % 16 == 0 {
            println!(
                "month: day {:>2}: {}, {} nodes, {} pods, {} evictions, {:.0} s",
                (step + 1) / (24 * 4),
                bill,
                crowd.nodes(),
                crowd.pods(),
                crowd.evictions,
                begun.elapsed().as_secs_f64(),
            );
        }
        let broken = &shared.store.lock().unwrap().broken;
        assert!(broken.is_empty(), "{broken:?}");
    }
    let crowd = crowd.lock().unwrap();
    for broken in crowd.watchdog.broken.iter().take(20) {
        println!("month: broken: {broken}");
    }
    let calls = shared.calls.lock().unwrap();
    let evictions = crowd.evictions as f64 / crowd.pod_days();
    println!(
        "month: {bill}; {} evictions, {evictions:.3} per pod and day; a pod waited {:.1} s for its place on average; \
         {} claims; {:.0} s",
        crowd.evictions,
        crowd.waited(),
        calls.get("create NodeClaim").copied().unwrap_or(0),
        begun.elapsed().as_secs_f64(),
    );
    println!("month: calls: {}", {
        let mut all: Vec<_> = calls.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        all.iter().map(|(call, count)| format!("{call} {count}")).collect::<Vec<_>>().join(", ")
    });
    println!(
        "month_gap={:.4} evictions_pod_day={evictions:.3} month_s={:.0} violations={}",
        bill.gap(),
        begun.elapsed().as_secs_f64(),
        crowd.watchdog.broken.len(),
    );
}
