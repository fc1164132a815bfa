//! A cluster starts and recovers without Croft: its webhooks are registered and fail closed, and no process serves
//! them.

use std::sync::{LazyLock, OnceLock};

use croft_testkit::{
    ControlPlane, Croft, Options, Part,
    wait::{Seen, until},
};
use croft_tests::arena::{Answer, NAMESPACES, SOON, create, marked_arena, pod, pods};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    sync::{Mutex, MutexGuard},
};

/// One reaper for all, so that processes of a test end with the test program.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// One cluster for all tests, which run one after another: none of them runs Croft.
async fn down() -> (MutexGuard<'static, Option<(ControlPlane, Croft)>>, Client) {
    static PLANE: OnceLock<Mutex<Option<(ControlPlane, Croft)>>> = OnceLock::new();
    let mut plane = PLANE.get_or_init(Mutex::default).lock().await;
    if plane.is_none() {
        let (control, mut croft) = marked_arena(Options::default()).await.unwrap();
        croft.kill(Part::Webhook).unwrap();
        *plane = Some((control, croft));
    }
    let admin = plane.as_ref().unwrap().0.admin().await.unwrap();
    (plane, admin)
}

async fn running(admin: &Client, namespace: &str, prefix: &str, count: usize) {
    until(&format!("{count} running pods {prefix} in {namespace}"), SOON, async || {
        let list = pods(admin).await?;
        let ours = list.iter().filter(|p| p.metadata.namespace.as_deref() == Some(namespace));
        let ours = ours.filter(|p| p.metadata.name.as_deref().is_some_and(|n| n.starts_with(prefix)));
        let phases: Vec<String> = ours.filter_map(|p| p.status.as_ref()?.phase.clone()).collect();
        let done = phases.iter().filter(|p| *p == "Running").count() == count;
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{phases:?}")))
    })
    .await
    .unwrap();
}

fn workload(kind: &str, namespace: &str, name: &str, spec: Value) -> Value {
    let labels = json!({"app": name});
    // Croft's namespace admits nothing else.
    let restricted = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
        "seccompProfile": {"type": "RuntimeDefault"}});
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "c", "image": "c", "securityContext": restricted}]}}},
    });
    if let Value::Object(from) = spec {
        object["spec"]["template"]["spec"].as_object_mut().unwrap().extend(from);
    }
    object
}

#[test]
fn kubelets_register_and_post_status() {
    RUNTIME.block_on(async {
    let (plane, _) = down().await;
    let plane = &plane.as_ref().unwrap().0;
    let kubelet = plane.client_for("system:node:late-1", &["system:nodes"]).await.unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late-1", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]}});
    assert!(create(&kubelet, &node, false).await.unwrap().is_done());
    let nodes: Api<Node> = Api::all(kubelet);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}]}});
    nodes.patch_status("late-1", &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    });
}

#[test]
fn ordinary_non_tenant_pods_are_created_and_bound() {
    RUNTIME.block_on(async {
        let (_plane, admin) = down().await;
        assert!(
            create(&admin, &workload("Deployment", "no-tenant", "web", json!({})), false)
                .await
                .unwrap()
                .is_done()
        );
        running(&admin, "no-tenant", "web-", 1).await;
    });
}

#[test]
fn system_pods_of_exempt_namespaces_start_with_all_tolerations() {
    RUNTIME.block_on(async {
        let (_plane, admin) = down().await;
        let everywhere =
            json!({"tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"});
        // The CNI's agents and kube-proxy are such DaemonSets.
        assert!(
            create(&admin, &workload("DaemonSet", "kube-system", "cni", everywhere), false)
                .await
                .unwrap()
                .is_done()
        );
        running(&admin, "kube-system", "cni-", 7).await;
    });
}

#[test]
fn cert_manager_and_croft_start_without_croft() {
    RUNTIME.block_on(async {
        let (_plane, admin) = down().await;
        // cert-manager's namespace belongs to no tenant; Croft's is exempt.
        for (namespace, name) in [("agents", "cert-manager"), ("croft-system", "croft-webhook")] {
            assert!(
                create(&admin, &workload("Deployment", namespace, name, json!({})), false)
                    .await
                    .unwrap()
                    .is_done()
            );
            running(&admin, namespace, name, 1).await;
        }
    });
}

#[test]
fn kubelets_create_mirror_pods() {
    RUNTIME.block_on(async {
        let (plane, _) = down().await;
        let plane = &plane.as_ref().unwrap().0;
        let kubelet = plane.client_for("system:node:b-1", &["system:nodes"]).await.unwrap();
        let mut mirror = pod(
            "kube-system",
            "etcd-b-1",
            json!({"nodeName": "b-1", "tolerations": [{"operator": "Exists"}]}),
        );
        mirror["metadata"]["annotations"] =
            json!({"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"});
        let nodes: Api<Node> = Api::all(plane.admin().await.unwrap());
        let uid = nodes.get("b-1").await.unwrap().metadata.uid.unwrap();
        mirror["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "b-1", "uid": uid, "controller": true}]);
        mirror["spec"]["serviceAccountName"] = Value::Null;
        mirror["spec"]["automountServiceAccountToken"] = json!(false);
        let answer = create(&kubelet, &mirror, false).await.unwrap();
        assert!(answer.is_done(), "{}", answer.sentence());
    });
}

#[test]
fn leases_events_and_status_are_written_and_bound_pods_run_on() {
    RUNTIME.block_on(async {
    let (_plane, admin) = down().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "scheduler", "namespace": "kube-system"}, "spec": {"holderIdentity": "x"}});
    assert!(create(&admin, &lease, false).await.unwrap().is_done());
    assert!(create(&admin, &pod("no-tenant", "plain", json!({})), false).await.unwrap().is_done());
    running(&admin, "no-tenant", "plain", 1).await;
    let api: Api<Pod> = Api::namespaced(admin.clone(), "no-tenant");
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    api.patch("plain", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    api.delete("plain", &Default::default()).await.unwrap();
    });
}

#[test]
fn tenants_pods_and_pods_that_target_a_pool_are_not_created() {
    RUNTIME.block_on(async {
        let (_plane, admin) = down().await;
        for (namespace, spec) in [
            ("tenant-a", json!({})),
            ("no-tenant", json!({"tolerations": [{"operator": "Exists"}]})),
            ("no-tenant", json!({"nodeSelector": {"node-pool": "pool-b"}})),
            ("no-tenant", json!({"nodeName": "b-1"})),
        ] {
            let answer = create(&admin, &pod(namespace, "x", spec), true).await.unwrap();
            assert!(
                matches!(&answer, Answer::Refused(status) if status.code == 500),
                "{namespace}: {}",
                answer.sentence()
            );
        }
        assert_eq!(NAMESPACES.len(), 4);
    });
}
