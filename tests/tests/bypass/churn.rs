//! Bypass attempts by changes: priorities, evictions, and namespaces and tenants that are moved, created and deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use croft_api::Tenant;
use croft_testkit::{
    Options,
    wait::{Seen, until},
};
use croft_tests::arena::{SOON, create, kept_arena, marked_arena, pod, pods};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, EvictParams, Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

/// Nearly a whole node of the arena.
fn big(namespace: &str, name: &str, more: Value) -> Value {
    let mut pod = pod(namespace, name, more);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "60"}});
    pod
}

/// Name, uid and node of every pod that isn't being deleted.
async fn there(admin: &Client) -> anyhow::Result<BTreeMap<String, (String, String)>> {
    let list = pods(admin).await?.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(list
        .map(|pod| {
            let node = pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
            (pod.metadata.name.unwrap_or_default(), (pod.metadata.uid.unwrap_or_default(), node))
        })
        .collect())
}

/// Waits until the pods named `prefix` are on exactly `nodes`, and the scheduler has tried the others.
async fn until_on(admin: &Client, prefix: &str, nodes: &[&str]) {
    until(&format!("{prefix} on {nodes:?}"), SOON, async || {
        let there = there(admin).await?;
        let mut on: Vec<&str> = there
            .iter()
            .filter(|(name, (_, node))| name.starts_with(prefix) && !node.is_empty())
            .map(|(_, (_, node))| node.as_str())
            .collect();
        on.sort_unstable();
        anyhow::Ok(Seen::from_option((on == nodes).then_some(()), format!("{there:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn high_priority_pod_preempts_no_pod_of_another_tenant() {
    let (plane, _croft) = marked_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    for (namespace, prefix) in [("tenant-a", "low-a"), ("tenant-b", "low-b"), ("no-tenant", "low-free")] {
        for number in 0..2 {
            let answer = create(&jane, &big(namespace, &format!("{prefix}-{number}"), json!({})), false)
                .await
                .unwrap();
            assert!(answer.is_done(), "{}", answer.sentence());
        }
    }
    until_on(&admin, "low-a", &["a-1", "a-2"]).await;
    until_on(&admin, "low-b", &["b-1", "b-2"]).await;
    until_on(&admin, "low-free", &["free-1", "free-2"]).await;
    let before = there(&admin).await.unwrap();

    // They prefer other tenants' nodes, tolerate everything there, and have the highest priority.
    let towards = |values: Value| {
        json!({"priorityClassName": "urgent", "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity":
            {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchExpressions":
                [{"key": "node-pool", "operator": "In", "values": values}]}}]}}})
    };
    for (namespace, prefix, wish, nodes, falls) in [
        ("tenant-a", "urgent-a", json!(["pool-b"]), ["a-1", "a-2"], "low-a"),
        ("no-tenant", "urgent-free", json!(["pool-a", "pool-b"]), ["free-1", "free-2"], "low-free"),
    ] {
        for number in 0..4 {
            let pod = big(namespace, &format!("{prefix}-{number}"), towards(wish.clone()));
            let answer = create(&jane, &pod, false).await.unwrap();
            assert!(answer.is_done(), "{}", answer.sentence());
        }
        until_on(&admin, prefix, &nodes).await;
        until_on(&admin, falls, &[]).await;
    }
    // Pending pods have been tried, and no pod elsewhere was preempted for them.
    until("the others tried", SOON, async || {
        let list = pods(&admin).await?;
        let untried = list.iter().filter(|pod| {
            let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
            !conditions.into_iter().any(|c| c.type_ == "PodScheduled")
        });
        let untried = untried.count();
        anyhow::Ok(Seen::from_option((untried == 0).then_some(()), untried))
    })
    .await
    .unwrap();
    let after = there(&admin).await.unwrap();
    for name in ["low-b-0", "low-b-1"] {
        assert_eq!(before.get(name), after.get(name), "{name} stays where it was");
    }
    for pod in pods(&admin).await.unwrap() {
        let nominated = pod.status.and_then(|status| status.nominated_node_name).unwrap_or_default();
        assert!(!nominated.starts_with("b-"), "{:?} is nominated for {nominated}", pod.metadata.name);
    }
}

/// Observed node selectors and nodes of a namespace's pods.
#[derive(Clone, Default)]
struct Sightings(Arc<Mutex<BTreeSet<(String, String)>>>);

impl Sightings {
    fn of(client: &Client, namespace: &str) -> (Self, tokio::task::JoinHandle<()>) {
        let sightings = Self::default();
        let kept = sightings.clone();
        let stream = watcher(Api::<Pod>::namespaced(client.clone(), namespace), watcher::Config::default())
            .default_backoff()
            .applied_objects();
        let task = tokio::spawn(stream.for_each(move |pod| {
            if let Some(spec) = pod.ok().and_then(|pod| pod.spec) {
                let selected = spec.node_selector.unwrap_or_default().remove("node-pool").unwrap_or_default();
                kept.0.lock().unwrap().insert((selected, spec.node_name.unwrap_or_default()));
            }
            std::future::ready(())
        }));
        (sightings, task)
    }

    fn all(&self) -> BTreeSet<(String, String)> {
        self.0.lock().unwrap().clone()
    }
}

fn deployment(namespace: &str, name: &str, replicas: u32, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "c"}]}}},
    });
    object["spec"]["template"]["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object
}

/// Waits until `count` pods of `namespace` run, all on nodes named `prefix`.
async fn until_settled(admin: &Client, namespace: &str, prefix: &str, count: usize) {
    until(&format!("{count} pods of {namespace} on {prefix}"), 2 * SOON, async || {
        let list = pods(admin).await?;
        let ours = list.iter().filter(|p| {
            p.metadata.namespace.as_deref() == Some(namespace) && p.metadata.deletion_timestamp.is_none()
        });
        let on: Vec<String> =
            ours.map(|p| p.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_default()).collect();
        let right = on.len() == count && on.iter().all(|node| node.starts_with(prefix));
        anyhow::Ok(Seen::from_option(right.then_some(()), format!("{on:?}")))
    })
    .await
    .unwrap();
}

const RECREATE: &str = "{apiVersion: croft.dev/v1alpha1, kind: CroftConfig, metadata: {name: default}, spec: {misplaced: Recreate}}";

#[tokio::test]
async fn namespace_moves_to_another_tenant_while_its_pods_are_evicted() {
    let (plane, _croft) = kept_arena(Options::default().requests_per_second(500)).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    assert!(create(&jane, &deployment("tenant-a", "web", 4, tolerant), false).await.unwrap().is_done());
    until_settled(&admin, "tenant-a", "a-", 4).await;
    let (sightings, watching) = Sightings::of(&admin, "tenant-a");

    // Its admin evicts and deletes continuously.
    let done = Arc::new(AtomicBool::new(false));
    let evicting = tokio::spawn({
        let (done, api) = (done.clone(), Api::<Pod>::namespaced(jane.clone(), "tenant-a"));
        async move {
            let mut evicted = 0_usize;
            while !done.load(Ordering::Relaxed) {
                for pod in api.list(&Default::default()).await.unwrap() {
                    let name = pod.metadata.name.unwrap_or_default();
                    let gone = if evicted.is_multiple_of(2) {
                        api.evict(&name, &EvictParams::default()).await.is_ok()
                    } else {
                        api.delete(&name, &DeleteParams::default().grace_period(0)).await.is_ok()
                    };
                    evicted += usize::from(gone);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            evicted
        }
    });
    let tenants: Api<Tenant> = Api::all(admin.clone());
    let claim = async |tenant: &str, namespaces: Value| {
        let patch = json!({"spec": {"namespaces": namespaces}});
        tenants.patch(tenant, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    // The younger tenant claims it too, and gets it when the older one releases it.
    claim("b", json!(["tenant-b", "tenant-a"])).await;
    claim("a", json!([])).await;
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    until("the namespace to be marked as b's", SOON, async || {
        let marks = namespaces.get("tenant-a").await?.metadata.annotations.unwrap_or_default();
        let right = marks.get("policy.croft.dev/pools").is_some_and(|pools| pools.contains("pool-b"));
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), format!("{marks:?}")))
    })
    .await
    .unwrap();
    plane.apply(RECREATE).await.unwrap();
    done.store(true, Ordering::Relaxed);
    assert!(evicting.await.unwrap() > 0);
    until_settled(&admin, "tenant-a", "b-", 4).await;
    watching.abort();
    for (selected, node) in sightings.all() {
        let right = match selected.as_str() {
            "pool-a" => node.is_empty() || node.starts_with("a-"),
            "pool-b" => node.is_empty() || node.starts_with("b-"),
            _ => false,
        };
        assert!(right, "a pod that selects {selected:?} was on {node:?}");
    }
}

/// Pool, node, tenant, namespace and workload in one file, as a platform team applies them.
const BREATH: &str = r"
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-c}
spec: {key: node-pool, provisioner: None}
---
apiVersion: v1
kind: Node
metadata: {name: c-1, labels: {lab.croft.dev/kubelet: kwok, kubernetes.io/hostname: c-1, kubernetes.io/os: linux, node-pool: pool-c, node-restriction.kubernetes.io/pool: pool-c}}
spec: {taints: [{key: node-pool, value: pool-c, effect: NoSchedule}]}
status: {capacity: {cpu: '64', memory: 256Gi, pods: '500'}, allocatable: {cpu: '64', memory: 256Gi, pods: '500'}}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: c}
spec: {namespaces: [fresh], pools: [pool-c]}
---
apiVersion: v1
kind: Namespace
metadata: {name: fresh}
";

#[tokio::test]
async fn tenant_namespace_and_pods_applied_together_are_admitted_correctly() {
    let (plane, _croft) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    plane.apply(RECREATE).await.unwrap();
    let (sightings, watching) = Sightings::of(&admin, "fresh");
    let web = deployment("fresh", "web", 3, json!({"tolerations": [{"operator": "Exists"}]}));
    plane.apply(&format!("{BREATH}\n---\n{web}")).await.unwrap();
    until_settled(&admin, "fresh", "c-", 3).await;
    // From then on every pod is admitted correctly.
    let answer = create(&admin, &pod("fresh", "x", json!({})), true).await.unwrap();
    assert!(answer.sentence().contains(r#""nodeSelector":{"node-pool":"pool-c"}"#), "{}", answer.sentence());
    watching.abort();
    for (_, node) in sightings.all() {
        // Before its tenant existed a pod may have been a non-tenant pod, but never another tenant's.
        assert!(!node.starts_with("a-") && !node.starts_with("b-") && !node.starts_with("two-"), "{node}");
    }
}

/// Number of times that the namespace is created again.
const LIVES: usize = 12;

#[tokio::test]
async fn recreated_namespace_is_evaluated_by_its_present_tenant() {
    let (plane, _croft) = kept_arena(Options::default()).await.unwrap();
    let root = plane.client_for("root", &["system:masters"]).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(root.clone());
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "phoenix"}});
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    for life in 0..LIVES {
        let of_a = life % 2 == 0;
        let labels = if of_a { json!({"team": "a"}) } else { json!({}) };
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "phoenix", "labels": labels}});
        let made = create(&root, &namespace, false).await.unwrap();
        assert!(made.is_done(), "{}", made.sentence());
        // The controller manager creates it too; no pod can precede it.
        let _ = create(&root, &account, false).await.unwrap();
        // A temporary denial is safe: the namespace or the policies' parameters aren't known yet. The first pod that is
        // admitted must be correct.
        let said = until("a pod let in", SOON, async || {
            let answer = create(&root, &pod("phoenix", "x", tolerant.clone()), true).await?;
            let said = answer.sentence();
            anyhow::Ok(Seen::from_option(answer.is_done().then_some(said.clone()), said))
        })
        .await
        .unwrap();
        let pinned = said.contains(r#""nodeSelector":{"node-pool":"pool-a"}"#);
        let kept_out = said.contains(r#""operator":"DoesNotExist""#);
        assert_eq!((pinned, kept_out), (of_a, !of_a), "life {life}: {said}");
        namespaces.delete("phoenix", &DeleteParams::default()).await.unwrap();
        until("the namespace gone", SOON, async || {
            let left = namespaces.get_opt("phoenix").await?;
            Ok::<_, kube::Error>(Seen::from_option(left.is_none().then_some(()), "there"))
        })
        .await
        .unwrap();
    }
}
