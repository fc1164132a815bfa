//! A quota of a whole tenant: 200 creators in four namespaces, and at no moment shares of more than the quota.
//!
//! The pods themselves are Kubernetes' to count, and it counts anew whenever a share changes or a pod ends: a pod of that moment may
//! be missed until the next time (kubernetes/kubernetes#123434). So the shares are held to the quota exactly, and the pods roughly.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{self, SOON},
    manifests::joined,
    stack::{EVENTUALLY, condition_of},
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Pod, ResourceQuota},
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

const TENANT: &str = "shared";
const NAMESPACES: [&str; 4] = ["shared-0", "shared-1", "shared-2", "shared-3"];
/// Pods of the whole tenant. Their CPUs suffice for three more.
const PODS: usize = 60;
const CREATORS: usize = 200;
/// Between two tries of the ReplicaSet controller. Its own grow to 1,000 s, since every change of a pod while others are
/// refused doubles them.
const ASKED_EVERY: Duration = Duration::from_secs(3);
/// Between two tries of a creator.
const RETRY: Duration = Duration::from_millis(150);

fn pod(namespace: &str, name: &str) -> Pod {
    let mut pod = arena::pod(namespace, name, json!({}));
    pod["metadata"]["labels"] = json!({"creator": "true"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    serde_json::from_value(pod).unwrap()
}

async fn pods(admin: &Client) -> usize {
    // One list is one moment.
    let list = ListParams::default().labels("creator=true");
    Api::<Pod>::all(admin.clone()).list(&list).await.unwrap().items.len()
}

/// Creates one pod, however often the API server refuses it for the quota.
async fn create(
    admin: Client,
    namespace: &'static str,
    name: String,
    stop: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
) {
    let api: Api<Pod> = Api::namespaced(admin, namespace);
    while !stop.load(Ordering::Relaxed) {
        match api.create(&PostParams::default(), &pod(namespace, &name)).await {
            Ok(_) => {
                made.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                assert!(status.message.contains("exceeded quota: croft-tenant-share"), "{}", status.message);
            }
            // The quota is written by many at once: the API server gives up after some tries.
            Err(kube::Error::Api(status)) if [409, 429, 500, 504].contains(&status.code) => {}
            Err(error) => panic!("{namespace}/{name}: {error}"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Creators that end together.
#[derive(Default)]
struct Creators {
    tasks: tokio::task::JoinSet<()>,
    stop: Arc<AtomicBool>,
}

impl Creators {
    fn begin(&mut self, admin: Client, namespace: &'static str, name: String, made: &Arc<AtomicUsize>) {
        self.tasks.spawn(create(admin, namespace, name, Arc::clone(&self.stop), Arc::clone(made)));
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
    }
}

/// The pods that a share allows: what is declared or what admission goes by, whichever is more.
fn allowed(share: &ResourceQuota) -> usize {
    // A share that doesn't name pods would allow any number. One whose status isn't written yet allows none.
    let pods = |amounts: &BTreeMap<String, Quantity>| -> usize { amounts["pods"].0.parse().unwrap() };
    let declared = share.spec.as_ref().unwrap().hard.as_ref().unwrap();
    let known = share.status.as_ref().and_then(|status| status.hard.as_ref());
    pods(declared).max(known.map_or(0, pods))
}

/// Adds up shares and pods until the end. Returns how often.
async fn sample(admin: Client, ended: Arc<AtomicBool>) -> usize {
    let mut samples = 0;
    while !ended.load(Ordering::Relaxed) {
        within(&admin).await;
        samples += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    samples
}

/// The shares add up to the quota at most. One list is one moment.
async fn within(admin: &Client) {
    let list = ListParams::default().labels("croft.dev/tenant=shared");
    let shares = Api::<ResourceQuota>::all(admin.clone()).list(&list).await.unwrap().items;
    assert_eq!(shares.len(), NAMESPACES.len());
    let sum: usize = shares.iter().map(allowed).sum();
    assert!(sum <= PODS, "shares of {sum} pods of {PODS}: {shares:?}");
    let found = pods(admin).await;
    assert!(found < PODS + PODS / 2, "{found} pods of {PODS} are more than a miscount: {shares:?}");
}

async fn full(admin: &Client, most: usize, what: &str) {
    until(what, EVENTUALLY, async || {
        let found = pods(admin).await;
        anyhow::Ok(Seen::from_option((found >= most).then_some(()), found))
    })
    .await
    .unwrap();
}

pub(crate) async fn creators(plane: &ControlPlane, admin: &Client) {
    let namespaces =
        NAMESPACES.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let tenant = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": TENANT},
        "spec": {"namespaces": NAMESPACES, "pools": ["pool-a"],
            "quota": {"total": {"pods": PODS, "requests.cpu": "6300m"}}},
    });
    plane.apply(&joined(&[&namespaces[..], &[tenant]].concat())).await.unwrap();
    condition_of::<croft_api::Tenant>(admin, TENANT, "ObjectsKept", "True").await.unwrap();
    for namespace in NAMESPACES {
        let probe = serde_json::to_value(pod(namespace, "probe")).unwrap();
        let mut probe = probe;
        (probe["apiVersion"], probe["kind"]) = (json!("v1"), json!("Pod"));
        until(&format!("{namespace} let in"), SOON, async || {
            let said = arena::create(admin, &probe, true).await?.sentence();
            let done = said.starts_with("allowed") || said.contains("exceeded quota");
            anyhow::Ok(Seen::from_option(done.then_some(()), said))
        })
        .await
        .unwrap();
    }

    let made = Arc::new(AtomicUsize::new(0));
    let (mut first, mut others) = (Creators::default(), Creators::default());
    for number in 0..CREATORS {
        let namespace = NAMESPACES[number % NAMESPACES.len()];
        let creators = if namespace == NAMESPACES[0] { &mut first } else { &mut others };
        creators.begin(admin.clone(), namespace, format!("p-{number}"), &made);
    }
    let ended = Arc::new(AtomicBool::new(false));
    let sampler = tokio::spawn(sample(admin.clone(), Arc::clone(&ended)));
    let begun = tokio::time::Instant::now();
    full(admin, PODS, "a quota that is used to the last pod").await;
    println!("{PODS} pods by {CREATORS} creators in {:?}", begun.elapsed());
    within(admin).await;

    // Pods that end in one namespace make room in the others. Its own creators stop first, so that all of it goes there.
    first.end().await;
    let api: Api<Pod> = Api::namespaced(admin.clone(), NAMESPACES[0]);
    let list = ListParams::default().labels("creator=true");
    let ending: Vec<String> = api.list(&list).await.unwrap().items.iter().map(|p| p.name_any()).collect();
    assert!(!ending.is_empty(), "every namespace has a part");
    let now = DeleteParams::default().grace_period(0);
    let before = made.load(Ordering::Relaxed);
    for name in &ending {
        api.delete(name, &now).await.unwrap();
    }
    until("as many pods again", EVENTUALLY, async || {
        let (made, found) = (made.load(Ordering::Relaxed), pods(admin).await);
        let done = made > before && found >= PODS;
        anyhow::Ok(Seen::from_option(done.then_some(()), format!("{made} made, {found} there")))
    })
    .await
    .unwrap();
    others.end().await;
    ended.store(true, Ordering::Relaxed);
    let samples = sampler.await.unwrap();
    assert!(samples > 20, "{samples} samples");
    println!("never above it in {samples} samples");
    within(admin).await;
    deployment(plane, admin).await;
}

/// A Deployment whose pods were refused gets what becomes free.
async fn deployment(plane: &ControlPlane, admin: &Client) {
    let namespace = NAMESPACES[3];
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web", "creator": "true"}},
            "spec": {"containers": [{"name": "c", "image": "c", "resources": {"requests": {"cpu": "100m"}}}]},
        }},
    });
    plane.apply(&deployment.to_string()).await.unwrap();
    let api: Api<Deployment> = Api::namespaced(admin.clone(), namespace);
    until("a refused ReplicaSet", SOON, async || {
        let status = api.get("web").await?.status.unwrap_or_default();
        let failed =
            status.conditions.iter().flatten().any(|c| c.type_ == "ReplicaFailure" && c.status == "True");
        Ok::<_, kube::Error>(Seen::from_option(failed.then_some(()), format!("{status:?}")))
    })
    .await
    .unwrap();
    let now = DeleteParams::default().grace_period(0);
    let list = ListParams::default().labels("creator=true");
    // However the creators' pods are spread: this namespace has a quarter of the creators, so at least ten pods end.
    for other in NAMESPACES.iter().filter(|other| **other != namespace) {
        Api::<Pod>::namespaced(admin.clone(), other).delete_collection(&now, &list).await.unwrap();
    }
    let web = ListParams::default().labels("app=web");
    let replica_sets: Api<ReplicaSet> = Api::namespaced(admin.clone(), namespace);
    until("ten pods of the Deployment", EVENTUALLY, async || {
        let found = Api::<Pod>::namespaced(admin.clone(), namespace).list(&web).await?.items.len();
        if found < 10 {
            for set in replica_sets.list(&web).await? {
                let again =
                    json!({"metadata": {"annotations": {"example.com/tried-at": set.resource_version()}}});
                replica_sets.patch(&set.name_any(), &PatchParams::default(), &Patch::Merge(again)).await?;
            }
            tokio::time::sleep(ASKED_EVERY).await;
        }
        Ok::<_, kube::Error>(Seen::from_option((found == 10).then_some(()), found))
    })
    .await
    .unwrap();
    within(admin).await;
}
