//! The scheduler against the real kube-scheduler: random clusters, planned by Croft, bound by Kubernetes.
//!
//! Each cluster has nodes with pods, coming nodes and gated pending pods. Croft plans; pods for existing nodes are
//! nominated and ungated, in half of the clusters in the order of the demand, in a quarter in a random one. Once they are
//! bound, the planned and coming nodes are created, and the other pods follow. Every planned pod must be bound. In the last
//! quarter every node is there and all pods are ungated at once, in a random order.
//!
//! About half of the clusters have a pool of several templates, with weights, limits, labels, taints and declared resources of
//! their own, and pods that select one, tolerate its taint or avoid it.
//!
//! Every pod that Croft calls infeasible must stay pending, as must a copy of it, with a node of every offering that the
//! pools could launch, unless Croft plans it itself once the others are bound. Groups about which the order of binding
//! decides are printed with the reason (`order.rs`) and counted as `groups_by_order`; a cluster where only a random
//! order explains them must agree in the planned order.
//!
//! `ORACLE_CLUSTERS` is the number of clusters, `ORACLE_SEED` the first; a failing one is shrunk (unless
//! `ORACLE_SHRINK=0`) and printed. They are evaluated on `ORACLE_PLANES` control planes at the same time, which mostly wait
//! for kube-scheduler's back-off.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod fleet;
mod generate;
mod inclusion;
mod opened;
mod opening;
mod order;
mod pods;
mod run;
mod shrink;
mod storage;
mod surroundings;
mod templates;

use std::{
    collections::BTreeMap,
    env,
    ops::AddAssign,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use croft_testkit::{Component, ControlPlane, Options};
use futures::future::join_all;

use crate::{
    generate::Scene,
    opening::Opening,
    order::Reason,
    run::{Arena, Report},
};

/// From this many clusters on, the share of pods that are bound as planned is asserted.
const SHARE_FROM: u64 = 200;
/// Of the pods in clusters that are opened in the planned order, and of those in a random one.
const BOUND_AS_PLANNED: f64 = 0.99;
/// Of the pods in clusters that are opened at once, on any node.
const BOUND_AT_ONCE: f64 = 0.98;
/// At most this share of clusters has a group that the order of binding decided.
const BY_ORDER: f64 = 0.02;
/// Clusters that disagreed once, evaluated with the default seeds.
const KEPT: [u64; 17] = [
    714,
    2_078_400_573,
    2_078_400_833,
    2_078_401_069,
    2_078_401_104,
    2_078_401_353,
    2_078_401_801,
    2_078_414_908,
    2_078_417_452,
    2_078_432_530,
    2_078_451_165,
    2_078_470_069,
    2_078_482_405,
    2_078_490_374,
    2_078_491_216,
    2_078_600_849,
    2_078_700_724,
];

fn opening(seed: u64) -> Opening {
    match seed % 4 {
        1 => Opening::Shuffled,
        3 => Opening::AtOnce,
        _ => Opening::InOrder,
    }
}

/// Pods that were planned, bound, and bound as planned.
#[derive(Clone, Copy, Default)]
struct Pods {
    planned: usize,
    bound: usize,
    home: usize,
}

impl From<&Report> for Pods {
    fn from(report: &Report) -> Self {
        Self { planned: report.planned, bound: report.bound, home: report.home }
    }
}

impl AddAssign for Pods {
    fn add_assign(&mut self, other: Self) {
        self.planned += other.planned;
        self.bound += other.bound;
        self.home += other.home;
    }
}

impl Pods {
    fn share(self, part: usize) -> f64 {
        if self.planned == 0 { 1.0 } else { part as f64 / self.planned as f64 }
    }

    fn bound_share(self) -> f64 {
        self.share(self.bound)
    }

    fn home_share(self) -> f64 {
        self.share(self.home)
    }
}

/// The result of many clusters.
#[derive(Default)]
struct Totals {
    clusters: u64,
    in_order: Pods,
    shuffled: Pods,
    at_once: Pods,
    /// The effect of nominations: a share of the clusters runs without them.
    unaided: Pods,
    infeasible: usize,
    /// Groups that the order of binding decided, by reason.
    by_order: BTreeMap<Reason, usize>,
    failures: Vec<String>,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.clusters += other.clusters;
        self.in_order += other.in_order;
        self.shuffled += other.shuffled;
        self.at_once += other.at_once;
        self.unaided += other.unaided;
        self.infeasible += other.infeasible;
        for (reason, groups) in other.by_order {
            *self.by_order.entry(reason).or_default() += groups;
        }
        self.failures.extend(other.failures);
    }
}

impl Totals {
    fn aided(&self) -> Pods {
        let mut all = self.in_order;
        all += self.shuffled;
        all += self.at_once;
        all
    }

    fn groups_by_order(&self) -> usize {
        self.by_order.values().sum()
    }

    fn print(&self) {
        let aided = self.aided();
        println!(
            "oracle: clusters={} pods_planned={} pods_bound={} pods_infeasible={} disagreements={} groups_by_order={} {:?} \
             bound_as_planned={:.4} bound_as_planned_shuffled={:.4} bound_as_planned_at_once={:.4} bound_at_once={:.4} \
             bound_without_nominations={:.4}",
            self.clusters,
            aided.planned,
            aided.bound,
            self.infeasible,
            self.failures.len(),
            self.groups_by_order(),
            self.by_order,
            self.in_order.home_share(),
            self.shuffled.home_share(),
            self.at_once.home_share(),
            self.at_once.bound_share(),
            self.unaided.bound_share()
        );
    }

    fn check(&self) {
        let failures = &self.failures;
        assert!(failures.is_empty(), "{} clusters disagree:\n{}", failures.len(), failures.join("\n"));
        assert!(self.aided().planned > 0, "nothing was planned");
        if self.clusters < SHARE_FROM {
            return;
        }
        for (name, share, least) in [
            ("bound_as_planned", self.in_order.home_share(), BOUND_AS_PLANNED),
            ("bound_as_planned_shuffled", self.shuffled.home_share(), BOUND_AS_PLANNED),
            ("bound_at_once", self.at_once.bound_share(), BOUND_AT_ONCE),
        ] {
            assert!(share >= least, "{name}={share:.4}, at least {least} is wanted");
        }
        let (by_order, clusters) = (self.groups_by_order(), self.clusters);
        let share = by_order as f64 / clusters as f64;
        assert!(share <= BY_ORDER, "groups_by_order={by_order} in {clusters} clusters, more than {BY_ORDER}");
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Evaluates one cluster; one that disagrees is printed, and shrunk if `shrink`.
async fn evaluate(arena: &Arena, seed: u64, shrink: bool) -> Totals {
    let scene = Scene::new(seed);
    let opening = opening(seed);
    let run = async |opening| match arena.run(&scene, opening).await {
        Ok(report) => report,
        Err(error) => panic!("seed {seed}: {error:#}\n{}", scene.show()),
    };
    let mut report = run(opening).await;
    let mut disagrees_in = opening;
    if opening == Opening::Shuffled && !report.by_order.is_empty() && report.problem.is_none() {
        // In the planned order, what a random one explains is no excuse.
        disagrees_in = Opening::InOrder;
        report.problem = run(disagrees_in).await.problem;
    }
    let mut result = Totals { clusters: 1, infeasible: report.infeasible, ..Totals::default() };
    for (group, reason) in &report.by_order {
        println!("oracle: seed {seed}: the order of binding decided about {group}: {reason:?}");
        *result.by_order.entry(*reason).or_default() += 1;
    }
    match opening {
        Opening::Shuffled => result.shuffled = (&report).into(),
        Opening::AtOnce => result.at_once = (&report).into(),
        _ => result.in_order = (&report).into(),
    }
    if let Some(problem) = report.problem {
        println!("oracle: seed {seed} disagrees: {problem}");
        let (small, problem) = if shrink {
            arena.shrink(scene.clone(), disagrees_in, problem).await.unwrap()
        } else {
            (scene.clone(), problem)
        };
        result.failures.push(format!("seed {seed}: {problem}\n{}", small.show()));
    }
    if seed.is_multiple_of(10) {
        result.unaided = (&arena.run(&scene, Opening::Unaided).await.unwrap()).into();
    }
    result
}

/// Takes `seeds` one by one, until none is left or enough clusters have `failed` on all control planes.
async fn evaluate_many(
    seeds: &Mutex<impl Iterator<Item = u64>>,
    failed: &AtomicUsize,
    shrink: bool,
) -> Totals {
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Kubelets)
        .requests_per_second(1_000);
    let plane = ControlPlane::start(options).await.unwrap();
    let arena = Arena::new(plane.admin().await.unwrap()).await.unwrap();
    let mut result = Totals::default();
    let enough = if shrink { 5 } else { 50 };
    while failed.load(Ordering::Relaxed) < enough {
        let next = seeds.lock().unwrap().next();
        let Some(seed) = next else { break };
        let one = evaluate(&arena, seed, shrink).await;
        failed.fetch_add(one.failures.len(), Ordering::Relaxed);
        result += one;
    }
    plane.stop().unwrap();
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_pods_are_bound_and_infeasible_pods_stay_pending() {
    let given = number("ORACLE_SEED");
    let kept = KEPT.into_iter().filter(|_| given.is_none());
    let first = given.unwrap_or(0);
    let seeds = Mutex::new(kept.chain(first..first + number("ORACLE_CLUSTERS").unwrap_or(50)));
    let shrink = number("ORACLE_SHRINK") != Some(0);
    let failed = AtomicUsize::new(0);
    let planes = (0..number("ORACLE_PLANES").unwrap_or(1)).map(|_| evaluate_many(&seeds, &failed, shrink));
    let mut totals = Totals::default();
    for result in join_all(planes).await {
        totals += result;
    }
    totals.print();
    totals.check();
}
