#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use serde_json::json;

use crate::{Cluster, Options, PodKey, solve};

fn pod(n: usize, node: Option<&str>) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"namespace": format!("ns-{}", n % 50_000), "name": format!("p-{n}"),
            "labels": {"pod-name": format!("p-{n}"), "app": "x"}},
        "spec": {"nodeName": node, "nodeSelector": {"batch": format!("b-{}", n / 10)},
            "tolerations": [{"key": format!("t-{}", n / 100), "operator": "Exists"}],
            "containers": [{"name": "c", "resources": {"requests": {"cpu": format!("{}m", 1 + n % 100_000)}}}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": format!("c-{n}")}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": format!("s-{n}")}}}}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"pod-name": format!("p-{n}")}}}]}}}
    }))
    .unwrap()
}

fn node(n: usize) -> Node {
    let name = format!("node-{n}");
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "pods": "10", format!("example.com/device-{n}"): "1"}}}))
    .unwrap()
}

fn claim(n: usize) -> PersistentVolumeClaim {
    serde_json::from_value(
        json!({"metadata": {"namespace": format!("ns-{}", n % 50_000), "name": format!("c-{n}")},
        "spec": {"volumeName": format!("v-{n}")}}),
    )
    .unwrap()
}

/// Sizes that must stay bounded.
fn size(cluster: &Cluster) -> (usize, usize, usize, usize) {
    let t = &cluster.tables;
    (
        t.symbols.0.len() + t.shapes.len() + t.idents.len() + t.selectors.len() + t.reqs.len(),
        cluster.nodes.len(),
        cluster.pods.len(),
        t.resources.len(),
    )
}

#[test]
fn a_million_changes_leave_nothing_behind() {
    let mut cluster = Cluster::new();
    let mut most = (0, 0, 0, 0);
    let mut changes = 0;
    for n in 0..125_000 {
        let name = format!("node-{n}");
        let key = PodKey::new(&format!("ns-{}", n % 50_000), &format!("p-{n}"));
        cluster.upsert_node(&node(n)).unwrap();
        cluster.upsert_pvc(&claim(n)).unwrap();
        cluster.upsert_pod(&pod(n, None)).unwrap();
        cluster.nominate(&key, &format!("claim-{n}"), true);
        cluster.upsert_pod(&pod(n, Some(&name))).unwrap();
        changes += 5;
        // The node is removed before its pod, as when an instance is lost.
        cluster.remove_node(&name);
        cluster.remove_pod(&key.namespace, &key.name);
        cluster.remove_pvc(&key.namespace, &format!("c-{n}"));
        changes += 3;
        let now = size(&cluster);
        most = (most.0.max(now.0), most.1.max(now.1), most.2.max(now.2), most.3.max(now.3));
    }
    assert_eq!(changes, 1_000_000);
    // Twice what one pass allows, not a hundred thousand of everything.
    assert!(most.0 < 4 * crate::state::id_reuse::WORTH_IT, "{most:?}");
    assert!(most.1 <= 2 && most.2 <= 1, "{most:?}");
    assert!(most.3 < 2 * crate::state::id_reuse::WORTH_IT, "{most:?}");
    assert!(cluster.by_label.is_empty() && cluster.holders.is_empty() && cluster.idents_of.is_empty());
}

#[test]
fn what_is_still_there_keeps_its_meaning() {
    let mut tidied = Cluster::new();
    let mut plain = Cluster::new();
    for cluster in [&mut tidied, &mut plain] {
        for n in 0..20 {
            cluster.upsert_node(&node(n)).unwrap();
            cluster.upsert_pvc(&claim(n)).unwrap();
        }
    }
    for n in 1_000..1_500 {
        tidied.upsert_pod(&pod(n, Some(&format!("node-{}", n % 20)))).unwrap();
        tidied.upsert_node(&node(n)).unwrap();
    }
    for n in 1_000..1_500 {
        tidied.remove_pod(&format!("ns-{n}"), &format!("p-{n}"));
        tidied.remove_node(&format!("node-{n}"));
    }
    tidied.tidy_now();
    let waiting: Pod = serde_json::from_value(json!({
        "metadata": {"namespace": "default", "name": "w", "labels": {"pod-name": "w"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/device-7": "1"}}}]}}))
    .unwrap();
    for cluster in [&mut tidied, &mut plain] {
        cluster.upsert_pod(&waiting).unwrap();
        cluster.tidy_now();
        let plan = solve(cluster, &Options::default(), &|| false);
        assert_eq!(plan.existing.len(), 1);
        assert_eq!(plan.existing.first().map(|e| e.node.as_str()), Some("node-7"));
    }
}
