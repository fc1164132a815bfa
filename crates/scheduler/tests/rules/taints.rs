//! Taints and tolerations.

use croft_scheduler::{Options, solve};
use k8s_openapi::api::core::v1::Taint;
use serde_json::json;

use crate::build::{self, cluster, kinds, node, plan, pod, pool};

fn prefer_not(key: &str) -> Taint {
    Taint { effect: "PreferNoSchedule".to_owned(), ..build::taint(key, "x") }
}

#[test]
fn startup_taints_exclude_no_pod_and_are_listed() {
    let mut p = pool("p", kinds());
    p.startup_taints = vec![build::taint("agent", "starting")];
    let plan = plan(&cluster(vec![p], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!(plan.instances[0].startup_taints.len(), 1);
}

/// kube-scheduler evaluates them behind a feature gate: a pod with one has a place by its other tolerations, and holds its room.
#[test]
fn tolerations_that_compare_numbers_are_not_counted_on_and_stop_no_pod() {
    let compares = json!({"spec": {"tolerations": [{"key": "tier", "operator": "Gt", "value": "5"}]}});
    let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", compares.clone())]);
    let mut full = node("n", "2", "8Gi", json!({}));
    full.spec.get_or_insert_default().taints = Some(vec![build::taint("tier", "9")]);
    c.upsert_node(&full).unwrap();
    let planned = plan(&c);
    assert_eq!((planned.instances.len(), planned.existing.len()), (1, 0), "no place on the tainted node");
    let mut bound = compares;
    bound["spec"]["nodeName"] = json!("m");
    c.upsert_node(&node("m", "2", "8Gi", json!({}))).unwrap();
    c.upsert_pod(&pod("bound", "2", "1Gi", bound)).unwrap();
    let planned = plan(&c);
    assert_eq!((planned.instances.len(), planned.existing.len()), (1, 0), "the bound pod fills its node");
}

#[test]
fn prefer_no_schedule_taints_are_avoided_at_no_cost() {
    let mut c = cluster(vec![], &[]);
    let mut avoided = node("a-first-by-name", "2", "8Gi", json!({}));
    avoided.spec.get_or_insert_default().taints = Some(vec![prefer_not("slow")]);
    c.upsert_node(&avoided).unwrap();
    c.upsert_node(&node("b", "2", "8Gi", json!({}))).unwrap();
    for (name, home) in [("p1", "b"), ("p2", "a-first-by-name")] {
        c.upsert_pod(&pod(name, "1500m", "1Gi", json!({}))).unwrap();
        let plan = plan(&c);
        assert_eq!(plan.existing.last().map(|e| e.pods.len()), Some(1), "{plan:?}");
        assert!(plan.existing.iter().any(|e| e.node == home), "{name}");
    }
    let mut p = pool("p", kinds());
    p.taints = vec![prefer_not("slow")];
    assert_eq!(plan(&cluster(vec![p], &[pod("a", "1", "1Gi", json!({}))])).instances.len(), 1);
}

#[test]
fn kube_scheduler_binds_to_the_emptiest_node_of_those_without_such_a_taint() {
    let mut c = cluster(vec![], &[pod("a", "1", "1Gi", json!({}))]);
    let mut empty = node("empty", "16", "64Gi", json!({}));
    c.upsert_node(&node("full", "2", "8Gi", json!({}))).unwrap();
    c.upsert_node(&empty).unwrap();
    let options = Options { simulate_default_scheduler: true, ..Options::default() };
    let home = |c: &croft_scheduler::Cluster| solve(c, &options, &|| false).existing[0].node.clone();
    assert_eq!(home(&c), "empty");
    empty.spec.get_or_insert_default().taints = Some(vec![prefer_not("slow")]);
    c.upsert_node(&empty).unwrap();
    assert_eq!(home(&c), "full");
    // Where no other has room, it takes the pod all the same.
    c.remove_node("full");
    assert_eq!(home(&c), "empty");
}
