//! The rarer rules of kube-scheduler, one small table each: resources, volumes, ports, priorities, preferences.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod build;

use std::collections::BTreeMap;

use build::{HOST, ZONE, cluster, kind, kinds, node, plan, pod, pool, why};
use croft_scheduler::{Cluster, ComingNode, InstanceType, Operator, Plan, Requirement};
use k8s_openapi::api::core::v1::{Pod, Taint};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const TYPE: &str = "node.kubernetes.io/instance-type";

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The type of the one machine that is launched.
fn only_type(plan: &Plan) -> &str {
    assert_eq!(plan.machines.len(), 1, "{:?}", plan.unschedulable);
    &plan.machines[0].instance_type
}

fn zones(plan: &Plan) -> BTreeMap<&str, usize> {
    plan.machines.iter().fold(BTreeMap::new(), |mut zones, m| {
        *zones.entry(m.zone.as_str()).or_default() += m.pods.len();
        zones
    })
}

fn one(more: Value) -> Plan {
    plan(&cluster(vec![pool("p", kinds())], &[pod("a", "1", "1Gi", more)]))
}

fn with_labels(key: &str) -> Vec<InstanceType> {
    let mut all = kinds();
    for kind in &mut all {
        kind.labels.insert(key.to_owned(), (kind.capacity.get("cpu") / 1000).to_string());
    }
    all
}

#[test]
fn requests_of_the_pod_itself_count_instead_of_its_containers() {
    for (resources, kind) in [
        (json!({"requests": {"cpu": "3"}}), "m.4"),
        (json!({"requests": {"cpu": "3", "memory": "20Gi"}}), "m.8"),
        // Below what the containers ask for together: still the pod's own word.
        (json!({"requests": {"cpu": "500m", "memory": "1Gi"}}), "m.1"),
        // A limit is a request only where the containers ask for nothing of it.
        (json!({"limits": {"cpu": "7"}}), "m.1"),
    ] {
        assert_eq!(only_type(&one(json!({"spec": {"resources": resources}}))), kind, "{resources}");
    }
}

#[test]
fn a_resize_holds_the_larger_of_wish_and_allocation() {
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
fn a_resize_of_the_whole_pod_counts_as_its_containers_do() {
    let held = json!({"requests": {"cpu": "3"}});
    for (status, fits) in [
        (json!({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}), true),
        (json!({"resources": held, "allocatedResources": {"cpu": "1"}}), false),
        (json!({"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}}), false),
        // Promised, but the kubelet hasn't said that it was given.
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
fn min_values_keep_a_choice_of_types() {
    let mut p = pool("p", kinds());
    p.requirements = vec![Requirement {
        key: TYPE.to_owned(),
        operator: Operator::Exists,
        values: vec![],
        min_values: Some(3),
    }];
    let small = plan(&cluster(vec![p.clone()], &[pod("a", "1", "1Gi", json!({}))]));
    assert!(small.machines[0].options.len() >= 3, "{:?}", small.machines[0].options);
    let large = plan(&cluster(vec![p], &[pod("a", "15", "1Gi", json!({}))]));
    assert_eq!(large.unschedulable.len(), 1, "only one type holds it");
    assert_eq!(why(&large), [format!("p MinValues: p wants a choice of 3 different {TYPE}; 1 hold the pod")]);
}

#[test]
fn comparisons_are_of_integers() {
    for (operator, value, kind) in [
        (Operator::Gt, "2", "m.4"),
        (Operator::Gte, "2", "m.2"),
        (Operator::Lt, "4", "m.1"),
        (Operator::Lte, "1", "m.1"),
    ] {
        let mut p = pool("p", with_labels("size"));
        p.requirements = vec![Requirement {
            key: "size".to_owned(),
            operator,
            values: vec![value.to_owned()],
            min_values: None,
        }];
        let plan = plan(&cluster(vec![p], &[pod("a", "500m", "1Gi", json!({}))]));
        assert_eq!(only_type(&plan), kind, "{operator:?} {value}");
    }
    for (operator, value, kind) in [("Gt", "4", "m.8"), ("Lt", "2", "m.1")] {
        let term = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": operator, "values": [value]}]}]}}}}});
        let c = cluster(vec![pool("p", with_labels("size"))], &[pod("a", "500m", "1Gi", term)]);
        assert_eq!(only_type(&plan(&c)), kind);
    }
}

fn prefer_not(key: &str) -> Taint {
    Taint { effect: "PreferNoSchedule".to_owned(), ..build::taint(key, "x") }
}

#[test]
fn startup_taints_keep_nobody_off_and_are_told() {
    let mut p = pool("p", kinds());
    p.startup_taints = vec![build::taint("agent", "starting")];
    let plan = plan(&cluster(vec![p], &[pod("a", "1", "1Gi", json!({}))]));
    assert_eq!(plan.machines[0].startup_taints.len(), 1);
}

#[test]
fn taints_that_only_prefer_are_avoided_where_that_is_free() {
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
    assert_eq!(plan(&cluster(vec![p], &[pod("a", "1", "1Gi", json!({}))])).machines.len(), 1);
}

#[test]
fn preferred_node_affinity_decides_among_equals_and_binds_nobody() {
    let prefer = |key: &str, value: &str| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}]}}}})
    };
    assert_eq!(one(prefer(ZONE, "zone-c")).machines[0].zone, "zone-c");
    assert_eq!(one(prefer("nobody/has", "it")).machines.len(), 1);
    // A preference that costs money isn't followed.
    assert_eq!(only_type(&one(prefer(TYPE, "m.16"))), "m.1");
}

fn spread(more: Value) -> Value {
    let mut constraint = json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}}});
    for (key, value) in more.as_object().unwrap() {
        constraint[key] = value.clone();
    }
    json!({"metadata": {"labels": {"app": "x"}}, "spec": {"topologySpreadConstraints": [constraint]}})
}

fn many(count: usize, cpu: &str, more: &Value) -> Vec<Pod> {
    (0..count).map(|i| pod(&format!("p{i}"), cpu, "1Gi", more.clone())).collect()
}

#[test]
fn a_spread_that_is_only_wished_leaves_nobody_pending() {
    let wish = spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    // One zone is all there is.
    let mut narrow = pool("p", kinds());
    narrow.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let plan1 = plan(&cluster(vec![narrow], &many(6, "1", &wish)));
    assert_eq!((zones(&plan1), plan1.unschedulable.len()), (BTreeMap::from([("zone-a", 6)]), 0));
    // Where the zones cost the same, it is kept.
    let plan2 = plan(&cluster(vec![pool("p", vec![kind("m.1", "1", "4Gi", 0.05)])], &many(6, "1", &wish)));
    assert_eq!(zones(&plan2), BTreeMap::from([("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]));
}

#[test]
fn fewer_domains_than_wanted_count_as_an_empty_one() {
    for (min_domains, placed) in [(1, 5), (3, 5), (4, 3)] {
        let pods = many(5, "1", &spread(json!({"minDomains": min_domains})));
        let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
        assert_eq!(zones(&plan).values().sum::<usize>(), placed, "minDomains {min_domains}");
    }
}

#[test]
fn versions_spread_apart_by_match_label_keys() {
    let with = |version: &str, keys: Value| {
        let mut it = spread(json!({"matchLabelKeys": keys}));
        it["metadata"]["labels"]["version"] = json!(version);
        it
    };
    // Two of version 1 run in zone a. Version 2 counts only itself, if told so.
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
fn mismatch_label_keys_keep_tenants_apart_and_namespace_selectors_reach_out() {
    // "No pod of another team in my zone", over all namespaces of the stage.
    let term = json!({"topologyKey": ZONE, "mismatchLabelKeys": ["team"],
        "labelSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        "namespaceSelector": {"matchLabels": {"stage": "prod"}}});
    for (stage, kept_apart) in [("prod", true), ("test", false)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        for (name, stage) in [("default", "prod"), ("other", stage)] {
            c.upsert_namespace(&object(json!({"metadata": {"name": name, "labels": {"stage": stage}}})));
        }
        c.upsert_node(&node("n", "1", "4Gi", json!({ZONE: "zone-a"}))).unwrap();
        let running =
            json!({"metadata": {"namespace": "other", "labels": {"team": "red"}}, "spec": {"nodeName": "n"}});
        c.upsert_pod(&pod("r", "1", "1Gi", running)).unwrap();
        let blue = json!({"metadata": {"labels": {"team": "blue"}}, "spec": {"affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
        c.upsert_pod(&pod("b", "1", "1Gi", blue)).unwrap();
        assert_eq!(plan(&c).machines[0].zone != "zone-a", kept_apart, "{stage}");
    }
}

#[test]
fn tainted_nodes_are_no_domains_where_taints_are_honoured() {
    // Zone d has only a tainted node: with Honor it is no domain, without, it stays empty and holds everyone back.
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
fn running_pods_keep_away_whom_their_anti_affinity_names() {
    for (key, free) in [(ZONE, "zone-b"), (HOST, "zone-a")] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
        let guard = json!({"spec": {"nodeName": "n", "affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
        c.upsert_pod(&pod("guard", "1", "1Gi", guard)).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", json!({"metadata": {"labels": {"app": "x"}}}))).unwrap();
        let kept = plan(&c);
        assert_eq!((kept.existing.len(), kept.machines[0].zone.as_str()), (0, free), "{key}");
        c.remove_pod("default", "guard");
        assert_eq!(plan(&c).existing.len(), 1, "{key}");
    }
}

#[test]
fn host_ports_clash_by_protocol_and_address() {
    let ports = |port: i32, ip: &str, protocol: &str| {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "ports": [{"containerPort": 1, "hostPort": port, "hostIP": ip, "protocol": protocol}]}]}})
    };
    for (other, machines) in [
        (ports(80, "10.0.0.1", "TCP"), 2),
        (ports(80, "10.0.0.2", "TCP"), 1),
        (ports(80, "10.0.0.1", "UDP"), 1),
        (ports(81, "10.0.0.1", "TCP"), 1),
        (ports(80, "0.0.0.0", "TCP"), 2),
        (ports(80, "", "TCP"), 2),
    ] {
        let first = pod("a", "100m", "64Mi", ports(80, "10.0.0.1", "TCP"));
        let second = pod("b", "100m", "64Mi", other.clone());
        let plan = plan(&cluster(vec![pool("p", kinds())], &[first, second]));
        assert_eq!(plan.machines.len(), machines, "{other}");
    }
}

fn claim(name: &str, volume: Option<&str>, class: Option<&str>) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {"volumeName": volume,
        "storageClassName": class, "resources": {"requests": {"storage": "10Gi"}}}})
}

fn uses(claims: &[&str]) -> Value {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|c| json!({"name": format!("v-{c}"), "persistentVolumeClaim": {"claimName": c}}))
        .collect();
    json!({"spec": {"volumes": volumes}})
}

fn volume(name: &str, zone: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "10Gi"}, "storageClassName": "fast",
        "csi": {"driver": "disk.example.com", "volumeHandle": name}, "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}}}})
}

fn storage(c: &mut Cluster, mode: &str, zone: Option<&str>) {
    let topologies = zone.map(|z| json!([{"matchLabelExpressions": [{"key": ZONE, "values": [z]}]}]));
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "disk.example.com", "volumeBindingMode": mode,
        "allowedTopologies": topologies});
    c.upsert_storage_class(&object(class)).unwrap();
}

#[test]
fn volumes_say_where() {
    let place = |c: &mut Cluster, claims: &[&str]| {
        c.upsert_pod(&pod("a", "1", "1Gi", uses(claims))).unwrap();
        plan(c)
    };
    // Bound: where the volume is.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_pv(&object(volume("v", "zone-b"))).unwrap();
    c.upsert_pvc(&object(claim("data", Some("v"), Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).machines[0].zone, "zone-b");
    // By the labels that old volumes have.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    let mut old = volume("v", "unused");
    old["spec"]["nodeAffinity"] = Value::Null;
    old["metadata"]["labels"] = json!({"failure-domain.beta.kubernetes.io/zone": "zone-b__zone-c"});
    c.upsert_pv(&object(old)).unwrap();
    c.upsert_pvc(&object(claim("data", Some("v"), Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).machines[0].zone, "zone-b");
    // Not bound yet: where the class may make one.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    storage(&mut c, "WaitForFirstConsumer", Some("zone-c"));
    c.upsert_pvc(&object(claim("data", None, Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).machines[0].zone, "zone-c");
    // Two volumes in different zones: nowhere.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    for (name, zone) in [("v", "zone-a"), ("w", "zone-b")] {
        c.upsert_pv(&object(volume(name, zone))).unwrap();
        c.upsert_pvc(&object(claim(name, Some(name), Some("fast")))).unwrap();
    }
    assert!(why(&place(&mut c, &["v", "w"]))[0].starts_with("p VolumeTopology"));
    // Immediate, and not bound; not there at all; lost.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    storage(&mut c, "Immediate", None);
    c.upsert_pvc(&object(claim("data", None, Some("fast")))).unwrap();
    assert!(why(&place(&mut c, &["data"]))[0].starts_with("p VolumeNotFound"));
    assert!(why(&place(&mut c, &["missing"]))[0].contains("default/missing isn't there"));
}

#[test]
fn a_node_attaches_as_many_volumes_as_its_driver_says() {
    for (limit, on_node) in [(1, 1), (2, 2), (9, 3)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        storage(&mut c, "WaitForFirstConsumer", None);
        c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
        c.upsert_csi_node(&object(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": limit}}]}})))
            .unwrap();
        for i in 0..3 {
            let name = format!("v{i}");
            c.upsert_pv(&object(volume(&name, "zone-a"))).unwrap();
            c.upsert_pvc(&object(claim(&name, Some(&name), Some("fast")))).unwrap();
            c.upsert_pod(&pod(&name, "100m", "64Mi", uses(&[&name]))).unwrap();
        }
        let plan = plan(&c);
        assert_eq!(plan.existing.iter().map(|e| e.pods.len()).sum::<usize>(), on_node, "limit {limit}");
        assert_eq!(plan.unschedulable.len(), 0);
    }
}

#[test]
fn under_a_limit_the_important_come_first() {
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
fn only_pods_that_wait_for_the_default_scheduler_are_demand() {
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
fn devices_are_counted_by_name() {
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
    assert_eq!(plan1.machines.iter().map(|m| m.instance_type.as_str()).collect::<Vec<_>>(), ["g.8", "g.8"]);
    let plan2 = plan(&cluster(vec![pool("p", all)], &[pod("a", "1", "1Gi", device("3"))]));
    assert_eq!(
        why(&plan2),
        ["p InsufficientResources: largest allocatable nvidia.com/gpu in p is 2, pod asks 3"]
    );
}

#[test]
fn a_machine_on_its_way_takes_pods_before_another_is_launched() {
    let mut c = cluster(vec![pool("p", kinds())], &many(3, "1", &json!({})));
    c.upsert_coming(ComingNode {
        claim: "p-1".to_owned(),
        pool: "p".to_owned(),
        instance_type: "m.2".to_owned(),
        zone: "zone-a".to_owned(),
        labels: BTreeMap::from([("node-pool".to_owned(), "p".to_owned())]),
        // It goes by itself while the node starts.
        taints: vec![build::taint("node.kubernetes.io/not-ready", "")],
        allocatable: build::resources(&[("cpu", "2"), ("memory", "8Gi"), ("pods", "110")]),
        ..ComingNode::default()
    });
    let plan = plan(&c);
    assert_eq!((plan.existing[0].node.as_str(), plan.existing[0].coming), ("p-1", true));
    assert_eq!((plan.existing[0].pods.len(), plan.machines.len()), (2, 1));
}

#[test]
fn too_large_a_pod_is_told_in_units_that_people_use() {
    let plan = plan(&cluster(vec![pool("p", kinds())], &[pod("a", "10000", "1Gi", json!({}))]));
    assert_eq!(
        why(&plan),
        ["p InsufficientResources: largest allocatable cpu in p is 16 cores, pod asks 10000 cores"]
    );
}

fn near(key: &str, app: &str) -> Value {
    json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}]}}}})
}

fn app(name: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}})
}

#[test]
fn pods_that_need_each_other_on_one_host_get_one_machine() {
    // Two processors for the leader, three of one for those who follow: m.8 is the least that holds them together.
    let mut pods = vec![pod("leader", "2", "1Gi", app("lead"))];
    pods.extend((0..3).map(|i| pod(&format!("f{i}"), "1", "1Gi", near(HOST, "lead"))));
    let joint = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((joint.unschedulable.len(), joint.machines.len()), (0, 1), "{:?}", joint.unschedulable);
    assert_eq!((only_type(&joint), joint.machines[0].pods.len()), ("m.8", 4));
    // More than one host can hold: each leader takes some.
    let mut pods: Vec<Pod> = (0..2).map(|i| pod(&format!("l{i}"), "2", "1Gi", app("lead"))).collect();
    pods.extend((0..20).map(|i| pod(&format!("f{i}"), "1", "1Gi", near(HOST, "lead"))));
    let two = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((two.unschedulable.len(), two.machines.len()), (0, 2));
    assert!(two.machines.iter().all(|m| m.pods.iter().any(|p| p.name.starts_with('l'))));
    // Nobody to follow.
    let alone = plan(&cluster(vec![pool("p", kinds())], &[pod("f", "1", "1Gi", near(HOST, "lead"))]));
    assert!(why(&alone)[0].starts_with("p PodAffinity"), "{:?}", why(&alone));
}

#[test]
fn who_is_a_mate_to_itself_joins_others_that_may_come_first() {
    // The leader fits beside the large pods as well; there, no room would be left for who must be with it.
    let mut follower = near(HOST, "lead");
    follower["metadata"] = app("lead")["metadata"].clone();
    let mut pods: Vec<Pod> = (0..3).map(|i| pod(&format!("large{i}"), "15", "1Gi", json!({}))).collect();
    pods.push(pod("leader", "500m", "1Gi", app("lead")));
    pods.extend((0..2).map(|i| pod(&format!("f{i}"), "3", "1Gi", follower.clone())));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    let with_leader = plan.machines.iter().find(|m| m.pods.iter().any(|p| &*p.name == "leader")).unwrap();
    assert_eq!(with_leader.pods.iter().filter(|p| p.name.starts_with('f')).count(), 2);
}

#[test]
fn who_must_all_be_on_one_host_has_it_before_others() {
    let mut together = near(HOST, "flock");
    together["metadata"] = app("flock")["metadata"].clone();
    let mut pods = vec![pod("other", "6", "1Gi", json!({}))];
    pods.extend((0..4).map(|i| pod(&format!("f{i}"), "3", "1Gi", together.clone())));
    let both = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(both.unschedulable.len(), 0, "{:?}", why(&both));
    let flock = |m: &&croft_scheduler::Machine| m.pods.iter().any(|p| p.name.starts_with('f'));
    assert_eq!(both.machines.iter().filter(flock).count(), 1);
    // Room for five: the sixth stays, as it would in the cluster.
    let pods: Vec<Pod> = (0..6).map(|i| pod(&format!("f{i}"), "3", "1Gi", together.clone())).collect();
    let more = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((more.machines.len(), more.machines[0].pods.len(), more.unschedulable.len()), (1, 5, 1));
}

#[test]
fn a_chain_of_needs_is_followed() {
    let mut middle = near(HOST, "lead");
    middle["metadata"] = json!({"labels": {"app": "middle"}});
    let pods = [
        pod("a-last", "1", "1Gi", near(HOST, "middle")),
        pod("b-middle", "1", "1Gi", middle),
        pod("c-leader", "1", "1Gi", app("lead")),
    ];
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((plan.unschedulable.len(), plan.machines.len()), (0, 1), "{:?}", plan.unschedulable);
}

#[test]
fn whom_others_must_join_goes_where_they_can() {
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
fn an_old_node_takes_a_leader_only_with_room_for_who_follows() {
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
fn wishes_between_pods_are_honoured_where_free() {
    let wish = |kind: &str, key: &str, other: &str, own: &str| {
        json!({"metadata": {"labels": {"app": own}}, "spec": {"affinity": {kind: {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "podAffinityTerm":
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": other}}}}]}}}})
    };
    // Near the database's zone; away from it.
    for (kind, zone) in [("podAffinity", "zone-c"), ("podAntiAffinity", "zone-a")] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "1", "4Gi", json!({ZONE: "zone-c"}))).unwrap();
        let mut database = app("db");
        database["spec"] = json!({"nodeName": "n"});
        c.upsert_pod(&pod("db", "1", "1Gi", database)).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", wish(kind, ZONE, "db", "web"))).unwrap();
        assert_eq!(plan(&c).machines[0].zone, zone, "{kind}");
    }
    // On old nodes: beside the mate, or away from one's own kind.
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
    // On new machines pods of the same size change places: each has one of both workloads.
    let only = || vec![kind("m.2", "2", "8Gi", 0.1)];
    let mut pods: Vec<Pod> = Vec::new();
    for name in ["red", "blue"] {
        pods.extend(
            (0..2).map(|i| pod(&format!("{name}{i}"), "1", "1Gi", wish("podAntiAffinity", HOST, name, name))),
        );
    }
    let apart = plan(&cluster(vec![pool("p", only())], &pods));
    assert_eq!(apart.machines.len(), 2);
    for machine in &apart.machines {
        let mut names: Vec<&str> = machine.pods.iter().map(|p| &p.name[..3]).collect();
        names.sort_unstable();
        assert_eq!(names, ["blu", "red"]);
    }
    // A wish that can't be met, and one that would cost: nobody waits for it.
    let lonely: Vec<Pod> = (0..4)
        .map(|i| pod(&format!("p{i}"), "250m", "1Gi", wish("podAntiAffinity", HOST, "x", "x")))
        .collect();
    let cheap = plan(&cluster(vec![pool("p", kinds())], &lonely));
    assert_eq!((only_type(&cheap), cheap.unschedulable.len()), ("m.1", 0));
}

#[test]
fn who_ignores_node_affinity_sees_the_zones_that_others_open_and_no_more() {
    let confined = || {
        let mut it = spread(json!({"nodeAffinityPolicy": "Ignore"}));
        it["spec"]["nodeSelector"] = json!({ZONE: "zone-a"});
        it
    };
    // Zone a is all that these pods can open; that others could be opened doesn't matter while nobody opens them.
    let alone = plan(&cluster(vec![pool("p", kinds())], &many(4, "1", &confined())));
    assert_eq!(zones(&alone), BTreeMap::from([("zone-a", 4)]));
    // Somebody of another pool opens zone b: there it stays empty, and one in zone a is all that the skew allows.
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

/// Needs more than two processors, and to be even over zones with others of its app.
fn large_and_even(max_skew: i32) -> Value {
    let mut it = spread(json!({"maxSkew": max_skew}));
    it["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["2"]}]}]}}});
    it
}

/// A full machine of four processors in zone a, with a pod that keeps off what `guards` says.
fn with_full_node(pool: croft_scheduler::Pool, guards: Value) -> Cluster {
    let mut c = cluster(vec![pool], &[]);
    c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a", "size": "4", "node-pool": "p"}))).unwrap();
    let full = json!({"spec": {"nodeName": "n", "affinity": {"podAntiAffinity": guards}}});
    c.upsert_pod(&pod("full", "4", "1Gi", full)).unwrap();
    c
}

/// Asserts that the pods whose names start with `even` are bound whoever comes first: their zones have at most `max_skew`
/// pods of the app more than any zone does, on machines with more than two processors; zone a has such a machine.
fn assert_even(plan: &Plan, max_skew: usize) {
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let mut zones: BTreeMap<&str, (usize, bool)> = BTreeMap::from([("zone-a", (0, false))]);
    for machine in plan.machines.iter().filter(|m| m.labels["size"].parse::<u32>().unwrap() > 2) {
        let zone = zones.entry(&machine.zone).or_default();
        zone.0 += machine.pods.len();
        zone.1 |= machine.pods.iter().any(|p| p.name.starts_with("even"));
    }
    let least = zones.values().map(|(count, _)| *count).min().unwrap_or(0);
    assert!(zones.values().all(|(count, even)| !even || count - least <= max_skew), "{zones:?}");
}

#[test]
fn who_is_even_and_near_stays_so_when_others_come_first() {
    // Zone a is closed to the app; two processors are dear, so that the plain ones would rather be on machines that count.
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
    let mut even = large_and_even(2);
    even["spec"]["affinity"]["podAffinity"] = near(ZONE, "x")["spec"]["affinity"]["podAffinity"].clone();
    c.upsert_pod(&pod("even", "7", "1Gi", even)).unwrap();
    assert_even(&plan(&c), 2);
}

#[test]
fn pods_on_machines_that_a_spread_does_not_see_do_not_count() {
    // The plain ones are of the app and all in zone a, but the cheapest machine for them is too small for the spread to see.
    let mut c = with_full_node(pool("p", with_labels("size")), json!({}));
    for i in 0..3 {
        let mut plain = app("x");
        plain["spec"] = json!({"nodeSelector": {ZONE: "zone-a"}});
        c.upsert_pod(&pod(&format!("plain{i}"), "1", "4Gi", plain)).unwrap();
    }
    for i in 0..4 {
        c.upsert_pod(&pod(&format!("even{i}"), "4", "16Gi", large_and_even(1))).unwrap();
    }
    assert_even(&plan(&c), 1);
}

#[test]
fn zones_that_only_others_open_are_domains_with_honoured_affinity_too() {
    // Pool q has a taint that the even ones don't tolerate, and is a domain all the same: taints are ignored by default.
    let mut q = pool("q", with_labels("size"));
    q.taints = vec![build::taint("for", "others")];
    let mut p = pool("p", with_labels("size"));
    p.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let mut pods: Vec<Pod> =
        (0..4).map(|i| pod(&format!("even{i}"), "3", "1Gi", large_and_even(1))).collect();
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
fn who_keeps_others_away_leaves_them_a_zone() {
    let lonely = |zone: Option<&str>| {
        let mut more = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "many"}}}]}}}});
        if let Some(zone) = zone {
            more["spec"]["nodeSelector"] = json!({ZONE: zone});
        }
        more
    };
    let mut many = app("many");
    many["spec"] = json!({"nodeSelector": {ZONE: "zone-a"}});
    let mut pods: Vec<Pod> = (0..3).map(|i| pod(&format!("m{i}"), "1", "1Gi", many.clone())).collect();
    pods.push(pod("lonely", "1", "1Gi", lonely(None)));
    let both = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((both.unschedulable.len(), zones(&both)["zone-a"]), (0, 3), "{:?}", why(&both));
    // One zone for all: the scheduler binds whom it sees first, and the other stays.
    pods.pop();
    pods.push(pod("lonely", "1", "1Gi", lonely(Some("zone-a"))));
    let later = plan(&cluster(vec![pool("p", kinds())], &pods));
    let left = |plan: &Plan| plan.unschedulable.iter().map(|u| u.pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!(left(&later), ["lonely"]);
    pods.rotate_right(1);
    assert_eq!(left(&plan(&cluster(vec![pool("p", kinds())], &pods))), ["m0", "m1", "m2"]);
}

#[test]
fn machines_on_their_way_keep_even_with_what_runs_elsewhere() {
    let labels = |zone: &str| json!({"node-pool": "p", ZONE: zone});
    let guard = json!({"metadata": {"labels": {"app": "b"}}, "spec": {"nodeName": "old", "affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": ZONE}]}}}});
    // The second constraint makes nodes without a host's name no domains of the first.
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
    // One runs in zone-c, where the guard lets no other in: with a fourth, zone-a would be three ahead.
    let plan = plan(&c);
    assert_eq!(plan.existing.iter().map(|e| e.pods.len()).sum::<usize>(), 3, "{:?}", plan.existing);
    assert_eq!(zones(&plan), BTreeMap::from([("zone-b", 1)]), "{:?}", plan.unschedulable);
}
