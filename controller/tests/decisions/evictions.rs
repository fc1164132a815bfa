//! Evictions of the pods of nodes that are removed.

use std::time::Duration;

use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Target, Verb},
    result::{ActionReport, ActionResult, Backoff},
};
use croft_scheduler::PodKey;
use k8s_openapi::api::{core::v1::PodStatus, policy::v1::PodDisruptionBudget};
use serde_json::json;

use crate::bench::{Bench, at, claim, launched, node, pod, read, registered_labels};

/// A node that is being removed, with `pods`, which a PodDisruptionBudget covers.
fn drained(pods: &[&str], allowed: i32) -> Bench {
    let disrupted = json!([{"key": "croft.dev/disrupted", "effect": "NoSchedule"}]);
    let mut bench = Bench::new();
    bench.see(1, claim(10, launched(&["Registered", "Initialized"]), true));
    bench.see(1, node(20, "aws:///us-east-1a/i-1", registered_labels(), disrupted, true));
    for name in pods {
        let mut pod = pod(name, Some("node-1"));
        pod.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
        pod.status = running("True");
        bench.see(1, pod);
    }
    allow(&mut bench, 1, allowed);
    bench
}

/// The status of a pod that runs.
fn running(ready: &str) -> Option<PodStatus> {
    *read(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}))
}

fn allow(bench: &mut Bench, seconds: u64, allowed: i32) {
    allow_of(bench, seconds, ("tenant-a", "web"), allowed);
}

/// Shows the PodDisruptionBudget of an app.
fn allow_of(bench: &mut Bench, seconds: u64, (namespace, app): (&str, &str), allowed: i32) {
    let budget = json!({
        "metadata": {"name": app, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    bench.see(seconds, read::<PodDisruptionBudget>(budget));
}

/// Ends the action on pod a.
fn answer(bench: &mut Bench, seconds: u64, result: ActionResult, backoff: Backoff) {
    let keys = vec![Key::Pod(key("a"))];
    bench
        .engine
        .complete(ActionReport { results: vec![result], backoff, ..ActionReport::done(keys) }, at(seconds));
}

fn key(name: &str) -> PodKey {
    PodKey::new("tenant-a", name)
}

/// The pods whose eviction is asked for.
fn evicted(actions: &[Action]) -> Vec<&str> {
    let calls = actions.iter().filter_map(|action| match action {
        Action::Write { call, .. } if matches!(call.verb, Verb::Evict { .. }) => Some(&call.target),
        _ => None,
    });
    calls.map(|target| if let Target::Pod(_, name) = target { name } else { "" }).collect()
}

#[test]
fn no_more_pods_are_evicted_at_once_than_their_budget_allows() {
    let mut bench = drained(&["a", "b", "c"], 1);
    let first = bench.decide(1);
    assert_eq!(evicted(&first), ["a"]);
    answer(&mut bench, 1, ActionResult::Evicted(key("a")), Backoff::After(Duration::from_secs(2)));
    assert!(evicted(&bench.decide(2)).is_empty(), "the budget's status may not count it yet");

    allow(&mut bench, 2, 0);
    bench.see(2, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    assert!(evicted(&bench.decide(3)).is_empty(), "its replacement isn't ready");
    allow(&mut bench, 4, 1);
    assert_eq!(evicted(&bench.decide(4)), ["b"], "as soon as the budget allows one more");
}

#[test]
fn evictions_count_for_the_budgets_of_their_own_pods_only() {
    let mut bench = drained(&["a"], 1);
    for (namespace, app, name) in [("tenant-a", "api", "b"), ("tenant-b", "web", "c")] {
        let mut pod = pod(name, Some("node-1"));
        pod.metadata.namespace = Some(namespace.to_owned());
        pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        bench.see(1, pod);
        allow_of(&mut bench, 1, (namespace, app), 1);
    }
    assert_eq!(evicted(&bench.decide(1)), ["a", "b", "c"]);
}

#[test]
fn pods_that_serve_the_node_are_evicted_after_those_that_they_serve() {
    let mut bench = drained(&["a"], 1);
    for (name, priority) in [("agent", 1_000_000_000), ("b", 999_999_999)] {
        let mut pod = pod(name, Some("node-1"));
        pod.spec.get_or_insert_default().priority = Some(priority);
        bench.see(1, pod);
    }
    assert_eq!(evicted(&bench.decide(1)), ["a", "b"]);
    bench.see(2, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "a")));
    assert!(evicted(&bench.decide(2)).is_empty());
    bench.see(3, Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "b")));
    assert_eq!(evicted(&bench.decide(3)), ["agent"]);
}

#[test]
fn a_failed_eviction_uses_up_no_budget() {
    let mut bench = drained(&["a", "b"], 1);
    assert_eq!(evicted(&bench.decide(1)), ["a"]);
    let keys = vec![Key::Pod(key("a"))];
    let backoff = Backoff::Failed(Duration::from_secs(2));
    bench.engine.complete(ActionReport { backoff, ..ActionReport::done(keys) }, at(1));
    assert_eq!(evicted(&bench.decide(4)), ["a"]);
}

#[test]
fn a_budget_that_allows_none_is_asked_now_and_then_all_the_same() {
    let mut bench = drained(&["a"], 0);
    assert!(evicted(&bench.decide(1)).is_empty());
    assert!(bench.told.is_empty(), "the next status of the budget may allow it");
    assert!(evicted(&bench.decide(15)).is_empty());
    let is_blocked = |(_, note): &(String, String)| note.ends_with("PodDisruptionBudget web allows none");
    assert!(bench.told.iter().any(is_blocked), "{:?}", bench.told);
    let asked = bench.decide(16);
    assert_eq!(evicted(&asked), ["a"], "the watch may lag, and the pod may not be ready");
    let refused = ActionResult::EvictionBlocked(key("a"), "the budget is 0".to_owned());
    answer(&mut bench, 16, refused, Backoff::Failed(Duration::from_secs(5)));
    assert!(evicted(&bench.decide(45)).is_empty(), "it waits twice as long before it is asked again");
    assert_eq!(evicted(&bench.decide(46)), ["a"]);
    let is_told =
        |(reason, note): &(String, String)| reason == "FailedDraining" && note.ends_with("the budget is 0");
    assert!(bench.told.iter().any(is_told), "{:?}", bench.told);
}

#[test]
fn pods_that_no_budget_guards_are_evicted_beside_those_that_wait() {
    let mut bench = drained(&["a", "b"], 0);
    assert!(evicted(&bench.decide(1)).is_empty());
    let mut unready = pod("b", Some("node-1"));
    unready.metadata.labels = Some([("app".to_owned(), "web".to_owned())].into());
    unready.metadata.resource_version = Some("600".to_owned());
    unready.status = running("False");
    bench.see(2, unready);
    assert_eq!(evicted(&bench.decide(2)), ["b"], "the budget is met without it");
}
