//! `croft simulate --live --compare` in a cluster of other launchers, with the rights of its page and no others.

use std::collections::BTreeSet;

use croft_manifest::{Input, Objects, each_kind};
use croft_testkit::{Component, ControlPlane, Options};
use croft_tests::{
    cli::{croft, croft_as},
    manifests::{joined, tenant},
    page,
};
use kube::Resource;
use serde_json::{Value, json};

const PAGE: &str = "docs/tasks/see-what-it-would-cost.md";

/// A node of the type `m5.large` with labels of its launcher.
fn node(name: &str, labels: &Value) -> Value {
    let mut all = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m5.large", "topology.kubernetes.io/zone": "us-east-1a",
    });
    for (key, value) in labels.as_object().unwrap() {
        all[key] = value.clone();
    }
    let amounts = json!({"cpu": "2", "memory": "8Gi", "pods": "29"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": all},
        "status": {"capacity": amounts, "allocatable": amounts},
    })
}

fn pod(namespace: &str, name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [
            {"name": "a", "image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]},
    })
}

/// A namespace, with the ServiceAccount that its pods need.
fn namespace(name: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}),
    ]
}

/// The ClusterRole of the page.
fn documented_role() -> String {
    let page = std::fs::read_to_string(page::root().unwrap().join(PAGE)).unwrap();
    let role = page.split("<<'EOM'\n").nth(1).unwrap().split("\nEOM").next().unwrap();
    role.to_owned()
}

/// The kinds that the command lists, by group and plural.
fn listed() -> BTreeSet<(String, String)> {
    fn kind<K: Resource<DynamicType = ()>>(_: &Objects<K>) -> (String, String) {
        (K::group(&()).into_owned(), K::plural(&()).into_owned())
    }
    let input = Input::default();
    macro_rules! kinds {
        ($($field:ident: $group:ident),*) => { [$(kind(&input.$field)),*] };
    }
    each_kind!(kinds).into_iter().collect()
}

#[test]
fn the_documented_role_lists_what_the_command_reads_and_nothing_else() {
    let role: Value = serde_saphyr::from_str(&documented_role()).unwrap();
    let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap() };
    let mut granted = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        assert_eq!(rule["verbs"], json!(["list"]), "{rule}");
        for group in texts(&rule["apiGroups"]) {
            granted.extend(texts(&rule["resources"]).into_iter().map(|plural| (group.clone(), plural)));
        }
    }
    assert_eq!(granted, listed());
}

#[tokio::test]
async fn cluster_without_croft_is_compared_with_the_documented_rights_alone() {
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Scheduler)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await.unwrap();
    let group = json!({"eks.amazonaws.com/nodegroup": "web", "eks.amazonaws.com/capacityType": "ON_DEMAND"});
    let karpenter = json!({"karpenter.sh/nodepool": "batch", "karpenter.sh/capacity-type": "on-demand"});
    let mut objects = vec![
        node("web-1", &group),
        node("web-2", &group),
        node("batch-1", &karpenter),
        node("cp-1", &json!({"node-role.kubernetes.io/control-plane": ""})),
    ];
    objects.extend(["web", "batch", "reader"].into_iter().flat_map(namespace));
    plane.apply(&joined(&objects)).await.unwrap();
    let pods = [
        pod("web", "a", "web-1"),
        pod("web", "b", "web-2"),
        pod("batch", "c", "batch-1"),
        pod("batch", "d", "cp-1"),
    ];
    plane.apply(&joined(&pods)).await.unwrap();

    let reader = plane.kubeconfig_for_service_account("reader", "default").await.unwrap();
    let (code, text) = croft_as(&reader, "simulate --live --compare").await.unwrap();
    assert_eq!(code, 1, "without rights: {text}");
    assert!(text.contains("failed to list"), "{text}");
    plane.apply(&documented_role()).await.unwrap();
    let bind = [
        "create",
        "clusterrolebinding",
        "compare",
        "--clusterrole=croft-compare",
        "--serviceaccount=reader:default",
    ];
    plane.kubectl(bind).await.unwrap();

    let (code, text) = croft_as(&reader, "simulate --live --compare").await.unwrap();
    assert_eq!(code, 0, "{text}");
    for part in [
        "There is no Tenant and no TenantPool",
        "node group web",
        "NodePool batch",
        "not compared: 1 control-plane node, with 1 pod",
        "a month less",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text) = croft_as(&reader, "simulate --live --compare -o json").await.unwrap();
    assert_eq!(code, 0, "{text}");
    let found: Value = serde_json::from_str(&text).unwrap();
    let counts = |side: &str| (found[side]["nodes"].as_u64().unwrap(), found[side]["pods"].as_u64().unwrap());
    assert_eq!(counts("now"), (3, 3));
    assert_eq!(found["now"]["nodesOfUnknownPrice"], 0, "{text}");
    let bound = found["lowerBoundPerHour"].as_f64().unwrap();
    assert!(bound > 0.0 && bound <= found["planned"]["costPerHour"].as_f64().unwrap(), "{text}");
    let crds = plane.kubectl(["get", "crd", "--output", "name"]).await.unwrap();
    assert_eq!(crds.trim(), "", "nothing was installed");

    // With Croft's CRDs, what is declared counts, and so do the objects of files.
    for crd in croft_api::crds() {
        plane.apply(&serde_json::to_string(&crd).unwrap()).await.unwrap();
    }
    plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]).await.unwrap();
    let spec = json!({"key": "node-pool", "limits": {"nodes": 9}, "template": {"spec": {
        "nodeClassRef": {"name": "default"},
        "requirements": [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}]}}});
    plane.apply(&joined(&tenant("web", "web", &spec))).await.unwrap();
    let (code, text) = croft_as(&reader, "simulate --live --compare").await.unwrap();
    assert_eq!(code, 0, "{text}");
    let moved = "2 pods of node group web would move to web: Tenant web has the namespace web (web/a, web/b)";
    assert!(text.contains(moved), "{text}");
    let file = plane.folder().join("batch.yaml");
    let batch = tenant("batch", "batch", &spec);
    let settings: Vec<&Value> = batch.iter().filter(|object| object["kind"] != "Namespace").collect();
    std::fs::write(&file, joined(settings)).unwrap();
    let command = format!("simulate --live --compare -f {}", file.display());
    let (code, text) = croft(&plane, &command).await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 pod of NodePool batch would move to batch"), "{text}");
    plane.stop().unwrap();
}
