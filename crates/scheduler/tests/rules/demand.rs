//! Which pods are demand, and in which order.

use croft_scheduler::ComingNode;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    build::{self, cluster, kinds, plan, pod, pool},
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
fn only_pending_pods_of_the_default_scheduler_are_demand() {
    for (more, demand) in [
        (json!({}), 1),
        (json!({"spec": {"schedulerName": "default-scheduler"}}), 1),
        (json!({"spec": {"schedulerName": "other"}}), 0),
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
