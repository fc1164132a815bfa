//! Pod affinity, required and preferred.

use std::collections::BTreeMap;

use croft_scheduler::{Options, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    app,
    build::{self, HOST, ZONE, cluster, coming, kind, kinds, node, plan, pod, pool, why},
    near, only_type, zones,
};

#[test]
fn pods_with_host_affinity_share_one_instance() {
    // Two processors for the seed and one for each of three followers: m.8 is the smallest type for all of them.
    let mut pods = vec![pod("leader", "2", "1Gi", app("lead"))];
    pods.extend((0..3).map(|i| pod(&format!("f{i}"), "1", "1Gi", near(HOST, "lead"))));
    let joint = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((joint.unschedulable.len(), joint.instances.len()), (0, 1), "{:?}", joint.unschedulable);
    assert_eq!((only_type(&joint), joint.instances[0].pods.len()), ("m.8", 4));
    // More than one host has room for: each seed gets some followers.
    let mut pods: Vec<Pod> = (0..2).map(|i| pod(&format!("l{i}"), "2", "1Gi", app("lead"))).collect();
    pods.extend((0..20).map(|i| pod(&format!("f{i}"), "1", "1Gi", near(HOST, "lead"))));
    let two = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((two.unschedulable.len(), two.instances.len()), (0, 2));
    assert!(two.instances.iter().all(|instance| instance.pods.iter().any(|p| p.name.starts_with('l'))));
    // No pod matches the affinity.
    let alone = plan(&cluster(vec![pool("p", kinds())], &[pod("f", "1", "1Gi", near(HOST, "lead"))]));
    assert!(why(&alone)[0].starts_with("p PodAffinity"), "{:?}", why(&alone));
}

#[test]
fn pod_that_matches_its_own_affinity_joins_pods_bound_before_it() {
    // The seed also fits beside the large pods, but without room for its followers.
    let mut follower = near(HOST, "lead");
    follower["metadata"] = app("lead")["metadata"].clone();
    let mut pods: Vec<Pod> = (0..3).map(|i| pod(&format!("large{i}"), "15", "1Gi", json!({}))).collect();
    pods.push(pod("leader", "500m", "1Gi", app("lead")));
    pods.extend((0..2).map(|i| pod(&format!("f{i}"), "3", "1Gi", follower.clone())));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    let with_leader =
        plan.instances.iter().find(|instance| instance.pods.iter().any(|p| &*p.name == "leader")).unwrap();
    assert_eq!(with_leader.pods.iter().filter(|p| p.name.starts_with('f')).count(), 2);
}

#[test]
fn group_with_host_affinity_is_placed_before_other_pods() {
    let mut together = near(HOST, "flock");
    together["metadata"] = app("flock")["metadata"].clone();
    let mut pods = vec![pod("other", "6", "1Gi", json!({}))];
    pods.extend((0..4).map(|i| pod(&format!("f{i}"), "3", "1Gi", together.clone())));
    let both = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(both.unschedulable.len(), 0, "{:?}", why(&both));
    let flock = |m: &&croft_scheduler::PlannedInstance| m.pods.iter().any(|p| p.name.starts_with('f'));
    assert_eq!(both.instances.iter().filter(flock).count(), 1);
    // Room for five: the sixth stays pending, as in the cluster.
    let pods: Vec<Pod> = (0..6).map(|i| pod(&format!("f{i}"), "3", "1Gi", together.clone())).collect();
    let more = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((more.instances.len(), more.instances[0].pods.len(), more.unschedulable.len()), (1, 5, 1));
}

#[test]
fn chained_affinities_are_placed_together() {
    let mut middle = near(HOST, "lead");
    middle["metadata"] = json!({"labels": {"app": "middle"}});
    let pods = [
        pod("a-last", "1", "1Gi", near(HOST, "middle")),
        pod("b-middle", "1", "1Gi", middle),
        pod("c-leader", "1", "1Gi", app("lead")),
    ];
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((plan.unschedulable.len(), plan.instances.len()), (0, 1), "{:?}", plan.unschedulable);
}

#[test]
fn affinity_seed_is_placed_where_its_followers_fit() {
    for key in [ZONE, HOST] {
        let mut follower = near(key, "lead");
        follower["spec"]["nodeSelector"] = json!({ZONE: "zone-c"});
        let pods = [pod("l", "1", "1Gi", app("lead")), pod("f", "1", "1Gi", follower)];
        let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
        assert_eq!(plan.unschedulable.len(), 0, "{key}: {:?}", plan.unschedulable);
        assert_eq!(zones(&plan), BTreeMap::from([("zone-c", 2)]), "{key}");
    }
}

#[test]
fn existing_node_takes_an_affinity_seed_only_with_room_for_its_followers() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_node(&node("a-small", "1", "4Gi", json!({}))).unwrap();
    c.upsert_node(&node("b-large", "4", "16Gi", json!({}))).unwrap();
    c.upsert_pod(&pod("l", "1", "1Gi", app("lead"))).unwrap();
    c.upsert_pod(&pod("f", "1", "1Gi", near(HOST, "lead"))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.existing.len(), 1, "{plan:?}");
    assert_eq!((plan.existing[0].node.as_str(), plan.existing[0].pods.len()), ("b-large", 2));
}

#[test]
fn replicas_leave_room_beside_them_for_a_pod_that_needs_one_of_them() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_node(&node("a-large", "3", "12Gi", json!({}))).unwrap();
    c.upsert_node(&node("b-small", "1", "4Gi", json!({}))).unwrap();
    for name in ["l1", "l2", "l3"] {
        c.upsert_pod(&pod(name, "1", "1Gi", app("lead"))).unwrap();
    }
    c.upsert_pod(&pod("f", "1", "1Gi", near(HOST, "lead"))).unwrap();
    let plan = plan(&c);
    assert_eq!((plan.unschedulable.len(), plan.instances.len()), (0, 0), "{plan:?}");
    let beside = plan.existing.iter().find(|place| place.pods.iter().any(|pod| &*pod.name == "f")).unwrap();
    assert_eq!((beside.node.as_str(), beside.pods.len()), ("a-large", 3));
}

#[test]
fn preferred_pod_affinity_is_followed_at_no_cost() {
    let wish = |kind: &str, key: &str, other: &str, own: &str| {
        json!({"metadata": {"labels": {"app": own}}, "spec": {"affinity": {kind: {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm":
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": other}}}}]}}}})
    };
    // In the database's zone; outside it.
    for (kind, zone) in [("podAffinity", "zone-c"), ("podAntiAffinity", "zone-a")] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "1", "4Gi", json!({ZONE: "zone-c"}))).unwrap();
        let mut database = app("db");
        database["spec"] = json!({"nodeName": "n"});
        c.upsert_pod(&pod("db", "1", "1Gi", database)).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", wish(kind, ZONE, "db", "web"))).unwrap();
        assert_eq!(plan(&c).instances[0].zone, zone, "{kind}");
    }
    // On existing nodes: beside the affinity target, or apart from equal pods.
    for (kind, homes) in [("podAffinity", vec![2]), ("podAntiAffinity", vec![1, 1])] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        for n in ["n1", "n2"] {
            c.upsert_node(&node(n, "4", "16Gi", json!({}))).unwrap();
        }
        for i in 0..2 {
            c.upsert_pod(&pod(&format!("p{i}"), "1", "1Gi", wish(kind, HOST, "web", "web"))).unwrap();
        }
        let counts: Vec<usize> = plan(&c).existing.iter().map(|e| e.pods.len()).collect();
        assert_eq!(counts, homes, "{kind}");
    }
    // On coming nodes, which have no label of their host yet: beside the database there, or apart from it.
    for (kind, home) in [("podAffinity", "n2"), ("podAntiAffinity", "n1")] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        for (claim, disk) in [("n1", "hdd"), ("n2", "ssd")] {
            c.upsert_coming(coming(claim, "4", "16Gi", json!({"disk": disk})));
        }
        let mut database = app("db");
        database["spec"] = json!({"nodeSelector": {"disk": "ssd"}, "priority": 100});
        c.upsert_pod(&pod("db", "1", "1Gi", database)).unwrap();
        c.upsert_pod(&pod("web", "1", "1Gi", wish(kind, HOST, "db", "web"))).unwrap();
        let plan = plan(&c);
        let of_web = plan.existing.iter().find(|place| place.pods.iter().any(|pod| &*pod.name == "web"));
        assert_eq!(of_web.unwrap().node, home, "{kind}");
    }
    // On new instances pods of equal size are exchanged: each gets one pod of both workloads.
    let only = || vec![kind("m.2", "2", "8Gi", 0.1)];
    let mut pods: Vec<Pod> = Vec::new();
    for name in ["red", "blue"] {
        pods.extend(
            (0..2).map(|i| pod(&format!("{name}{i}"), "1", "1Gi", wish("podAntiAffinity", HOST, name, name))),
        );
    }
    let apart = plan(&cluster(vec![pool("p", only())], &pods));
    assert_eq!(apart.instances.len(), 2);
    for instance in &apart.instances {
        let mut names: Vec<&str> = instance.pods.iter().map(|p| &p.name[..3]).collect();
        names.sort_unstable();
        assert_eq!(names, ["blu", "red"]);
    }
    // A preference that can't be met, and one that raises the cost: no pod stays pending for it.
    let lonely: Vec<Pod> = (0..4)
        .map(|i| pod(&format!("p{i}"), "250m", "1Gi", wish("podAntiAffinity", HOST, "x", "x")))
        .collect();
    let cheap = plan(&cluster(vec![pool("p", kinds())], &lonely));
    assert_eq!((only_type(&cheap), cheap.unschedulable.len()), ("m.1", 0));
}

/// Pods of nodes that are removed move one by one, and each must be near those that haven't moved yet, and near the one that it
/// replaces while that ends.
#[test]
fn pods_that_share_a_zone_stay_in_it_when_their_nodes_are_removed() {
    for count in [1, 2] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("free", "8", "64Gi", json!({"node-pool": "p", ZONE: "zone-b"}))).unwrap();
        let mut left = Vec::new();
        for n in 0..count {
            let name = format!("n{n}");
            c.upsert_node(&node(&name, "4", "64Gi", json!({"node-pool": "p", ZONE: "zone-a"}))).unwrap();
            let mut together = near(ZONE, "flock");
            together["metadata"] = app("flock")["metadata"].clone();
            together["spec"]["nodeName"] = json!(name);
            c.upsert_pod(&pod(&format!("f{n}"), "1", "1Gi", together)).unwrap();
            left.push(name);
        }
        let options = Options { without_nodes: left, ..Options::default() };
        let plan = solve(&c, &options, &|| false);
        assert!(plan.unschedulable.is_empty(), "{:?}", why(&plan));
        let onto_free: usize = plan.existing.iter().map(|place| place.pods.len()).sum();
        let new = zones(&plan).get("zone-a").copied().unwrap_or_default();
        assert_eq!((onto_free, new), (0, count), "{count} pods");
    }
}

#[test]
fn a_pod_that_nothing_counts_joins_others_whose_spread_a_follower_exceeds() {
    let role = |mut more: serde_json::Value| {
        build::merge(&mut more, &json!({"metadata": {"labels": {"role": "x"}}}));
        more
    };
    let mut target = role(app("target"));
    target["spec"] = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"role": "x"}}}]});
    let pods = [
        pod("a-target", "1", "1Gi", target),
        // It is bound after the only pod that it needs, whose spread isn't asked again.
        pod("b-follower", "1", "1Gi", role(near(HOST, "target"))),
        pod("c-plain", "1", "1Gi", json!({})),
    ];
    let mut c = cluster(Vec::new(), &pods);
    c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
    // Counts for the spread and takes no pod.
    let mut other = node("other", "4", "16Gi", json!({}));
    build::add_taint(&mut other);
    c.upsert_node(&other).unwrap();
    let placed: Vec<usize> = plan(&c).existing.iter().map(|e| e.pods.len()).collect();
    assert_eq!(placed, [3]);
}
