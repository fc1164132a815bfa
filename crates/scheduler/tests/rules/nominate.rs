//! When a plan needs no nominations.

use croft_scheduler::PodKey;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::build::{ZONE, cluster, kinds, node, pod, pool};

fn pinned(name: &str, cpu: &str, to: &str, more: Value) -> Pod {
    let mut spec = json!({
        "nodeSelector": {"node-pool": to},
        "tolerations": [{"key": "node-pool", "operator": "Equal", "value": to, "effect": "NoSchedule"}],
    });
    if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    pod(name, cpu, "1Gi", json!({"spec": spec}))
}

/// Whether the plan of two like pods for one node of pool `a` needs no nominations, while `others` wait.
fn interchangeable(planned: [Pod; 2], others: &[Pod]) -> bool {
    let mut cluster = cluster(vec![pool("a", kinds()), pool("b", kinds())], &planned);
    for other in others {
        cluster.upsert_pod(other).unwrap();
    }
    cluster.upsert_node(&node("n", "8", "32Gi", json!({"node-pool": "a"}))).unwrap();
    let keys = [PodKey::new("default", "p1"), PodKey::new("default", "p2")];
    for key in &keys {
        cluster.nominate(key, "n", false);
    }
    cluster.interchangeable(&keys)
}

fn alike() -> [Pod; 2] {
    ["p1", "p2"].map(|name| pinned(name, "1", "a", json!({})))
}

#[test]
fn like_pods_that_have_the_pool_for_themselves_need_none() {
    assert!(interchangeable(alike(), &[]));
    let non_tenant = pinned("other", "2", "b", json!({}));
    assert!(interchangeable(alike(), &[non_tenant]), "it can't enter the pool");
    let one_more = pinned("p3", "1", "a", json!({}));
    assert!(interchangeable(alike(), &[one_more]));
}

#[test]
fn pods_that_another_pod_may_displace_need_nominations() {
    let larger = pinned("other", "2", "a", json!({}));
    assert!(!interchangeable(alike(), &[larger]), "another pod of the pool");
    let [one, _] = alike();
    assert!(!interchangeable([one, pinned("p2", "2", "a", json!({}))], &[]), "two kinds on one instance");
    let spread = json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {},
    }]});
    let spread = ["p1", "p2"].map(|name| pinned(name, "1", "a", spread.clone()));
    assert!(!interchangeable(spread, &[]), "where the others are matters");
}

#[test]
fn those_who_are_even_with_what_runs_may_be_told_together() {
    let more = |node: Option<&str>| {
        let mut more = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [{
            "maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}}}]}});
        if let Some(node) = node {
            more["spec"]["nodeName"] = json!(node);
        }
        more
    };
    let told = |running: [usize; 2]| {
        let planned = ["p1", "p2"].map(|name| pod(name, "1", "1Gi", more(None)));
        let mut cluster = cluster(vec![pool("a", kinds())], &planned);
        for (zone, count) in ["zone-a", "zone-b"].into_iter().zip(running) {
            let labels = json!({"topology.kubernetes.io/zone": zone});
            cluster.upsert_node(&node(zone, "8", "32Gi", labels)).unwrap();
            for n in 0..count {
                cluster.upsert_pod(&pod(&format!("{zone}-{n}"), "1", "1Gi", more(Some(zone)))).unwrap();
            }
        }
        let keys = [PodKey::new("default", "p1"), PodKey::new("default", "p2")];
        // A planned pod isn't bound, and counts for nothing.
        keys.iter().for_each(|key| cluster.nominate(key, "zone-a", false));
        let labels = [("topology.kubernetes.io/zone".to_owned(), "zone-a".to_owned())].into();
        cluster.nominable(&keys, &labels).len()
    };
    assert_eq!(told([0, 0]), 2);
    assert_eq!(told([1, 0]), 1, "both would be three against none");
    assert_eq!(told([4, 4]), 2);
    assert_eq!(told([3, 4]), 2);
}

#[test]
fn pods_planned_onto_other_nodes_of_the_domain_count_once_it_is_their_turn() {
    let labels = |zone: &str| json!({ ZONE: zone });
    let of_app = json!({"metadata": {"labels": {"app": "a"}}});
    let even = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}}}]}});
    let pods = [("even-1", &even), ("even-2", &even), ("other-1", &of_app), ("other-2", &of_app)];
    let mut cluster =
        cluster(vec![pool("a", kinds())], &pods.map(|(name, more)| pod(name, "1", "1Gi", more.clone())));
    for zone in ["zone-b", "zone-c"] {
        cluster.upsert_node(&node(zone, "8", "32Gi", labels(zone))).unwrap();
        let mut there = of_app.clone();
        there["spec"] = json!({"nodeName": zone});
        cluster.upsert_pod(&pod(&format!("in-{zone}"), "1", "1Gi", there)).unwrap();
    }
    let planned =
        |number: u32| ["even", "other"].map(|name| PodKey::new("default", &format!("{name}-{number}")));
    let zone_a = [(ZONE.to_owned(), "zone-a".to_owned())].into();
    for (number, name) in [(1, "n1"), (2, "n2")] {
        cluster.upsert_node(&node(name, "8", "32Gi", labels("zone-a"))).unwrap();
        planned(number).iter().for_each(|key| cluster.nominate(key, name, false));
    }
    // 1 of zone-a, 1 of each other zone: the first pod may be second there, beside the other one.
    assert_eq!(cluster.nominable(&planned(1), &zone_a).len(), 2);
    // even-1 is bound before even-2, which would be the second of zone-a, and the other one the third.
    assert_eq!(cluster.nominable(&planned(2), &zone_a), [&planned(2)[0]]);
}

#[test]
fn pods_that_wait_for_this_domain_do_not_count_before_it_has_more() {
    let even = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}}}]}});
    let names = ["p1", "p2", "p3", "p4", "p5", "p6"];
    let mut cluster =
        cluster(vec![pool("a", kinds())], &names.map(|name| pod(name, "1", "1Gi", even.clone())));
    let keys = names.map(|name| PodKey::new("default", name));
    let (first, last) = keys.split_at(3);
    for (name, planned) in [("zone-a", first), ("zone-b", last)] {
        cluster.upsert_node(&node(name, "8", "32Gi", json!({ ZONE: name }))).unwrap();
        planned.iter().for_each(|key| cluster.nominate(key, name, false));
    }
    let nominable = |pods: &[PodKey], zone: &str| {
        let labels = [(ZONE.to_owned(), zone.to_owned())].into();
        cluster.nominable(pods, &labels).len()
    };
    assert_eq!(nominable(first, "zone-a"), 1);
    // p2 waits until zone-b has a pod, so p4 would be the third there against one.
    assert_eq!(nominable(last, "zone-b"), 2);
}
