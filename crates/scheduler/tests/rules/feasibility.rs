//! One table per rule that kube-scheduler has.

use croft_scheduler::{Operator, Options, Requirement, solve};
use serde_json::json;

use crate::build::{cluster, kind, kinds, node, plan, pod, pool, requirement, taint, why};

#[test]
fn one_pod_gets_the_cheapest_type_that_holds_it() {
    let plan = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1500m", "2Gi", json!({}))]));
    assert_eq!(plan.instances.len(), 1);
    let m = &plan.instances[0];
    assert_eq!((m.instance_type.as_str(), m.zone.as_str()), ("m.2", "zone-a"));
    assert_eq!(m.labels["node-pool"], "p");
    assert_eq!(m.zones, ["zone-a", "zone-b", "zone-c"]);
    assert_eq!(plan.cost.micros(), 100_000);
}

#[test]
fn init_containers_sidecars_and_overhead_count_as_kubernetes_says() {
    let spec = json!({"spec": {
    "overhead": {"cpu": "100m"},
    "initContainers": [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"name": "init", "resources": {"requests": {"cpu": "3"}}},
    ]}});
    // max(1 + 0.5, 0.5 + 3) + 0.1
    let plan = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", spec)]));
    assert_eq!(plan.instances[0].requests.get("cpu"), 3600);
    assert_eq!(plan.instances[0].instance_type, "m.4");
}

#[test]
fn selectors_and_affinity_choose_offerings() {
    let mut arm = kind("arm.2", "2", "8Gi", 0.01);
    arm.arch = "arm64".to_owned();
    let mut all = kinds();
    all.push(arm);
    let selector = json!({"spec": {"nodeSelector": {"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "zone-b"}}});
    let plan1 = plan(&cluster(vec![pool("p", all.clone())], &[pod("a", "1", "1Gi", selector)]));
    assert_eq!(
        (plan1.instances[0].instance_type.as_str(), plan1.instances[0].zone.as_str()),
        ("m.1", "zone-b")
    );
    let affinity = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.8"]}]},
            {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}]}}}}});
    let plan2 = plan(&cluster(vec![pool("p", all)], &[pod("a", "1", "1Gi", affinity)]));
    assert_eq!(plan2.instances[0].instance_type, "arm.2");
}

#[test]
fn taints_and_tolerations() {
    let mut p = pool("p", kinds());
    p.taints = vec![taint("node-pool", "p")];
    let without = plan(&cluster(vec![p.clone()], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!(why(&without), ["p TaintNotTolerated: the pod doesn't tolerate node-pool=p:NoSchedule"]);
    let with = json!({"spec": {"tolerations": [{"key": "node-pool", "operator": "Equal", "value": "p", "effect": "NoSchedule"}]}});
    assert_eq!(plan(&cluster(vec![p], &[pod("a", "1", "1Gi", with)])).instances.len(), 1);
}

fn spread(key: &str, skew: i32) -> serde_json::Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [{
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}}}]}})
}

#[test]
fn zone_spread_is_even() {
    let pods: Vec<_> =
        (0..7).map(|i| pod(&format!("p{i}"), "1", "1Gi", spread("topology.kubernetes.io/zone", 1))).collect();
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    let mut zones = std::collections::BTreeMap::new();
    for m in &plan.instances {
        *zones.entry(m.zone.clone()).or_insert(0) += m.pods.len();
    }
    let mut counts: Vec<_> = zones.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 2, 3]);
}

#[test]
fn host_spread_and_anti_affinity_take_an_instance_each() {
    let pods: Vec<_> =
        (0..5).map(|i| pod(&format!("p{i}"), "100m", "128Mi", spread("kubernetes.io/hostname", 1))).collect();
    assert_eq!(plan(&cluster(vec![pool("p", kinds())], &pods)).instances.len(), 5);
    let anti = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
    let pods: Vec<_> = (0..5).map(|i| pod(&format!("p{i}"), "100m", "128Mi", anti.clone())).collect();
    assert_eq!(plan(&cluster(vec![pool("p", kinds())], &pods)).instances.len(), 5);
}

#[test]
fn zone_affinity_stays_together() {
    let near = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"affinity": {"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "topology.kubernetes.io/zone",
            "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
    let pods: Vec<_> = (0..40).map(|i| pod(&format!("p{i}"), "1", "1Gi", near.clone())).collect();
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    let zones: std::collections::BTreeSet<_> =
        plan.instances.iter().map(|instance| instance.zone.clone()).collect();
    assert_eq!((zones.len(), plan.unschedulable.len()), (1, 0));
}

#[test]
fn limits_count_capacity_and_say_what_is_used_up() {
    let mut p = pool("p", kinds());
    p.limits.insert("cpu".to_owned(), "4".parse().unwrap());
    let pods: Vec<_> = (0..6).map(|i| pod(&format!("p{i}"), "1", "1Gi", json!({}))).collect();
    let plan = plan(&cluster(vec![p], &pods));
    assert_eq!(plan.instances.iter().map(|instance| instance.capacity.get("cpu")).sum::<i64>(), 4000);
    assert_eq!(plan.unschedulable.len(), 2);
    assert!(
        why(&plan)[0].starts_with("p PoolLimit: the limits of p (cpu 4) leave no room"),
        "{:?}",
        why(&plan)
    );
}

#[test]
fn heavier_pools_come_first_and_lighter_ones_take_the_rest() {
    let mut heavy = pool("heavy", vec![kind("dear.4", "4", "16Gi", 1.0)]);
    heavy.weight = 10;
    heavy.limits.insert("nodes".to_owned(), "1".parse().unwrap());
    let pods: Vec<_> = (0..6).map(|i| pod(&format!("p{i}"), "1", "1Gi", json!({}))).collect();
    let plan = plan(&cluster(vec![heavy, pool("light", kinds())], &pods));
    let by_pool: Vec<_> =
        plan.instances.iter().map(|instance| (instance.pool.as_str(), instance.pods.len())).collect();
    assert_eq!(by_pool, [("heavy", 4), ("light", 2)]);
}

#[test]
fn daemonsets_take_their_room_on_new_instances() {
    let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "900m", "1Gi", json!({}))]);
    let ds = json!({"metadata": {"namespace": "kube-system", "name": "agent"}, "spec": {
        "selector": {}, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "200m"}}}]}}}});
    c.upsert_daemonset(&serde_json::from_value(ds).unwrap()).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.instances[0].instance_type, "m.2");
    assert_eq!(plan.instances[0].requests.get("cpu"), 1100);
}

fn agent(requests: &serde_json::Value) -> k8s_openapi::api::apps::v1::DaemonSet {
    serde_json::from_value(json!({"metadata": {"namespace": "kube-system", "name": "agent"}, "spec": {
        "selector": {}, "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}}}))
    .unwrap()
}

#[test]
fn node_keeps_room_for_the_daemonset_pod_that_it_lacks() {
    // A pod of 900m on a node of one processor, where the agent takes 200m: it fits unless the agent is to come.
    let tainted = json!([{"key": "own", "effect": "NoSchedule"}]);
    let there = json!({"metadata": {"namespace": "kube-system", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]},
        "spec": {"nodeName": "n"}});
    for (taints, selector, running, fits) in [
        (json!([]), json!({}), None, false),
        (json!([]), json!({"disk": "ssd"}), None, false),
        (json!([]), json!({"disk": "hdd"}), None, true),
        (tainted, json!({}), None, true),
        (json!([]), json!({}), Some(pod("agent-1", "50m", "1Mi", there)), true),
    ] {
        let of_anyone = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "900m", "1Gi", of_anyone)]);
        let mut only = node("n", "1", "4Gi", json!({"disk": "ssd"}));
        only.spec = Some(serde_json::from_value(json!({"taints": taints})).unwrap());
        c.upsert_node(&only).unwrap();
        let mut agent = agent(&json!({"cpu": "200m"}));
        agent.spec.as_mut().unwrap().template.spec.as_mut().unwrap().node_selector =
            serde_json::from_value(selector.clone()).unwrap();
        c.upsert_daemonset(&agent).unwrap();
        if let Some(running) = &running {
            c.upsert_pod(running).unwrap();
        }
        let plan = plan(&c);
        assert_eq!(plan.existing.len() == 1, fits, "{taints} {selector} {}", running.is_some());
    }
}

#[test]
fn instance_too_small_for_its_daemonsets_is_not_launched_for_pods_without_requests() {
    let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "0", "0", json!({}))]);
    c.upsert_daemonset(&agent(&json!({"memory": "6Gi"}))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.instances[0].instance_type, "m.2");
    assert_eq!(plan.instances[0].requests.get("memory"), 6 << 30);
}

#[test]
fn daemonset_that_fits_on_no_type_keeps_no_pod_pending() {
    let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "500m", "1Gi", json!({}))]);
    c.upsert_daemonset(&agent(&json!({"example.com/device": "1"}))).unwrap();
    assert_eq!(plan(&c).instances[0].instance_type, "m.1");
}

/// One team's mistake, and every pool would launch nothing: the pods of such a DaemonSet stay pending, and all others run.
#[test]
fn daemonset_that_asks_for_more_than_any_node_has_keeps_no_pod_pending() {
    for requests in
        [json!({"cpu": "5000"}), json!({"memory": "90Ti"}), json!({"cpu": "5000", "memory": "1Gi"})]
    {
        let mut c = cluster(vec![pool("p", kinds())], &[pod("a", "500m", "1Gi", json!({}))]);
        c.upsert_daemonset(&agent(&requests)).unwrap();
        assert_eq!(plan(&c).instances[0].instance_type, "m.1", "{requests}");
        c.upsert_node(&node("n", "1", "4Gi", json!({}))).unwrap();
        let planned = plan(&c);
        assert_eq!((planned.existing.len(), planned.instances.len()), (1, 0), "{requests}");
    }
}

#[test]
fn existing_nodes_are_used_first() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_node(&node("n1", "2", "8Gi", json!({"node-pool": "p"}))).unwrap();
    c.upsert_pod(&pod("running", "1", "1Gi", json!({"spec": {"nodeName": "n1"}}))).unwrap();
    for i in 0..3 {
        c.upsert_pod(&pod(
            &format!("p{i}"),
            "500m",
            "1Gi",
            json!({"spec": {"nodeSelector": {"node-pool": "p"}}}),
        ))
        .unwrap();
    }
    let plan = plan(&c);
    assert_eq!((plan.existing[0].node.as_str(), plan.existing[0].pods.len()), ("n1", 2));
    assert_eq!((plan.instances.len(), plan.instances[0].pods.len()), (1, 1));
}

#[test]
fn requirements_on_a_label_of_the_pool_hold_in_any_order() {
    let any =
        Requirement { key: "team".to_owned(), operator: Operator::Exists, values: vec![], min_values: None };
    let not_a = Requirement { operator: Operator::NotIn, values: vec!["a".to_owned()], ..any.clone() };
    let list = requirement("team", &["a", "b"]);
    for requirements in [[any.clone(), not_a.clone(), list.clone()], [list, not_a, any]] {
        let mut p = pool("p", kinds());
        p.requirements = requirements.to_vec();
        let of = |team: &str| pod(team, "1", "1Gi", json!({"spec": {"nodeSelector": {"team": team}}}));
        let plan = plan(&cluster(vec![p], &[of("a"), of("b")]));
        assert_eq!(why(&plan), ["p NodeAffinityMismatch: no offering of p has team = a"]);
        assert_eq!(plan.instances.len(), 1);
    }
}

#[test]
fn reasons_name_the_number_that_would_do() {
    let big = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "100Gi", json!({}))]));
    assert_eq!(
        why(&big),
        ["p InsufficientResources: largest allocatable memory in p is 64Gi, pod asks 100Gi"]
    );
    let nowhere = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let plan = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", nowhere)]));
    assert_eq!(why(&plan), ["p NodeAffinityMismatch: no offering of p has disk = ssd"]);
    let twice = json!({"spec": {"nodeSelector": {"disk": "ssd", "kubernetes.io/os": "linux", "rack": "r1"}}});
    let plan = self::plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", twice)]));
    assert_eq!(
        why(&plan),
        ["p NodeAffinityMismatch: no offering of p has disk = ssd, and none has rack = r1"],
        "the condition that some offering meets isn't named"
    );
}

#[test]
fn the_same_input_gives_the_same_plan() {
    let pods: Vec<_> = (0..200)
        .map(|i| {
            pod(
                &format!("p{i}"),
                &format!("{}m", 100 + i * 7 % 900),
                "512Mi",
                spread("topology.kubernetes.io/zone", 1),
            )
        })
        .collect();
    let show = || format!("{:?}", plan(&cluster(vec![pool("p", kinds()), pool("q", kinds())], &pods)));
    assert_eq!(show(), show());
}

#[test]
fn pools_narrow_the_catalogue() {
    let mut p = pool("p", kinds());
    p.requirements = vec![requirement("node.kubernetes.io/instance-type", &["m.4", "m.8"])];
    let plan = plan(&cluster(vec![p], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!(plan.instances[0].instance_type, "m.4");
    assert_eq!(plan.instances[0].options, ["m.4"]);
}

#[test]
fn effort_zero_is_plain_first_fit() {
    let pods: Vec<_> = (0..30).map(|i| pod(&format!("p{i}"), "900m", "3Gi", json!({}))).collect();
    let c = cluster(vec![pool("p", kinds())], &pods);
    let plain = solve(&c, &Options { effort: 0, ..Options::default() }, &|| false);
    assert!(plan(&c).cost <= plain.cost);
}
