//! The control plane behaves as a cluster, and leaves no process or file behind.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use croft_testkit::{
    Component, ControlPlane, Options, PLAYED,
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

const SOON: Duration = Duration::from_secs(60);

const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata:
  name: n1
  labels: {node-pool: pool-a, lab.croft.dev/kubelet: kwok}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 100m}}}]}
"#;

async fn running(pods: &Api<Pod>, count: usize) {
    until(&format!("{count} running pods"), SOON, async || {
        let list = pods.list(&Default::default()).await?;
        let phases: Vec<_> = list.iter().filter_map(|pod| pod.status.as_ref()?.phase.clone()).collect();
        let running = phases.iter().filter(|phase| *phase == "Running").count();
        Ok::<_, kube::Error>(Seen::from_option((running == count).then_some(()), format!("{phases:?}")))
    })
    .await
    .unwrap();
}

async fn ready(nodes: &Api<Node>, name: &str, wanted: &str) {
    until(&format!("node {name} with Ready={wanted}"), Duration::from_secs(120), async || {
        let node = nodes.get(name).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let status = conditions.into_iter().find(|c| c.type_ == "Ready").map(|c| c.status);
        let seen = format!("{status:?}");
        Ok::<_, kube::Error>(Seen::from_option((status.as_deref() == Some(wanted)).then_some(()), seen))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn pods_of_a_deployment_run_and_survive_their_control_plane() {
    let mut plane = ControlPlane::start(Options::default()).await.unwrap();
    let client = plane.admin().await.unwrap();
    assert_eq!(client.apiserver_version().await.unwrap().git_version, "v1.36.3");

    plane.apply(NODE).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    running(&pods, 3).await;

    for component in Component::ALL {
        plane.kill(component).unwrap();
        plane.resume(component).await.unwrap();
    }
    let victim = pods.list(&Default::default()).await.unwrap().items[0].metadata.name.clone().unwrap();
    pods.delete(&victim, &DeleteParams::default()).await.unwrap();
    until("another pod instead", SOON, async || {
        let list = pods.list(&Default::default()).await?;
        let names: Vec<_> = list.iter().filter_map(|pod| pod.metadata.name.clone()).collect();
        Ok::<_, kube::Error>(Seen::from_option(
            (!names.contains(&victim)).then_some(()),
            format!("{names:?}"),
        ))
    })
    .await
    .unwrap();
    running(&pods, 3).await;
    plane.check().unwrap();
    plane.stop().unwrap();
}

#[tokio::test]
async fn clients_are_authenticated_and_authorized() {
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let plane = ControlPlane::start(options).await.unwrap();

    // Node authorizer and NodeRestriction are enabled: a kubelet may write its own node, but no guarded label.
    let kubelet = plane.client_for("system:node:n1", &["system:nodes"]).await.unwrap();
    let nodes: Api<Node> = Api::all(kubelet);
    let node = |name: &str, label: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {label: "pool-a"}}}))
    };
    nodes.create(&Default::default(), &node("n1", "node-pool").unwrap()).await.unwrap();
    let foreign = nodes.create(&Default::default(), &node("n2", "node-pool").unwrap()).await.unwrap_err();
    assert!(foreign.to_string().contains("not allowed to modify node"), "{foreign}");
    let label = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/pool": "pool-a"}}});
    let guarded = nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&label)).await.unwrap_err();
    assert!(guarded.to_string().contains("node-restriction.kubernetes.io/pool"), "{guarded}");

    // Both groups of a certificate are effective; without them nothing is allowed.
    plane
        .apply(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: second-group-views}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: second}]
"#,
        )
        .await
        .unwrap();
    let member = Api::<Pod>::default_namespaced(plane.client_for("eve", &["first", "second"]).await.unwrap());
    until("the binding at work", SOON, async || member.list(&Default::default()).await.map(Seen::Yes))
        .await
        .unwrap();
    let unprivileged = Api::<Pod>::default_namespaced(plane.client_for("eve", &["first"]).await.unwrap());
    let refused = unprivileged.list(&Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("\"eve\" cannot list"), "{refused}");
    assert!(plane.kubeconfig_for("eve", &["a", "b", "c"]).unwrap_err().to_string().contains("3 groups"));

    // A ServiceAccount authenticates by its token.
    let account = plane.client_for_service_account("default", "default").await.unwrap();
    let refused = Api::<Namespace>::all(account).list(&Default::default()).await.unwrap_err();
    assert!(refused.to_string().contains("system:serviceaccount:default:default"), "{refused}");
}

#[tokio::test]
async fn node_without_kubelet_becomes_not_ready() {
    // The node controller's default is 50 s, which would only slow the test down.
    let options = Options::default()
        .flag(Component::ControllerManager, "--node-monitor-grace-period=12s")
        .flag(Component::ControllerManager, "--node-monitor-period=1s");
    let plane = ControlPlane::start(options).await.unwrap();
    plane.apply(NODE).await.unwrap();
    let nodes: Api<Node> = Api::all(plane.admin().await.unwrap());
    ready(&nodes, "n1", "True").await;
    let unplug = json!({"metadata": {"labels": {PLAYED.0: null}}});
    nodes.patch("n1", &PatchParams::default(), &Patch::Merge(&unplug)).await.unwrap();
    ready(&nodes, "n1", "Unknown").await;
}

#[tokio::test]
async fn invalid_flag_error_shows_the_log() {
    let options = Options::default().flag(Component::ApiServer, "--no-such-flag=1");
    let message = ControlPlane::start(options).await.unwrap_err().to_string();
    assert!(message.contains("kube-apiserver") && message.contains("no-such-flag"), "{message}");
}

/// The folder of the control plane and the process ids, printed by the parent that will be killed.
fn parent(kill: &str) -> (PathBuf, Vec<u32>) {
    let mut parent = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parent_to_be_killed", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(parent.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.unwrap().strip_prefix("up ").map(str::to_owned)).unwrap();
    let (folder, pids) = line.split_once(' ').unwrap();
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(pids.iter().all(|pid| alive(*pid)), "{pids:?}");
    assert!(Command::new("kill").args([kill, &parent.id().to_string()]).status().unwrap().success());
    parent.wait().unwrap();
    (folder.into(), pids)
}

fn alive(pid: u32) -> bool {
    // A zombie waits for its parent and no longer runs.
    let state = Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

#[test]
#[ignore = "the other half of the tests below, which start it as a process of its own"]
fn parent_to_be_killed() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let pids: Vec<_> =
            Component::ALL.iter().map(|c| plane.process(*c).unwrap().pid().to_string()).collect();
        println!("\nup {} {}", plane.folder().display(), pids.join(" "));
        std::future::pending::<()>().await;
    });
}

async fn nothing_is_left(folder: &Path, pids: &[u32]) {
    until("the end of every process and the folder", SOON, async || {
        let left: Vec<_> = pids.iter().filter(|pid| alive(**pid)).collect();
        let gone = left.is_empty() && !folder.exists();
        Ok::<_, String>(Seen::from_option(
            gone.then_some(()),
            format!("{left:?}, folder: {}", folder.exists()),
        ))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn killed_parent_leaves_no_process_and_no_folder() {
    let (folder, pids) = parent("-KILL");
    nothing_is_left(&folder, &pids).await;
}

#[tokio::test]
async fn interrupted_parent_leaves_no_process_and_no_folder() {
    let (folder, pids) = parent("-INT");
    nothing_is_left(&folder, &pids).await;
}
