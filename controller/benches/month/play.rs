//! Plays the load under one policy: the models of the cluster, ec2-sim's world, and a controller.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use croft_api::disruption::{Preference, PreferenceSettings};
use croft_controller::config::settings::Settings;
use croft_ec2_sim::world::{Settings as Account, World};
use croft_simkit::{
    ClusterModel, Environment, Placement, Process, Random, SimClock, Store, Timing, cluster_id, objects,
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    bill::Bill,
    demand::{Demand, STEP, Step},
    meter::Meter,
    usual,
};

/// Kubelets, pods and kube-scheduler as on EC2.
const TIMING: Timing = Timing {
    boot_ms: (30_000, 30_000),
    ready_ms: (5_000, 5_000),
    // A pod pulls its image and starts.
    start_ms: 5_000,
    end_ms: 2_000,
    scheduler_lag_ms: 500,
};
const STEPS_OF_A_DAY: usize = 24 * 4;

/// Croft's settings that trade cost against evictions.
#[derive(Clone, Debug)]
pub struct Point {
    /// `preference` of every pool.
    pub preference: Preference,
    /// `minSavings` of every pool.
    pub min_savings: String,
    /// `consolidateAfter` of every pool.
    pub consolidate_after: String,
    /// Age of pods in the disruption cost, as a share of their age in percent.
    pub age_percent: u64,
    /// `evictionCost` of every pool.
    pub eviction_cost: String,
    /// The time for which a pod that has started costs more to move, if it isn't that of the preference.
    pub rest: Option<Duration>,
}

impl Point {
    /// The settings that a preference stands for.
    pub fn of(preference: Preference) -> Self {
        let PreferenceSettings { consolidate_after, min_savings, eviction_cost, rest: _ } =
            preference.settings();
        Self {
            preference,
            min_savings: min_savings.to_owned(),
            consolidate_after: consolidate_after.to_owned(),
            age_percent: Settings::default().pod_age_percent,
            eviction_cost: eviction_cost.to_owned(),
            rest: None,
        }
    }
}

impl Default for Point {
    fn default() -> Self {
        Self::of(Preference::default())
    }
}

/// The controller that plays.
#[derive(Clone, Debug)]
pub enum Policy {
    Croft(Point),
    /// See [`usual`].
    Usual,
}

/// The results of a month.
#[derive(Clone, Debug)]
pub struct Figures {
    pub gap: f64,
    pub gap_paid: f64,
    pub evictions_pod_day: f64,
    pub waited_s: f64,
    pub launches_node_day: f64,
    /// Status writes of NodeClaims for each of them.
    pub status_writes_claim: f64,
    /// Calls of the eviction API for each evicted pod.
    pub calls_eviction: f64,
    pub violations: usize,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Croft(_) => "month",
            Self::Usual => "usual",
        })
    }
}

fn build(demand: &Demand, seed: u64, clock: &SimClock, point: &Point) -> Arc<Environment> {
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
    for pool in &demand.pools {
        let mut body = objects::tenant_pool("karpenter.sh/capacity-type", &["on-demand"]);
        body["spec"]["disruption"] = json!({
            "preference": point.preference,
            "minSavings": point.min_savings,
            "consolidateAfter": point.consolidate_after,
            "evictionCost": point.eviction_cost,
        });
        store.create(cluster_id("TenantPool", pool), body, now);
        store.create(cluster_id("Tenant", pool), objects::tenant(pool, pool), now);
    }
    Environment::new(store, world, Arc::clone(&demand.types), clock.clone(), Random::new(seed))
}

/// Plays the load on virtual time. Prints a line for each day if `tells`.
pub fn play(demand: &Demand, seed: u64, policy: &Policy, tells: bool) -> Figures {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(play_on_virtual_time(demand, seed, policy, tells))
}

async fn play_on_virtual_time(demand: &Demand, seed: u64, policy: &Policy, tells: bool) -> Figures {
    let begun = Instant::now();
    let clock = SimClock::start();
    let point = match policy {
        Policy::Croft(point) => point.clone(),
        Policy::Usual => Point::default(),
    };
    let environment = build(demand, seed, &clock, &point);
    let types = Arc::clone(&demand.types);
    let random = Random::new(seed).fork();
    let (workloads, meter) = (demand.workloads.clone(), Meter::new(demand));
    let model = ClusterModel::new(workloads, types, TIMING, Placement::LeastAllocated, random, meter);
    let model = Arc::new(Mutex::new(model));
    let _models = ClusterModel::run_on_change(&model, &environment);
    let settings = Settings {
        // No instance is interrupted here; a rarer list changes only the time that the bench takes.
        list_instances_every: Duration::from_secs(600),
        // Rounds of decisions take no time on a paused clock: at full speed, a second has hundreds of them. One in a
        // second makes everything later, and what is measured here no better.
        shortest_pause: Duration::from_secs(1),
        pod_age_percent: point.age_percent,
        pod_rest: point.rest,
        ..Settings::default()
    };
    let (_process, _usual) = match policy {
        Policy::Croft(_) => {
            if tells {
                println!("{policy}: {point:?}, {settings:?}");
            }
            (Some(Process::start(&environment, 0, settings, 0)), None)
        }
        Policy::Usual => (None, Some(usual::start(&environment, &model, demand))),
    };
    let mut bill = Bill::default();
    for (number, Step { wanted, least }) in (1..).zip(&demand.steps) {
        for (workload, replicas) in model.lock().unwrap().workloads.iter_mut().zip(wanted) {
            workload.replicas = *replicas;
        }
        environment.changed.notify_waiters();
        sleep(STEP).await;
        let mut model = model.lock().unwrap();
        let spent = model.with_observer(|meter, index| meter.close(index, environment.now_ms()));
        bill.add(*least, STEP, spent);
        let is_told =
            number % STEPS_OF_A_DAY == 0 || demand.steps.len() == STEPS_OF_A_DAY && number % 16 == 0;
        if tells && is_told {
            println!(
                "{policy}: day {:>2}: {}, {} nodes, {} pods, {} evictions, {:.0} s",
                number / STEPS_OF_A_DAY,
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
    let calls = environment.calls.lock().unwrap();
    let figures = figures(&bill, &model.observer, &calls);
    if tells {
        tell(policy, &bill, &model.observer, &calls, &figures);
    }
    figures
}

fn figures(bill: &Bill, meter: &Meter, calls: &BTreeMap<String, u64>) -> Figures {
    let called = |call: &str| calls.get(call).copied().unwrap_or(0) as f64;
    let evictions = meter.evictions as f64;
    Figures {
        gap: bill.gap(),
        gap_paid: bill.gap_paid(),
        evictions_pod_day: evictions / meter.pod_days(),
        waited_s: meter.waited(),
        launches_node_day: meter.launches as f64 / meter.node_days(),
        status_writes_claim: called("patch_status NodeClaim") / called("create NodeClaim").max(1.0),
        calls_eviction: called("evict Pod") / evictions.max(1.0),
        violations: meter.watchdog.broken.len(),
    }
}

fn tell(policy: &Policy, bill: &Bill, meter: &Meter, calls: &BTreeMap<String, u64>, figures: &Figures) {
    for broken in meter.watchdog.broken.iter().take(20) {
        println!("{policy}: broken: {broken}");
    }
    println!(
        "{policy}: {bill}; {} evictions, {:.3} per pod and day; a pod waited {:.1} s for its place on average; {} launches",
        meter.evictions, figures.evictions_pod_day, figures.waited_s, meter.launches,
    );
    let mut all: Vec<_> = calls.iter().collect();
    all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let calls: Vec<String> = all.iter().map(|(call, count)| format!("{call} {count}")).collect();
    println!("{policy}: calls: {}", calls.join(", "));
}
