//! Which pods are demand, and in which order.

use croft_scheduler::{ComingNode, Options, PodKey, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    build::{self, cluster, kinds, node, plan, pod, pool},
    many,
};

#[test]
fn limit_admits_pods_of_higher_priority_first() {
    let mut p = pool("p", kinds());
    p.limits.insert("cpu".to_owned(), "2".parse().unwrap());
    let pods: Vec<Pod> = [("low", 0), ("high", 1000), ("middle", 10)]
        .map(|(name, priority)| pod(name, "1", "1Gi", json!({"spec": {"priority": priority}})))
        .to_vec();
    let plan = plan(&cluster(vec![p], &pods));
    let left: Vec<&str> = plan.unschedulable.iter().map(|u| &*u.pod.name).collect();
    assert_eq!(left, ["low"]);
}

#[test]
fn pending_pods_of_every_scheduler_are_demand() {
    for (more, demand) in [
        (json!({}), 1),
        (json!({"spec": {"schedulerName": "default-scheduler"}}), 1),
        (json!({"spec": {"schedulerName": "other"}}), 1),
        (json!({"spec": {"schedulingGates": [{"name": "wait"}]}}), 0),
        (json!({"spec": {"nodeName": "n"}}), 0),
        (json!({"status": {"phase": "Succeeded"}}), 0),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), 0),
        (
            json!({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d",
                "uid": "u", "controller": true}]}}),
            0,
        ),
    ] {
        let c = cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", more.clone())]);
        assert_eq!(c.pending(), demand, "{more}");
    }
}

#[test]
fn pods_of_an_ignored_scheduler_are_no_demand_until_it_counts_again() {
    let of =
        |name: &str, scheduler: &str| pod(name, "1", "1Gi", json!({"spec": {"schedulerName": scheduler}}));
    let mut c = cluster(vec![pool("p", kinds())], &[of("a", "volcano"), of("b", "other"), of("c", "")]);
    c.ignore_schedulers(["volcano"]);
    assert_eq!(c.pending(), 2);
    // One is upserted again, and another is new.
    c.upsert_pod(&of("a", "volcano")).unwrap();
    c.upsert_pod(&of("d", "volcano")).unwrap();
    assert_eq!(c.pending(), 2);
    c.remove_pod("default", "d");
    c.ignore_schedulers(["other"]);
    assert_eq!(c.pending(), 2);
    c.ignore_schedulers([]);
    assert_eq!(c.pending(), 3);
}

#[test]
fn coming_node_takes_pods_before_another_launch() {
    let mut c = cluster(vec![pool("p", kinds())], &many(3, "1", &json!({})));
    c.upsert_coming(ComingNode {
        instance_type: "m.2".to_owned(),
        // A startup taint, which is removed while the node starts.
        taints: vec![build::taint("node.kubernetes.io/not-ready", "")],
        ..build::coming("p-1", "2", "8Gi", json!({build::ZONE: "zone-a"}))
    });
    let plan = plan(&c);
    assert_eq!((plan.existing[0].node.as_str(), plan.existing[0].coming), ("p-1", true));
    assert_eq!((plan.existing[0].pods.len(), plan.instances.len()), (2, 1));
}

#[test]
fn pod_for_which_others_are_preempted_gets_no_node_of_its_own() {
    let victim =
        |priority: i32| pod("old", "3", "1Gi", json!({"spec": {"nodeName": "n", "priority": priority}}));
    let waiting = |cpu: &str, node: &str| {
        pod("new", cpu, "1Gi", json!({"spec": {"priority": 10}, "status": {"nominatedNodeName": node}}))
    };
    for (cpu, node_name, priority, launched) in [
        ("3", "n", 0, 0),
        // Larger than the node, a node that is gone, a pod that it can't preempt, and no nomination.
        ("5", "n", 0, 1),
        ("3", "gone", 0, 1),
        ("3", "n", 10, 1),
        ("3", "", 0, 1),
    ] {
        let mut c = cluster(vec![pool("p", kinds())], &[victim(priority), waiting(cpu, node_name)]);
        c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        let plan = plan(&c);
        let case = format!("{cpu} on {node_name:?} over {priority}");
        assert_eq!((plan.instances.len(), plan.unschedulable.len()), (launched, 0), "{case}");
        let there: Vec<&str> = plan.existing.iter().flat_map(|e| &e.pods).map(|pod| &*pod.name).collect();
        assert_eq!(there, if launched == 0 { vec!["new"] } else { vec![] }, "{case}");
    }
    let mut c = cluster(vec![pool("p", kinds())], &[victim(0), waiting("3", "n")]);
    c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
    let ruled_out = vec![(PodKey::new("default", "new"), "n".to_owned())];
    let plan = solve(&c, &Options { ruled_out, ..Options::default() }, &|| false);
    assert_eq!(plan.instances.len(), 1, "kube-scheduler has rejected the node");
}

#[test]
fn no_pod_is_planned_onto_a_node_that_is_closed() {
    let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", json!({}))]);
    c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
    for simulate_default_scheduler in [false, true] {
        for (closed, launched) in [("n", 1), ("other", 0)] {
            let closed_nodes = vec![closed.to_owned()];
            let options = Options { closed_nodes, simulate_default_scheduler, ..Options::default() };
            let plan = solve(&c, &options, &|| false);
            assert_eq!((plan.instances.len(), plan.unschedulable.len()), (launched, 0), "{closed} is closed");
        }
    }
}

#[test]
fn mirrors_of_static_pods_need_no_other_node() {
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "hash"}}, "spec": {"nodeName": "n"}});
    let mut c = cluster(vec![pool("p", kinds())], &[pod("proxy", "1", "1Gi", mirror)]);
    c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
    let without = Options { without_nodes: vec!["n".to_owned()], ..Options::default() };
    let plan = solve(&c, &without, &|| false);
    assert!(plan.instances.is_empty() && plan.unschedulable.is_empty());
}

#[test]
fn pods_that_are_being_deleted_need_another_node_only_if_their_controller_waits_for_their_end() {
    let deleted = |owner: &str| {
        let controller =
            json!({"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "u", "controller": true});
        let owners = if owner.is_empty() { json!([]) } else { json!([controller]) };
        json!({"metadata": {"deletionTimestamp": "2026-11-30T12:00:00Z", "ownerReferences": owners}, "spec": {"nodeName": "n"}})
    };
    for (owner, launched) in [("ReplicaSet", 0), ("Job", 0), ("", 0), ("StatefulSet", 1), ("CloneSet", 1)] {
        let mut c = cluster(vec![pool("p", kinds())], &[pod("web", "1", "1Gi", deleted(owner))]);
        c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        let without = Options { without_nodes: vec!["n".to_owned()], ..Options::default() };
        let plan = solve(&c, &without, &|| false);
        assert_eq!(plan.instances.len(), launched, "{owner:?}");
    }
}
