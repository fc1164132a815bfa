//! A plan that panics fails its pool alone.

use std::collections::BTreeSet;

use croft_api::TenantPool;
use croft_controller::{
    action::Action,
    kube_api::{Call, Target, Verb},
    provisioning::panic_isolation::search,
    solver::{Panicked, Purpose, Solver, catch},
};
use croft_scheduler::{Cluster, consolidation::Consolidation, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::bench::{Bench, at, pod, pool, read};

/// A pool's status is compared again by then, whether or not anything has changed.
const LOOKED_AGAIN: u64 = 100;

/// Another pool, with `more` in its spec.
fn pool_b(version: u64, more: &Value) -> Box<TenantPool> {
    let pool = pool(version, more);
    let mut object = serde_json::to_value(*pool).unwrap();
    object["metadata"]["name"] = json!("pool-b");
    object["metadata"]["uid"] = json!("pool-b-uid");
    read(object)
}

fn pod_b(name: &str) -> Box<Pod> {
    let pod = pod(name, None);
    let mut object = serde_json::to_value(*pod).unwrap();
    object["spec"]["nodeSelector"]["node-pool"] = json!("pool-b");
    object["spec"]["tolerations"][0]["value"] = json!("pool-b");
    read(object)
}

/// A bench of two pools, where every plan panics in which a pod waits that may enter pool-b.
fn poisoned(a: &Value, b: &Value) -> Bench {
    let mut bench = Bench::with_pool(a);
    bench.see(0, pool_b(4, b));
    bench.engine.set_solver(Solver::new(|cluster: &Cluster, options| {
        assert!(cluster.waiting().for_pool(cluster, "pool-b").is_none(), "a poison pod");
        solve(cluster, options, &|| false)
    }));
    bench
}

/// The pools that claims are made for from `seconds` to two seconds later.
fn launches(bench: &mut Bench, seconds: u64) -> Vec<String> {
    let mut pools = Vec::new();
    for second in [seconds, seconds + 2] {
        for action in bench.decide(second) {
            if let Action::CreateClaims(new) = &action {
                pools.push(new.pool.clone());
            }
            bench.done(second, &action, Vec::new());
        }
    }
    pools
}

/// The scheduling condition of pool-b, as written at `seconds`.
fn said(bench: &mut Bench, seconds: u64) -> Option<Value> {
    let actions = bench.engine.step(at(seconds)).actions;
    let conditions = actions.iter().find_map(|action| match action {
        Action::Write {
            call: Call { target: Target::Pool(pool), verb: Verb::PatchStatus(patch) }, ..
        } if pool == "pool-b" => patch["status"]["conditions"].as_array().cloned(),
        _ => None,
    });
    for action in &actions {
        bench.done(seconds, action, Vec::new());
    }
    conditions.into_iter().flatten().find(|condition| condition["type"] == json!("PlanningFailed"))
}

fn panics(bench: &Bench, run: Purpose) -> u64 {
    bench.engine.solver().panics().find(|(one, _)| *one == run).unwrap().1
}

#[test]
fn pods_whose_plan_panics_are_left_out_and_those_of_other_pools_get_their_nodes() {
    let mut bench = poisoned(&json!({}), &json!({}));
    bench.see(1, pod("fine", None));
    bench.see(1, pod_b("poison"));
    assert_eq!(launches(&mut bench, 1), ["pool-a"]);
    assert!(panics(&bench, Purpose::Pods) >= 2, "together, and alone");
    assert!(bench.metric(r#"croft_controller_solver_panics_total{run="pods"}"#) >= 2.0);
    // As long as nothing changes it costs nothing.
    let before = panics(&bench, Purpose::Pods);
    bench.see(25, pod("another", None));
    launches(&mut bench, 25);
    assert_eq!(panics(&bench, Purpose::Pods), before);

    let condition = said(&mut bench, LOOKED_AGAIN).expect("the pool says so");
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("SolverPanicked")));
    assert!(condition["message"].as_str().unwrap().contains("a poison pod"), "{condition}");

    // Healed, and changed: planned again.
    bench.engine.set_solver(Solver::default());
    bench.see(120, pod_b("more"));
    assert!(launches(&mut bench, 120).contains(&"pool-b".to_owned()));
}

#[test]
fn what_is_left_out_is_tried_again_when_its_time_comes() {
    let mut bench = poisoned(&json!({}), &json!({}));
    bench.see(1, pod_b("poison"));
    assert_eq!(launches(&mut bench, 1), Vec::<String>::new());
    bench.engine.set_solver(Solver::default());
    assert_eq!(launches(&mut bench, 100), Vec::<String>::new());
    assert_eq!(launches(&mut bench, 304), ["pool-b"]);
}

#[test]
fn headroom_whose_plan_panics_leaves_other_pools_alone() {
    let headroom = json!({"headroom": {"pods": 1, "requests": {"cpu": "1"}}});
    let mut bench = poisoned(&json!({}), &headroom);
    bench.see(1, pod("fine", None));
    assert_eq!(launches(&mut bench, 1), ["pool-a"]);
    assert!(said(&mut bench, LOOKED_AGAIN).is_some());
}

#[test]
fn a_pool_of_a_fixed_size_whose_plan_panics_leaves_other_pools_alone() {
    let mut bench = poisoned(&json!({"replicas": 1}), &json!({"replicas": 1}));
    assert!(launches(&mut bench, 1).contains(&"pool-a".to_owned()));
    launches(&mut bench, 5);
    assert_eq!(panics(&bench, Purpose::Replicas), 1);
    let condition = said(&mut bench, LOOKED_AGAIN).expect("the pool says so");
    assert!(condition["message"].as_str().unwrap().contains("(replicas)"), "{condition}");
}

#[test]
fn a_search_that_panics_for_one_pool_answers_for_the_others() {
    let pools: BTreeSet<String> = ["a", "b", "c"].map(str::to_owned).into();
    let (found, panicked) = search(&pools, |pools| {
        catch(|| {
            assert!(!pools.contains("b"), "poison");
            Consolidation { steps: 10 * pools.len() as u64, ..Consolidation::default() }
        })
    });
    assert_eq!(found.steps, 20);
    assert_eq!(panicked.into_iter().collect::<Vec<_>>(), [("b".to_owned(), Panicked("poison".to_owned()))]);
}
