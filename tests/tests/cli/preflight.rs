//! `croft check --preflight` on clusters that Croft can be installed into, and on those where something is in the way.

use std::net::{Ipv4Addr, SocketAddr};

use axum::{Json, Router, routing::get};
use croft_runtime::kubernetes::{self, Concern};
use croft_testkit::{Component, ControlPlane, Croft, CroftOptions, Options, Part, http};
use croft_tests::{
    cli::{croft, croft_with_credentials},
    manifests::{daemon_set, joined},
    stack::EVENTUALLY,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn node(name: &str, taints: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "50"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "50"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": "ready"}],
        },
    })
}

/// An API server of Kubernetes 1.32 that knows nothing else: its address.
async fn old_api_server() -> SocketAddr {
    let names = ["buildDate", "compiler", "gitCommit", "gitTreeState", "gitVersion", "goVersion", "platform"];
    let mut version: Value = names.iter().map(|name| ((*name).to_owned(), json!(""))).collect();
    version["major"] = json!("1");
    version["minor"] = json!("32+");
    let router = Router::new().route("/version", get(async move || Json(version)));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn webhook_and_controller_end_at_their_start_on_a_release_that_is_too_old() {
    let address = old_api_server().await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "old",
        "clusters": [{"name": "old", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "old", "user": {}}],
        "contexts": [{"name": "old", "context": {"cluster": "old", "user": "old"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let binaries = CroftOptions::find().unwrap().binaries;
    for (program, arguments) in [
        ("croft-webhook", ["--listen=127.0.0.1:0", "--health-listen=127.0.0.1:0"].as_slice()),
        ("croft-controller", &["--health-listen=127.0.0.1:0", "--cluster-name=old"]),
    ] {
        let ended = tokio::process::Command::new(binaries.join(program))
            .args(arguments)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(EVENTUALLY, ended).await.expect("the process ends").unwrap();
        let text = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{program}: {text}");
        assert!(text.contains("Kubernetes 1.32 is older than 1.33"), "{program}: {text}");
    }
}

/// Creates nodes, without the taint that the API server gives to new ones until a controller finds them ready.
async fn create_nodes(plane: &ControlPlane, nodes: &[Value]) {
    plane.apply(&joined(nodes)).await.unwrap();
    plane.kubectl(["taint", "node", "--all", "node.kubernetes.io/not-ready-"]).await.unwrap();
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Sends a control request to the cloud.
async fn control(cloud: SocketAddr, request: &Value) {
    let answer = http::post(cloud, "/_control", &request.to_string()).await.unwrap();
    assert!(answer.status < 300, "{}", answer.body);
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one cluster, changed step by step")]
async fn preflight_passes_an_empty_cluster_and_names_what_is_in_the_way() {
    // Without kubelets and controllers, so that nodes stay as they are written.
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    create_nodes(&plane, &[node("n-1", &json!([])), node("n-2", &json!([]))]).await;
    let (code, text) = croft(&plane, "check --preflight --skip-aws").await.unwrap();
    let release = kubernetes::release(&plane.admin().await.unwrap()).await.unwrap();
    let version = format!("ok    version: Kubernetes {release} is supported (1.33 to 1.37)");
    let features = match release.shortcomings(&Concern::ALL) {
        None => format!("ok    features: Kubernetes {release} has each that Croft uses"),
        Some(missing) => format!("warn  features: Kubernetes {release} lacks {missing}"),
    };
    for line in [
        &version,
        &features,
        "ok    policies: the API server accepts all ",
        "ok    webhooks: the API server accepts them with matchConditions (dry run)",
        "ok    crds: the API server accepts 5 CRDs (dry run)",
        "ok    earlier installation: none",
        "ok    room: 5 pods of Croft fit onto n-1, n-2",
        "note  aws: not checked: --skip-aws",
        "Croft can be installed",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert_eq!(code, 0, "{text}");
    // A dry run leaves nothing.
    for kind in ["crd", "validatingadmissionpolicies", "mutatingwebhookconfigurations"] {
        assert_eq!(plane.kubectl(["get", kind, "-o", "name"]).await.unwrap().trim(), "", "{kind}");
    }

    // No node is open, and node agents run everywhere.
    let all = json!({"tolerations": [{"operator": "Exists"}]});
    let gpu = json!([{"key": "gpu", "value": "true", "effect": "NoSchedule"}]);
    plane
        .apply(&joined(&[
            namespace("logging"),
            namespace("monitoring"),
            daemon_set("logging", "fluent-bit", all.clone()),
            daemon_set("monitoring", "exporter", all.clone()),
            daemon_set("kube-system", "cni", all),
            daemon_set("default", "cache", json!({})),
        ]))
        .await
        .unwrap();
    plane.kubectl(["delete", "node", "n-1", "n-2"]).await.unwrap();
    create_nodes(&plane, &[node("n-3", &gpu)]).await;
    let (code, text) = croft(&plane, "check --preflight --skip-aws").await.unwrap();
    assert_eq!(code, 1, "{text}");
    for line in [
        "fail  room: 5 of 5 pods of Croft fit on no node: n-3 are ready, open and of no pool, of 1 node",
        "warn  node agents: 2 DaemonSets tolerate the taints of pools, and are kept off the pools' nodes: \
         logging/fluent-bit, monitoring/exporter",
        "\n        spec:\n          sharedWith: [logging, monitoring]\n",
        "warn  untolerated taints: 1 DaemonSet for all nodes don't tolerate the taints of pools, so they won't run there: \
         default/cache",
        "1 check failed or could not run",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let (code, text) = croft(&plane, "check --preflight --skip-aws -o json").await.unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["failed"]), (1, &json!(1)), "{text}");
    let room = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "room").unwrap();
    assert_eq!(room["status"], "fail");
    assert!(room["remedy"].as_str().unwrap().contains("managed node group"), "{room}");

    // AWS: everything that can be checked is granted; then a policy lacks a right.
    let mut croft = Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    croft.resume(&plane, Part::Cloud).await.unwrap();
    let cloud = croft.address(Part::Cloud).unwrap();
    let arguments = format!(
        "check --preflight --aws-region us-east-1 --aws-endpoint-url http://{cloud} --cluster-name croft"
    );
    let arguments = format!("{arguments} --interruption-queue croft");
    let (code, text) = croft_with_credentials(&plane, &arguments).await.unwrap();
    assert_eq!(code, 1, "{text}");
    for line in [
        "warn  earlier installation: there are CRDs of Croft already",
        "ok    identity: arn:aws:iam::000000000000:role/croft-controller, by Pod Identity",
        "ok    access entries: no EC2NodeClass names a role yet",
        "ok    interruption queue: croft gets every announcement, by 4 rules",
        "ok    aws: the credentials are those of arn:aws:",
        "none is denied",
        "rights can't be checked",
        "iam:PassRole",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    // The stack isn't there, or not as it should be.
    plane
        .apply(&std::fs::read_to_string(croft.manifests().join("examples/nodeclass.yaml")).unwrap())
        .await
        .unwrap();
    let integration = json!({
        "accessEntries": {}, "podIdentities": {}, "internet": false, "endpoints": ["ec2"], "otherClusters": [],
        "rules": ["!EC2 Spot Instance Interruption Warning", "AWS Health Event"],
    });
    control(cloud, &json!({"do": "integrate", "integration": integration})).await;
    let (_, text) = croft_with_credentials(&plane, &arguments).await.unwrap();
    for line in [
        "and of 0 active Fargate profiles of croft none selects the namespace croft-system",
        "warn  identity: no Pod Identity association and no IRSA",
        "fail  access entries: no access entry lets nodes with croft-node join croft",
        "aws eks create-access-entry --cluster-name croft --type EC2_LINUX",
        "warn  interruption queue: no enabled rule puts these events on croft: EC2 Spot Instance Interruption Warning, EC2 \
         Instance Rebalance Recommendation, EC2 Instance State-change Notification",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let mut on_fargate = integration.clone();
    on_fargate["fargateProfiles"] = json!({"system": [{"namespace": "croft-*"}]});
    control(cloud, &json!({"do": "integrate", "integration": on_fargate})).await;
    let (_, text) = croft_with_credentials(&plane, &arguments).await.unwrap();
    assert!(text.contains("ok    room: Croft's pods run on Fargate, by the profile system"), "{text}");
    let policy = json!({"Statement": [
        {"Sid": "All", "Effect": "Allow", "Action": "*", "Resource": "*"},
        {"Sid": "But", "Effect": "Deny", "Action": ["ec2:DescribeSubnets", "eks:ListAccessEntries"], "Resource": "*"},
    ]});
    control(cloud, &json!({"do": "restrict", "key": "*", "policy": policy})).await;
    let (_, text) = croft_with_credentials(&plane, &arguments).await.unwrap();
    assert!(text.contains("fail  aws rights: 1 right is denied"), "{text}");
    assert!(
        text.contains("note  access entries: not known: it takes the right eks:ListAccessEntries"),
        "{text}"
    );
    assert!(
        text.contains("ec2:DescribeSubnets (`spec.subnetSelectorTerms`: zones and free addresses)"),
        "{text}"
    );
}
