//! Requests, resizes, devices, and reasons for pods that are too large.

use croft_scheduler::{Operator, Requirement};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    TYPE,
    build::{cluster, kind, kinds, node, plan, pod, pool, why},
    one, only_type,
};

#[test]
fn pod_level_requests_replace_those_of_containers() {
    for (resources, kind) in [
        (json!({"requests": {"cpu": "3"}}), "m.4"),
        (json!({"requests": {"cpu": "3", "memory": "20Gi"}}), "m.8"),
        // Below the sum of the containers' requests: the pod-level request applies nevertheless.
        (json!({"requests": {"cpu": "500m", "memory": "1Gi"}}), "m.1"),
        // A limit becomes a request only if no container requests the resource.
        (json!({"limits": {"cpu": "7"}}), "m.1"),
    ] {
        assert_eq!(only_type(&one(json!({"spec": {"resources": resources}}))), kind, "{resources}");
    }
}

#[test]
fn resize_in_progress_counts_the_larger_of_spec_and_allocation() {
    let status = |allocated: &str, more: Value| {
        let mut status = json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "i", "imageID": "i",
            "ready": true, "restartCount": 0, "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": allocated}}}]});
        if !more.is_null() {
            status["conditions"] = more;
        }
        json!({"spec": {"nodeName": "n"}, "status": status})
    };
    let infeasible = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
    let deferred = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]);
    for (wish, allocated, condition, fits) in [
        ("1", "1", Value::Null, true),
        ("1", "3", Value::Null, false),
        ("3", "1", Value::Null, false),
        ("3", "1", deferred, false),
        ("3", "1", infeasible, true),
    ] {
        let mut c = cluster(vec![], &[]);
        c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        c.upsert_pod(&pod("r", wish, "1Gi", status(allocated, condition.clone()))).unwrap();
        c.upsert_pod(&pod("a", "2", "1Gi", json!({}))).unwrap();
        assert_eq!(plan(&c).existing.len() == 1, fits, "{wish} {allocated} {condition}");
    }
}

#[test]
fn pod_level_resize_counts_like_that_of_containers() {
    let held = json!({"requests": {"cpu": "3"}});
    for (status, fits) in [
        (json!({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}), true),
        (json!({"resources": held, "allocatedResources": {"cpu": "1"}}), false),
        (json!({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}}), false),
        // Accepted, but not reported as allocated by the kubelet yet.
        (json!({"allocatedResources": {"cpu": "3"}}), true),
    ] {
        let mut c = cluster(vec![], &[]);
        c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        let more =
            json!({"spec": {"nodeName": "n", "resources": {"requests": {"cpu": "1"}}}, "status": status});
        c.upsert_pod(&pod("r", "500m", "1Gi", more)).unwrap();
        c.upsert_pod(&pod("a", "2", "1Gi", json!({}))).unwrap();
        assert_eq!(plan(&c).existing.len() == 1, fits, "{status}");
    }
}

#[test]
fn devices_are_counted_by_resource_name() {
    let mut gpu = kind("g.8", "8", "32Gi", 3.0);
    gpu.capacity.set_quantity("nvidia.com/gpu", "2".parse().unwrap());
    let mut all = kinds();
    all.push(gpu);
    let device = |count: &str| {
        json!({"spec": {"containers": [{"name": "c", "resources": {
            "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": count}}}]}})
    };
    let pods: Vec<Pod> = (0..3).map(|i| pod(&format!("p{i}"), "1", "1Gi", device("1"))).collect();
    let plan1 = plan(&cluster(vec![pool("p", all.clone())], &pods));
    assert_eq!(
        plan1.instances.iter().map(|instance| instance.instance_type.as_str()).collect::<Vec<_>>(),
        ["g.8", "g.8"]
    );
    let plan2 = plan(&cluster(vec![pool("p", all)], &[pod("a", "1", "1Gi", device("3"))]));
    assert_eq!(
        why(&plan2),
        ["p InsufficientResources: largest allocatable nvidia.com/gpu in p is 2, pod asks 3"]
    );
}

#[test]
fn oversized_pod_reason_uses_readable_units() {
    let plan = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "10000", "1Gi", json!({}))]));
    assert_eq!(
        why(&plan),
        ["p InsufficientResources: largest allocatable cpu in p is 16 cores, pod asks 10000 cores"]
    );
}

#[test]
fn min_values_keep_enough_instance_types() {
    let mut p = pool("p", kinds());
    p.requirements = vec![Requirement {
        key: TYPE.to_owned(),
        operator: Operator::Exists,
        values: vec![],
        min_values: Some(3),
    }];
    let small = plan(&cluster(vec![p.clone()], &[pod("a", "1", "1Gi", json!({}))]));
    assert!(small.instances[0].options.len() >= 3, "{:?}", small.instances[0].options);
    let large = plan(&cluster(vec![p], &[pod("a", "15", "1Gi", json!({}))]));
    assert_eq!(large.unschedulable.len(), 1, "only one type holds it");
    assert_eq!(why(&large), [format!("p MinValues: p wants a choice of 3 different {TYPE}; 1 hold the pod")]);
}
