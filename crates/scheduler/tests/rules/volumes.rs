//! Volumes: zones and attach limits.

use croft_scheduler::Cluster;
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
    c.upsert_pvc(&object(claim("data", None, Some("fast")))).unwrap();
    assert!(why(&place(&mut c, &["data"]))[0].starts_with("p VolumeNotFound"));
    assert!(why(&place(&mut c, &["missing"]))[0].contains("default/missing isn't there"));
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
