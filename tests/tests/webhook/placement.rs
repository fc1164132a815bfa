//! Pods of tenants are placed in their pools whatever happens to the webhook, and denied with helpful messages.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Part,
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(60);
/// Number of times that the webhook is killed.
const DEATHS: usize = 5;

const TENANTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-b}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-b}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: tenant-a}
spec: {namespaces: [tenant-a], pools: [pool-a]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: tenant-b}
spec: {namespaces: [tenant-b], pools: [pool-b]}
"#;

fn pod(name: &str, selector: &Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeSelector": selector, "containers": [{"name": "c", "image": "c"}]},
    }))
    .unwrap()
}

/// The pool in a pod's selector, if the pod tolerates its taint.
fn pinned(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let pool = spec.node_selector.as_ref()?.get("node-pool")?;
    let tolerates = spec.tolerations.iter().flatten().any(|t| {
        t.key.as_deref() == Some("node-pool")
            && t.value.as_ref() == Some(pool)
            && t.effect.as_deref() == Some("NoSchedule")
    });
    tolerates.then(|| pool.clone())
}

/// Only the webhook, with two tenants.
async fn webhook() -> (ControlPlane, Croft, Client) {
    let plane = ControlPlane::start(Options::default().without(Component::Kubelets)).await.unwrap();
    let mut croft = Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    croft.resume(&plane, Part::Webhook).await.unwrap();
    plane.apply(TENANTS).await.unwrap();
    let client = plane.admin().await.unwrap();
    for (namespace, pool) in [("tenant-a", "pool-a"), ("tenant-b", "pool-b")] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        until(&format!("pods of {namespace} pinned"), SOON, async || {
            let made = pods.create(&dry, &pod("probe", &json!({}))).await?;
            Ok::<_, kube::Error>(Seen::from_option(
                (pinned(&made).as_deref() == Some(pool)).then_some(()),
                format!("{:?}", pinned(&made)),
            ))
        })
        .await
        .unwrap();
    }
    (plane, croft, client)
}

#[tokio::test]
async fn denial_for_another_tenants_pool_says_what_to_write() {
    let (_plane, _croft, client) = webhook().await;
    let pods: Api<Pod> = Api::namespaced(client, "tenant-a");
    let own = pods
        .create(&PostParams::default(), &pod("own", &json!({"node-pool": "pool-a", "disk": "ssd"})))
        .await
        .unwrap();
    assert_eq!(pinned(&own).as_deref(), Some("pool-a"));
    assert_eq!(own.spec.unwrap().node_selector.unwrap().get("disk").map(String::as_str), Some("ssd"));

    let refused = pods.create(&PostParams::default(), &pod("foreign", &json!({"node-pool": "pool-b"}))).await;
    let message = refused.unwrap_err().to_string();
    for word in [
        "spec.nodeSelector",
        "node-pool=pool-b",
        "\"tenant-a\"",
        "the tenant's pools are pool-a",
        "remove node-pool",
    ] {
        assert!(message.contains(word), "{word} isn't in: {message}");
    }
    assert!(pods.get_opt("foreign").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_admitted_without_a_pool_while_the_webhook_restarts() {
    let (plane, mut croft, client) = webhook().await;
    let done = Arc::new(AtomicBool::new(false));
    let admitted = Arc::new(AtomicUsize::new(0));
    let refused = Arc::new(AtomicUsize::new(0));
    let streams: Vec<_> = [("tenant-a", 0), ("tenant-a", 1), ("tenant-b", 0), ("tenant-b", 1)]
        .into_iter()
        .map(|(namespace, stream)| {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let (done, admitted, refused) = (done.clone(), admitted.clone(), refused.clone());
            tokio::spawn(async move {
                for n in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    match pods
                        .create(&PostParams::default(), &pod(&format!("s{stream}-{n}"), &json!({})))
                        .await
                    {
                        Ok(_) => admitted.fetch_add(1, Ordering::Relaxed),
                        // Failing closed: the API server couldn't reach the webhook, and its message says so.
                        Err(kube::Error::Api(status)) => {
                            assert!(status.message.contains("failed calling webhook"), "{}", status.message);
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    };
                }
            })
        })
        .collect();
    for death in 0..DEATHS {
        // Some pods between two kills, and some denials while the webhook is down.
        let (before, missed) = (admitted.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
        until("pods admitted", SOON, async || {
            let more = admitted.load(Ordering::Relaxed) - before;
            Ok::<_, String>(Seen::from_option((more >= 10).then_some(()), more))
        })
        .await
        .unwrap();
        if death % 2 == 0 {
            croft.kill(Part::Webhook).unwrap();
        } else {
            croft.stop(Part::Webhook, Duration::from_secs(30)).await.unwrap();
        }
        until("pods refused", SOON, async || {
            let more = refused.load(Ordering::Relaxed) - missed;
            Ok::<_, String>(Seen::from_option((more >= 3).then_some(()), more))
        })
        .await
        .unwrap();
        croft.resume(&plane, Part::Webhook).await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for stream in streams {
        stream.await.unwrap();
    }
    let mut seen = 0;
    for (namespace, pool) in [("tenant-a", "pool-a"), ("tenant-b", "pool-b")] {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        for pod in pods.list(&Default::default()).await.unwrap() {
            assert_eq!(pinned(&pod).as_deref(), Some(pool), "{namespace}/{}", pod.name_any());
            seen += 1;
        }
    }
    assert_eq!(seen, admitted.load(Ordering::Relaxed));
    assert!(seen >= 10 * DEATHS, "{seen}");
}
