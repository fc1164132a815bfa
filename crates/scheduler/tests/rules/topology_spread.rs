//! Topology spread constraints.

use std::collections::BTreeMap;

use croft_scheduler::{Cluster, ComingNode, InstanceType, Plan, Requirement};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    app,
    build::{self, HOST, ZONE, cluster, kind, kinds, node, plan, pod, pool},
    many, near, object, spread, with_labels, zones,
};

#[test]
fn schedule_anyway_spread_leaves_no_pod_pending() {
    let wish = spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    // There is only one zone.
    let mut narrow = pool("p", kinds());
    narrow.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let plan1 = plan(&cluster(vec![narrow], &many(6, "1", &wish)));
    assert_eq!((zones(&plan1), plan1.unschedulable.len()), (BTreeMap::from([("zone-a", 6)]), 0));
    // If the zones cost the same, the spread is followed.
    let plan2 = plan(&cluster(vec![pool("p", vec![kind("m.1", "1", "4Gi", 0.05)])], &many(6, "1", &wish)));
    assert_eq!(zones(&plan2), BTreeMap::from([("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]));
}

#[test]
fn fewer_domains_than_min_domains_count_as_an_empty_one() {
    for (min_domains, placed) in [(1, 5), (3, 5), (4, 3)] {
        let pods = many(5, "1", &spread(json!({"minDomains": min_domains})));
        let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
        assert_eq!(zones(&plan).values().sum::<usize>(), placed, "minDomains {min_domains}");
    }
}

#[test]
fn match_label_keys_spread_versions_separately() {
    let with = |version: &str, keys: Value| {
        let mut it = spread(json!({"matchLabelKeys": keys}));
        it["metadata"]["labels"]["version"] = json!(version);
        it
    };
    // Two pods of version 1 run in zone a. With matchLabelKeys, version 2 counts only its own pods.
    for (keys, in_a) in [(json!(["version"]), true), (json!([]), false)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "1", "4Gi", json!({ZONE: "zone-a"}))).unwrap();
        for i in 0..2 {
            let mut old = with("1", json!([]));
            old["spec"] = json!({"nodeName": "n"});
            c.upsert_pod(&pod(&format!("old{i}"), "500m", "1Gi", old)).unwrap();
        }
        for i in 0..3 {
            c.upsert_pod(&pod(&format!("new{i}"), "1", "1Gi", with("2", keys.clone()))).unwrap();
        }
        let plan = plan(&c);
        assert_eq!(zones(&plan).contains_key("zone-a"), in_a, "{keys}: {:?}", zones(&plan));
        assert_eq!(plan.unschedulable.len(), 0);
    }
}

#[test]
fn honoured_taints_exclude_domains_from_a_spread() {
    // Zone d has only a tainted node: with Honor it is no domain; otherwise it stays empty, and the skew blocks all pods.
    for (policy, placed) in [("Honor", 6), ("Ignore", 3)] {
        let mut c =
            cluster(vec![pool("p", kinds())], &many(6, "1", &spread(json!({"nodeTaintsPolicy": policy}))));
        let mut far = node("n", "1", "4Gi", json!({ZONE: "zone-d"}));
        far.spec.get_or_insert_default().taints = Some(vec![build::taint("mine", "x")]);
        c.upsert_node(&far).unwrap();
        assert_eq!(zones(&plan(&c)).values().sum::<usize>(), placed, "{policy}");
    }
}

#[test]
fn spread_that_ignores_node_affinity_counts_only_zones_that_are_opened() {
    let confined = || {
        let mut it = spread(json!({"nodeAffinityPolicy": "Ignore"}));
        it["spec"]["nodeSelector"] = json!({ZONE: "zone-a"});
        it
    };
    // These pods can open only zone a; zones that are never opened don't count.
    let alone = plan(&cluster(vec![pool("p", kinds())], &many(4, "1", &confined())));
    assert_eq!(zones(&alone), BTreeMap::from([("zone-a", 4)]));
    // A pod of another pool opens zone b, which stays empty for these pods, so the skew allows one in zone a.
    let mut pods = many(4, "1", &confined());
    for one in &mut pods {
        one.spec
            .as_mut()
            .unwrap()
            .node_selector
            .as_mut()
            .unwrap()
            .insert("node-pool".to_owned(), "p".to_owned());
    }
    let other = json!({"spec": {"nodeSelector": {ZONE: "zone-b", "node-pool": "q"}}});
    pods.push(pod("other", "1", "1Gi", other));
    let both = plan(&cluster(vec![pool("p", kinds()), pool("q", kinds())], &pods));
    assert_eq!(zones(&both), BTreeMap::from([("zone-a", 1), ("zone-b", 1)]), "{:?}", both.unschedulable);
}

/// Requires more than two processors, and a spread over zones with other pods of its app.
fn large_with_even_zones(max_skew: i32) -> Value {
    let mut it = spread(json!({"maxSkew": max_skew}));
    it["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["2"]}]}]}}});
    it
}

/// A full node of four processors in zone a, with a pod that has the anti-affinity `guards`.
fn with_full_node(pool: croft_scheduler::Pool, guards: Value) -> Cluster {
    let mut c = cluster(vec![pool], &[]);
    c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a", "size": "4", "node-pool": "p"}))).unwrap();
    let full = json!({"spec": {"nodeName": "n", "affinity": {"podAntiAffinity": guards}}});
    c.upsert_pod(&pod("full", "4", "1Gi", full)).unwrap();
    c
}

/// Asserts that the pods named `even...` can be bound in every order: their zones have at most `max_skew` pods of the app
/// more than any zone, on nodes with more than two processors; zone a has such a node.
fn assert_even(plan: &Plan, max_skew: usize) {
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let mut zones: BTreeMap<&str, (usize, bool)> = BTreeMap::from([("zone-a", (0, false))]);
    for instance in plan.instances.iter().filter(|m| m.labels["size"].parse::<u32>().unwrap() > 2) {
        let zone = zones.entry(&instance.zone).or_default();
        zone.0 += instance.pods.len();
        zone.1 |= instance.pods.iter().any(|p| p.name.starts_with("even"));
    }
    let least = zones.values().map(|(count, _)| *count).min().unwrap_or(0);
    assert!(zones.values().all(|(count, even)| !even || count - least <= max_skew), "{zones:?}");
}

#[test]
fn spread_and_affinity_hold_for_every_binding_order() {
    // Zone a excludes the app. Types with two processors are expensive, so that plain pods prefer nodes that count.
    let mut kinds: Vec<InstanceType> =
        [("m.2", "2", "8Gi", 0.15), ("m.4", "4", "16Gi", 0.2), ("m.8", "8", "32Gi", 0.4)]
            .map(|(name, cpu, memory, dollars)| kind(name, cpu, memory, dollars))
            .to_vec();
    for kind in &mut kinds {
        kind.labels.insert("size".to_owned(), (kind.capacity.get("cpu") / 1000).to_string());
    }
    let mut c = with_full_node(
        pool("p", kinds),
        json!({"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}]}),
    );
    for i in 0..6 {
        c.upsert_pod(&pod(&format!("plain{i}"), "1100m", "3Gi", app("x"))).unwrap();
    }
    let mut even = large_with_even_zones(2);
    even["spec"]["affinity"]["podAffinity"] = near(ZONE, "x")["spec"]["affinity"]["podAffinity"].clone();
    c.upsert_pod(&pod("even", "7", "1Gi", even)).unwrap();
    assert_even(&plan(&c), 2);
}

#[test]
fn pods_on_nodes_outside_the_spread_filter_do_not_count() {
    // The plain pods belong to the app and are all in zone a, but their cheapest instance type is outside the spread's filter.
    let mut c = with_full_node(pool("p", with_labels("size")), json!({}));
    for i in 0..3 {
        let mut plain = app("x");
        plain["spec"] = json!({"nodeSelector": {ZONE: "zone-a"}});
        c.upsert_pod(&pod(&format!("plain{i}"), "1", "4Gi", plain)).unwrap();
    }
    for i in 0..4 {
        c.upsert_pod(&pod(&format!("even{i}"), "4", "16Gi", large_with_even_zones(1))).unwrap();
    }
    assert_even(&plan(&c), 1);
}

#[test]
fn zones_opened_by_other_pods_are_domains_with_honoured_affinity() {
    // Pool q has a taint that the spread pods don't tolerate, and is a domain nevertheless: taints are ignored by default.
    let mut q = pool("q", with_labels("size"));
    q.taints = vec![build::taint("for", "others")];
    let mut p = pool("p", with_labels("size"));
    p.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let mut pods: Vec<Pod> =
        (0..4).map(|i| pod(&format!("even{i}"), "3", "1Gi", large_with_even_zones(1))).collect();
    let alone = plan(&cluster(vec![p.clone(), q.clone()], &pods));
    assert_eq!(zones(&alone), BTreeMap::from([("zone-a", 4)]));
    for (cpu, placed) in [("3", 1), ("1", 4)] {
        let other = json!({"spec": {"nodeSelector": {ZONE: "zone-b", "node-pool": "q"},
            "tolerations": [{"operator": "Exists"}]}});
        pods.push(pod("other", cpu, "1Gi", other));
        let both = plan(&cluster(vec![p.clone(), q.clone()], &pods));
        pods.pop();
        assert_eq!(zones(&both).get("zone-a"), Some(&placed), "{cpu}: {:?}", both.unschedulable);
    }
}

#[test]
fn coming_nodes_count_for_a_spread() {
    let labels = |zone: &str| json!({"node-pool": "p", ZONE: zone});
    let guard = json!({"metadata": {"labels": {"app": "b"}}, "spec": {"nodeName": "old", "affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": ZONE}]}}}});
    // The second constraint excludes nodes without a host name from the domains of the first.
    let spread = |key: &str, app: &str, skew: u32| {
        json!({"labelSelector": {"matchLabels": {"app": app}}, "maxSkew": skew, "nodeAffinityPolicy": "Ignore",
            "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"})
    };
    let even = json!({"metadata": {"labels": {"app": "b"}},
        "spec": {"topologySpreadConstraints": [spread(ZONE, "b", 2), spread(HOST, "other", 1)]}});
    let mut pods = vec![pod("guard", "1", "64Mi", guard)];
    pods.extend((0..4).map(|i| pod(&format!("g{i}"), "900m", "512Mi", even.clone())));
    let mut c = cluster(vec![pool("p", kinds())], &pods);
    c.upsert_node(&node("old", "4", "8Gi", labels("zone-c"))).unwrap();
    for name in ["p-1", "p-2"] {
        c.upsert_coming(ComingNode {
            claim: name.to_owned(),
            pool: "p".to_owned(),
            instance_type: "m.2".to_owned(),
            zone: "zone-a".to_owned(),
            labels: object(labels("zone-a")),
            allocatable: build::resources(&[("cpu", "2"), ("memory", "8Gi"), ("pods", "110")]),
            ..ComingNode::default()
        });
    }
    // One runs in zone-c, where an anti-affinity excludes others: a fourth pod would give zone-a a skew of three.
    let plan = plan(&c);
    assert_eq!(plan.existing.iter().map(|e| e.pods.len()).sum::<usize>(), 3, "{:?}", plan.existing);
    assert_eq!(zones(&plan), BTreeMap::from([("zone-b", 1)]), "{:?}", plan.unschedulable);
}
