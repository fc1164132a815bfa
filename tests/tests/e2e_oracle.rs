//! The scheduler against the real kube-scheduler: random clusters, planned by Croft, bound by Kubernetes.
//!
//! Each cluster has nodes with pods, coming nodes and gated pending pods. Croft plans; pods for existing nodes are
//! nominated and ungated, in half of the clusters in the order of the demand, in the others in a random one. Once they are
//! bound, the planned and coming nodes are created, and the other pods follow. Every planned pod must be bound. Every pod that Croft calls infeasible must stay pending, as
//! must a copy of it, with a node of every offering that the pools could launch. `ORACLE_CLUSTERS` is the number of
//! clusters, `ORACLE_SEED` the first; a failing one is shrunk (unless `ORACLE_SHRINK=0`) and printed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod oracle;

use std::env;

use croft_testkit::{Component, ControlPlane, Options};
use oracle::{
    generate::Scene,
    run::{Arena, Opening},
};

fn count(default: u64) -> u64 {
    env::var("ORACLE_CLUSTERS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_pods_are_bound_and_infeasible_pods_stay_pending() {
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Kubelets)
        .requests_per_second(1_000);
    let plane = ControlPlane::start(options).await.unwrap();
    let arena = Arena::new(plane.admin().await.unwrap()).await.unwrap();
    let first: u64 = env::var("ORACLE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut failures = Vec::new();
    let shrink = env::var("ORACLE_SHRINK").map_or(true, |s| s != "0");
    let (mut clusters, mut planned, mut bound, mut refused) = (0, 0, 0, 0);
    // Pods that are bound as planned, and all, in order and shuffled.
    let mut home = [(0, 0); 2];
    // The effect of nominations: a share of the clusters runs without them.
    let (mut alone, mut all) = (0, 0);
    for seed in first..first + count(50) {
        let scene = Scene::new(seed);
        let opening = if seed % 2 == 0 { Opening::InOrder } else { Opening::Shuffled };
        let report = match arena.run(&scene, opening).await {
            Ok(report) => report,
            Err(error) => panic!("seed {seed}: {error:#}\n{}", scene.show()),
        };
        clusters += 1;
        planned += report.planned;
        bound += report.bound;
        let (at_home, all_of) = &mut home[usize::from(opening == Opening::Shuffled)];
        *at_home += report.home;
        *all_of += report.planned;
        refused += report.refused;
        if let Some(problem) = report.problem {
            println!("oracle: seed {seed} disagrees: {problem}");
            let (small, problem) = if shrink {
                arena.shrink(scene.clone(), opening, problem).await.unwrap()
            } else {
                (scene.clone(), problem)
            };
            failures.push(format!("seed {seed}: {problem}\n{}", small.show()));
            if failures.len() >= if shrink { 5 } else { 50 } {
                break;
            }
        }
        if seed % 10 == 0 {
            let report = arena.run(&scene, Opening::Unaided).await.unwrap();
            alone += report.bound;
            all += report.planned;
        }
    }
    let share = |part: usize, whole: usize| if whole == 0 { 1.0 } else { part as f64 / whole as f64 };
    println!(
        "oracle: clusters={clusters} pods_planned={planned} pods_bound={bound} pods_impossible={refused} disagreements={} bound_as_planned={:.4} \
         bound_as_planned_shuffled={:.4} bound_without_nominations={:.4}",
        failures.len(),
        share(home[0].0, home[0].1),
        share(home[1].0, home[1].1),
        share(alone, all)
    );
    plane.stop().unwrap();
    assert!(failures.is_empty(), "{} clusters disagree:\n{}", failures.len(), failures.join("\n"));
    assert!(planned > 0, "nothing was planned");
}
