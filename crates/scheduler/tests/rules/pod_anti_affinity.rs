//! Pod anti-affinity.

use croft_scheduler::Plan;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::{
    app,
    build::{HOST, ZONE, cluster, kinds, node, plan, pod, pool, why},
    object, zones,
};

#[test]
fn mismatch_label_keys_and_namespace_selector_separate_teams() {
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
        assert_eq!(plan(&c).instances[0].zone != "zone-a", kept_apart, "{stage}");
    }
}

#[test]
fn anti_affinity_of_running_pods_excludes_matching_pods() {
    for (key, free) in [(ZONE, "zone-b"), (HOST, "zone-a")] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
        let guard = json!({"spec": {"nodeName": "n", "affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
        c.upsert_pod(&pod("guard", "1", "1Gi", guard)).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", json!({"metadata": {"labels": {"app": "x"}}}))).unwrap();
        let kept = plan(&c);
        assert_eq!((kept.existing.len(), kept.instances[0].zone.as_str()), (0, free), "{key}");
        c.remove_pod("default", "guard");
        assert_eq!(plan(&c).existing.len(), 1, "{key}");
    }
}

#[test]
fn anti_affinity_of_a_pod_that_is_planned_onto_a_node_excludes_matching_pods() {
    for key in [HOST, ZONE] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a"}))).unwrap();
        let guard = json!({"spec": {"priority": 100, "affinity": {"podAntiAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}]}}}});
        c.upsert_pod(&pod("guard", "1", "1Gi", guard)).unwrap();
        c.upsert_pod(&pod("a", "1", "1Gi", app("x"))).unwrap();
        let plan = plan(&c);
        let names: Vec<&str> =
            plan.existing.iter().flat_map(|place| &place.pods).map(|pod| &*pod.name).collect();
        assert_eq!(names, ["guard"], "{key}");
        let zones: Vec<&str> = plan.instances.iter().map(|instance| &*instance.zone).collect();
        assert_eq!(zones, [if key == ZONE { "zone-b" } else { "zone-a" }], "{key}");
    }
}

#[test]
fn pod_with_anti_affinity_leaves_a_zone_to_matching_pods() {
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
    // One zone for both: the scheduler binds the first, and the other stays pending.
    pods.pop();
    pods.push(pod("lonely", "1", "1Gi", lonely(Some("zone-a"))));
    let later = plan(&cluster(vec![pool("p", kinds())], &pods));
    let left = |plan: &Plan| plan.unschedulable.iter().map(|u| u.pod.name.to_string()).collect::<Vec<_>>();
    assert_eq!(left(&later), ["lonely"]);
    pods.rotate_right(1);
    assert_eq!(left(&plan(&cluster(vec![pool("p", kinds())], &pods))), ["m0", "m1", "m2"]);
}
