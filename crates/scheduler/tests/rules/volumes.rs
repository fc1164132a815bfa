//! Volumes: zones and attach limits.

use croft_scheduler::{Cluster, Options, ReasonKind, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    build::{ZONE, cluster, kinds, node, plan, pod, pool, why},
    object,
};

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
fn volumes_restrict_zones() {
    let place = |c: &mut Cluster, claims: &[&str]| {
        c.upsert_pod(&pod("a", "1", "1Gi", uses(claims))).unwrap();
        plan(c)
    };
    // Bound: the zone of the volume.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_pv(&object(volume("v", "zone-b"))).unwrap();
    c.upsert_pvc(&object(claim("data", Some("v"), Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).instances[0].zone, "zone-b");
    // By the deprecated zone labels of volumes.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    let mut old = volume("v", "unused");
    old["spec"]["nodeAffinity"] = Value::Null;
    old["metadata"]["labels"] = json!({"failure-domain.beta.kubernetes.io/zone": "zone-b__zone-c"});
    c.upsert_pv(&object(old)).unwrap();
    c.upsert_pvc(&object(claim("data", Some("v"), Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).instances[0].zone, "zone-b");
    // Not bound yet: the zones of the StorageClass.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    storage(&mut c, "WaitForFirstConsumer", Some("zone-c"));
    c.upsert_pvc(&object(claim("data", None, Some("fast")))).unwrap();
    assert_eq!(place(&mut c, &["data"]).instances[0].zone, "zone-c");
    // Two volumes in different zones: unschedulable.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    for (name, zone) in [("v", "zone-a"), ("w", "zone-b")] {
        c.upsert_pv(&object(volume(name, zone))).unwrap();
        c.upsert_pvc(&object(claim(name, Some(name), Some("fast")))).unwrap();
    }
    assert!(why(&place(&mut c, &["v", "w"]))[0].starts_with("p VolumeTopology"));
    // Immediate and not bound; missing; lost.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    storage(&mut c, "Immediate", None);
    let mut stored = claim("data", None, Some("fast"));
    stored["metadata"]["uid"] = json!("uid-data");
    c.upsert_pvc(&object(stored)).unwrap();
    assert!(why(&place(&mut c, &["data"]))[0].starts_with("p VolumeNotFound"));
    assert!(why(&place(&mut c, &["missing"]))[0].contains("default/missing isn't there"));
}

/// A pod with a generic ephemeral volume `scratch`.
fn with_ephemeral(name: &str, class: Option<&str>) -> Pod {
    let spec = json!({"storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}}});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}]);
    pod(
        name,
        "100m",
        "64Mi",
        json!({"metadata": {"uid": format!("uid-{name}")}, "spec": {"volumes": volumes}}),
    )
}

#[test]
fn ephemeral_volume_without_claim_is_planned_from_its_template() {
    let place = |c: &mut Cluster, class: Option<&str>| {
        c.upsert_pod(&with_ephemeral("a", class)).unwrap();
        plan(c)
    };
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    assert!(why(&place(&mut c, Some("fast")))[0].contains("names storage class fast, which isn't there"));
    assert!(why(&place(&mut c, None))[0].contains("names no storage class"));
    storage(&mut c, "Immediate", Some("zone-c"));
    assert!(why(&place(&mut c, Some("fast")))[0].contains("storage class fast binds at once"));
    storage(&mut c, "WaitForFirstConsumer", Some("zone-c"));
    assert_eq!(place(&mut c, Some("fast")).instances[0].zone, "zone-c");
    // The claim will get the default class.
    for default in
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
    {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_storage_class(&object(
            json!({"metadata": {"name": "usual", "annotations": {default: "true"}},
            "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["zone-b"]}]}]}),
        ))
        .unwrap();
        assert_eq!(place(&mut c, None).instances[0].zone, "zone-b", "{default}");
    }
    // Volumes that are made by hand: a free one of the class.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_storage_class(&object(
        json!({"metadata": {"name": "fast"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"}),
    ))
    .unwrap();
    assert!(why(&place(&mut c, Some("fast")))[0].contains("no free PersistentVolume of class fast"));
    c.upsert_pv(&object(volume("v", "zone-c"))).unwrap();
    assert_eq!(place(&mut c, Some("fast")).instances[0].zone, "zone-c");
}

#[test]
fn ephemeral_volume_with_claim_follows_the_claim_if_the_pod_controls_it() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    storage(&mut c, "WaitForFirstConsumer", Some("zone-c"));
    c.upsert_pod(&with_ephemeral("a", Some("fast"))).unwrap();
    c.upsert_pv(&object(volume("v", "zone-b"))).unwrap();
    let mut created = claim("a-scratch", Some("v"), Some("fast"));
    let owner =
        |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": true}]);
    // A claim that a user created under that name, and that of an earlier pod of that name.
    for owners in [json!([]), owner("uid-earlier")] {
        created["metadata"]["ownerReferences"] = owners;
        c.upsert_pvc(&object(created.clone())).unwrap();
        assert!(why(&plan(&c))[0].contains("default/a-scratch wasn't created for the pod"));
    }
    created["metadata"]["ownerReferences"] = owner("uid-a");
    c.upsert_pvc(&object(created.clone())).unwrap();
    assert_eq!(plan(&c).instances[0].zone, "zone-b");
    created["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    c.upsert_pvc(&object(created)).unwrap();
    assert!(why(&plan(&c))[0].contains("default/a-scratch is being deleted"));
    c.remove_pvc("default", "a-scratch");
    assert_eq!(plan(&c).instances[0].zone, "zone-c");
}

#[test]
fn ephemeral_volumes_count_against_the_csi_limit_before_their_claims_exist() {
    for (limit, class) in [(2, Some("fast")), (9, None)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        storage(&mut c, "WaitForFirstConsumer", None);
        c.upsert_storage_class(&object(json!({"metadata": {"name": "usual", "annotations": {
            "storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "other.example.com",
            "volumeBindingMode": "WaitForFirstConsumer"})))
            .unwrap();
        c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
        c.upsert_csi_node(&object(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": limit}},
            {"name": "other.example.com", "nodeID": "n", "allocatable": {"count": 2}}]}})))
            .unwrap();
        let mut bound = with_ephemeral("bound", class);
        bound.spec.as_mut().unwrap().node_name = Some("n".to_owned());
        c.upsert_pod(&bound).unwrap();
        for i in 0..3 {
            c.upsert_pod(&with_ephemeral(&format!("w{i}"), class)).unwrap();
        }
        let on_node = |c: &Cluster| plan(c).existing.iter().map(|e| e.pods.len()).sum::<usize>();
        assert_eq!(on_node(&c), 1, "one of two places is taken, by {class:?}");
        c.remove_pod("default", "bound");
        assert_eq!(on_node(&c), 2, "both are free, for {class:?}");
    }
}

#[test]
fn csi_limit_bounds_volumes_per_node() {
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
fn a_pod_without_its_claim_goes_to_no_node_also_where_kube_scheduler_is_simulated() {
    for simulate_default_scheduler in [false, true] {
        let mut c = cluster(
            vec![pool("p", kinds())],
            &[pod("a", "1", "1Gi", uses(&["nowhere"])), pod("b", "1", "1Gi", json!({}))],
        );
        c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        let options = Options { simulate_default_scheduler, ..Options::default() };
        let plan = solve(&c, &options, &|| false);
        let placed: Vec<&str> = plan.existing.iter().flat_map(|e| &e.pods).map(|pod| &*pod.name).collect();
        assert_eq!(placed, ["b"]);
        assert_eq!(plan.unschedulable[0].reasons[0].reason, ReasonKind::VolumeNotFound);
    }
}

#[test]
fn claim_of_a_file_is_bound_by_a_class_that_binds_at_once() {
    for (topology, zone) in [(None, None), (Some("zone-c"), Some("zone-c"))] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        storage(&mut c, "Immediate", topology);
        c.upsert_pvc(&object(claim("data", None, Some("fast")))).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", uses(&["data"]))).unwrap();
        let plan = plan(&c);
        assert_eq!(plan.instances.len(), 1, "{:?}", plan.unschedulable);
        assert!(zone.is_none_or(|zone| plan.instances[0].zone == zone));
    }
}

/// Types of 16 cores that attach as many volumes.
fn attaching(limit: i64) -> Vec<croft_scheduler::InstanceType> {
    let mut kinds = kinds();
    kinds.retain(|kind| kind.name == "m.16");
    kinds[0].attach_limits.insert("disk.example.com".to_owned(), limit);
    kinds
}

/// `count` small pods with a volume each in zone-a, which `source` provides.
fn with_volumes(c: &mut Cluster, count: usize, source: impl Fn(&str) -> Value) {
    for i in 0..count {
        let name = format!("v{i}");
        c.upsert_pv(&object(source(&name))).unwrap();
        c.upsert_pvc(&object(claim(&name, Some(&name), Some("fast")))).unwrap();
        c.upsert_pod(&pod(&name, "100m", "64Mi", uses(&[&name]))).unwrap();
    }
}

#[test]
fn new_nodes_get_as_many_volumes_as_their_type_attaches() {
    for (limit, most, nodes) in [(25, 25, 3), (60, 60, 1), (1, 1, 60)] {
        let mut c = cluster(vec![pool("p", attaching(limit))], &[]);
        with_volumes(&mut c, 60, |name| volume(name, "zone-a"));
        let plan = plan(&c);
        assert!(plan.unschedulable.is_empty());
        assert_eq!(plan.instances.len(), nodes, "limit {limit}");
        assert!(plan.instances.iter().all(|instance| instance.pods.len() <= most), "limit {limit}");
    }
    let mut c = cluster(vec![pool("p", attaching(1))], &[]);
    for name in ["v", "w"] {
        c.upsert_pv(&object(volume(name, "zone-a"))).unwrap();
        c.upsert_pvc(&object(claim(name, Some(name), Some("fast")))).unwrap();
    }
    c.upsert_pod(&pod("a", "1", "1Gi", uses(&["v", "w"]))).unwrap();
    let expected = "p VolumeLimit: nodes of p attach at most 1 volumes of disk.example.com, pod has 2";
    assert_eq!(why(&plan(&c)), [expected]);
}

#[test]
fn nodes_tell_how_many_volumes_new_ones_of_their_type_attach() {
    let labels = json!({ZONE: "zone-a", "node.kubernetes.io/instance-type": "m.16", "node-pool": "p"});
    for known in [2, 60] {
        let mut c = cluster(vec![pool("p", attaching(known))], &[]);
        c.upsert_node(&node("n", "0", "0", labels.clone())).unwrap();
        c.upsert_csi_node(&object(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": 5}}]}})))
            .unwrap();
        with_volumes(&mut c, 20, |name| volume(name, "zone-a"));
        assert_eq!(plan(&c).instances.len(), 4, "the catalogue says {known}");
    }
}

#[test]
fn what_nodes_of_other_types_report_keeps_no_pod_pending() {
    for (reported, nodes) in [(0, 1), (1, 2), (5, 1)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        let other = json!({ZONE: "zone-a", "node.kubernetes.io/instance-type": "other"});
        c.upsert_node(&node("n", "0", "0", other)).unwrap();
        c.upsert_csi_node(&object(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
            {"name": "disk.example.com", "nodeID": "n", "allocatable": {"count": reported}}]}})))
            .unwrap();
        with_volumes(&mut c, 4, |name| volume(name, "zone-a"));
        // A pod with two volumes.
        c.remove_pod("default", "v0");
        c.remove_pod("default", "v1");
        c.upsert_pod(&pod("both", "100m", "64Mi", uses(&["v0", "v1"]))).unwrap();
        let plan = plan(&c);
        assert_eq!((plan.instances.len(), plan.unschedulable.len()), (nodes, 0), "a node reports {reported}");
    }
}

#[test]
fn pods_that_share_a_volume_attach_it_once() {
    let mut c = cluster(vec![pool("p", attaching(1))], &[]);
    c.upsert_pv(&object(volume("v", "zone-a"))).unwrap();
    c.upsert_pvc(&object(claim("v", Some("v"), Some("fast")))).unwrap();
    for i in 0..5 {
        c.upsert_pod(&pod(&format!("p{i}"), "1", "1Gi", uses(&["v"]))).unwrap();
    }
    assert_eq!(plan(&c).instances.len(), 1);
}

#[test]
fn migrated_volumes_count_as_those_of_the_csi_driver() {
    let in_tree = |name: &str| {
        let mut volume = volume(name, "zone-a");
        volume["spec"]["csi"] = Value::Null;
        volume["spec"]["awsElasticBlockStore"] = json!({"volumeID": name});
        volume
    };
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
    c.upsert_csi_node(&object(json!({"metadata": {"name": "n"}, "spec": {"drivers": [
        {"name": "ebs.csi.aws.com", "nodeID": "n", "allocatable": {"count": 1}}]}})))
        .unwrap();
    with_volumes(&mut c, 2, in_tree);
    assert_eq!(plan(&c).existing.iter().map(|e| e.pods.len()).sum::<usize>(), 1);
}

#[test]
fn second_pod_of_a_claim_for_one_pod_waits() {
    let exclusive = || {
        let mut claim = claim("data", Some("v"), Some("fast"));
        claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
        claim
    };
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_pv(&object(volume("v", "zone-b"))).unwrap();
    c.upsert_pvc(&object(exclusive())).unwrap();
    for name in ["a", "b"] {
        c.upsert_pod(&pod(name, "9", "1Gi", uses(&["data"]))).unwrap();
    }
    let first = plan(&c);
    assert_eq!((first.instances.len(), first.unschedulable.len()), (1, 1));
    let waits = "p VolumeNotFound: its ReadWriteOncePod claim is another pending pod's, which comes first";
    assert_eq!(why(&first), [waits]);

    // A pod that is moved keeps its claim.
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    c.upsert_pv(&object(volume("v", "zone-b"))).unwrap();
    c.upsert_pvc(&object(exclusive())).unwrap();
    c.upsert_node(&node("n", "16", "64Gi", json!({ZONE: "zone-b"}))).unwrap();
    let mut running = pod("a", "1", "1Gi", uses(&["data"]));
    running.spec.as_mut().unwrap().node_name = Some("n".to_owned());
    c.upsert_pod(&running).unwrap();
    let without = Options { without_nodes: vec!["n".to_owned()], ..Options::default() };
    assert!(solve(&c, &without, &|| false).unschedulable.is_empty());
}
