//! The controller beside 10,000 nodes and 100,000 pods: memory, CPU at rest, and the time from a restart to the first
//! NodeClaim. The API server is the store of the simulation and EC2 is ec2-sim's world, both in this process, so that two
//! cores hold a cluster that a real control plane on them doesn't: `make bench-lab` measures 2,000 and 5,000 nodes on one.
//!
//! | figure | is |
//! |---|---|
//! | `allocated_mb`, `resident_mb` | growth of what jemalloc has allocated and holds from before the controller's start; the watches' lists of uids are in it, the store isn't |
//! | `idle_cores` | CPU while every kubelet reports its node each five minutes, less that of the same time without a controller; ec2-sim's answers are in it |
//! | `restart_s` | from the start of a controller whose predecessor released the Lease to its first NodeClaim: virtual time, which passes while it waits, and real time, which passes while it computes |
//!
//! Neither has network, TLS or JSON text in it: objects are read from values in memory.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, and ends when its input is wrong"
)]

mod args;
mod fill;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use args::Args;
use clap::Parser as _;
use croft_controller::config::settings::Settings;
use croft_simkit::{Environment, Id, Process};
use serde_json::json;
use tikv_jemalloc_ctl::{epoch, stats};
use tokio::{task::JoinHandle, time::sleep};

/// The controller's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const TENANTS: u64 = 50;
const NODES: u64 = 10_000;
/// Virtual time after which the effects of a start are over.
const SETTLE: Duration = Duration::from_secs(900);
/// Virtual time of the measurement at rest.
const LOOK: Duration = Duration::from_secs(600);
/// A kubelet reports its node after this long if nothing changes: `nodeStatusReportFrequency`.
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// Between two groups of reports.
const GROUP_EVERY: Duration = Duration::from_secs(3);
/// Entries of the log that watches may still have to read: those of a few groups.
const LOG_KEPT: usize = 500;
/// Virtual time within which a restarted controller must decide.
const DECIDES_WITHIN: Duration = Duration::from_secs(120);
const TICKS_PER_SECOND: f64 = 100.0;
const GOALS: &str = "400 MB, 0.1 cores, 10 s from a restart to the first NodeClaim";

fn main() {
    let nodes = Args::parse().nodes.unwrap_or(NODES);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run(nodes / TENANTS));
}

async fn run(each: u64) {
    let begun = Instant::now();
    let environment = fill::fill(TENANTS, each).await;
    let (nodes, pods) = (TENANTS * each, TENANTS * each * fill::PODS_ON_EACH);
    println!(
        "scale: {nodes} nodes and {pods} pods of {TENANTS} tenants, filled in {:.0} s; goals: {GOALS}",
        begun.elapsed().as_secs_f64()
    );
    let without = cpu_at_rest(&environment).await;
    let before = Memory::now(&environment);
    let process = start(&environment);
    sleep(SETTLE).await;
    println!("scale: calls after a start: {:?}", std::mem::take(&mut *environment.calls.lock().unwrap()));
    let with = cpu_at_rest(&environment).await;
    let after = Memory::now(&environment);
    let calls = std::mem::take(&mut *environment.calls.lock().unwrap());
    println!("scale: calls at rest: {calls:?}; {with:.1} s of CPU, {without:.1} s without a controller");
    drop(process);
    let restart = restart(&environment).await;
    println!("scale: {:.2} s of virtual time and {:.2} s of real time", restart.virtual_s, restart.real_s);
    let broken = environment.store.lock().unwrap().broken.len();
    println!(
        "allocated_mb={:.0} resident_mb={:.0} idle_cores={:.3} restart_s={:.2} scale_s={:.0} violations={broken}",
        after.allocated - before.allocated,
        after.resident - before.resident,
        (with - without) / LOOK.as_secs_f64(),
        restart.virtual_s + restart.real_s,
        begun.elapsed().as_secs_f64(),
    );
    assert_eq!(broken, 0, "{:?}", environment.store.lock().unwrap().broken);
}

fn start(environment: &Arc<Environment>) -> Process {
    // With the same number it holds the Lease, as one to which it was released.
    Process::start(environment, 0, Settings::default(), 0)
}

/// CPU seconds of this process while nodes are reported and nothing else happens.
async fn cpu_at_rest(environment: &Arc<Environment>) -> f64 {
    let reports = report(Arc::clone(environment));
    let before = cpu_seconds();
    sleep(LOOK).await;
    let used = cpu_seconds() - before;
    reports.abort();
    // Watches read the last reports.
    sleep(GROUP_EVERY).await;
    used
}

/// Reports every node once in [`REPORT_EVERY`], until the task is ended.
fn report(environment: Arc<Environment>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let nodes: Vec<Id> =
            environment.store.lock().unwrap().of_kind("Node").map(|(id, _)| id.clone()).collect();
        let groups = REPORT_EVERY.as_secs() / GROUP_EVERY.as_secs();
        let size = nodes.len().div_ceil(usize::try_from(groups).unwrap());
        for group in nodes.chunks(size).cycle() {
            {
                let mut store = environment.store.lock().unwrap();
                let now = environment.clock.true_wall().to_string();
                for node in group {
                    store.change(node, |node| {
                        node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(now);
                    });
                }
                if store.log.len() > 2 * LOG_KEPT.max(size) {
                    store.forget_but(LOG_KEPT.max(size));
                }
            }
            environment.changed.notify_waiters();
            sleep(GROUP_EVERY).await;
        }
    })
}

struct Restart {
    virtual_s: f64,
    real_s: f64,
}

/// Starts a controller with a pod that waits for a node, and waits for its first NodeClaim.
async fn restart(environment: &Arc<Environment>) -> Restart {
    let names = |environment: &Environment| -> BTreeSet<String> {
        environment.store.lock().unwrap().of_kind("NodeClaim").map(|(id, _)| id.2.clone()).collect()
    };
    let known = names(environment);
    fill::create_waiting_pod(environment);
    let (virtual_begun, real_begun) = (tokio::time::Instant::now(), Instant::now());
    let _process = start(environment);
    loop {
        let changed = environment.changed.notified();
        let waited = tokio::time::timeout(DECIDES_WITHIN, changed).await;
        let (virtual_s, real_s) = (virtual_begun.elapsed().as_secs_f64(), real_begun.elapsed().as_secs_f64());
        let calls = environment.calls.lock().unwrap().get("create NodeClaim").copied().unwrap_or(0);
        if calls > 0 && names(environment) != known {
            return Restart { virtual_s, real_s };
        }
        assert!(
            waited.is_ok() && virtual_s < DECIDES_WITHIN.as_secs_f64(),
            "no NodeClaim was created: {:?}",
            environment.calls.lock().unwrap()
        );
    }
}

/// Millions of bytes, by jemalloc.
#[derive(Clone, Copy, Debug)]
struct Memory {
    allocated: f64,
    resident: f64,
}

impl Memory {
    /// Without the log, which every watch has read.
    fn now(environment: &Environment) -> Self {
        environment.store.lock().unwrap().forget_but(0);
        // Pages that nothing is on go back to the kernel within a second, while something is allocated.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(100));
            drop((0..1_000).map(|_| Vec::<u8>::with_capacity(1 << 16)).collect::<Vec<_>>());
        }
        epoch::advance().unwrap();
        let megabytes = |bytes: usize| bytes as f64 / 1e6;
        Self {
            allocated: megabytes(stats::allocated::read().unwrap()),
            resident: megabytes(stats::resident::read().unwrap()),
        }
    }
}

/// CPU seconds of this process, user and system.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name may contain spaces and brackets: the fields begin after the last bracket.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_SECOND
}
