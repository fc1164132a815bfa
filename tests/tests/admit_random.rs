//! Ten thousand operations of tenants, drawn from a fixed seed, on the real API server with the real scheduler;
//! afterwards no pod is misplaced.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use croft_testkit::Options;
use croft_tests::arena::{NAMESPACES, NODES, create, marked_arena, may_be_on, misplaced_pods, pod};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::{Value, json};

const OPERATIONS: usize = 10_000;
const SEED: u64 = 0x00c0_ffee;
/// Requests in flight.
const AT_ONCE: usize = 16;
/// Maximum number of pods of a namespace, by name: a name may be reused.
const NAMES: u64 = 60;

/// xorshift64*: the same operations on every computer.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let at = usize::try_from(self.below(list.len() as u64)).unwrap();
        &list[at]
    }
}

const KEYS: [&str; 4] = ["node-pool", "other-key", "node-restriction.kubernetes.io/pool", "zone"];
const VALUES: [&str; 6] = ["pool-a", "pool-b", "pool-a2", "two", "later", "z"];

fn toleration(draw: &mut Draw) -> Value {
    let effect = *draw.of(&["", "NoSchedule", "NoExecute"]);
    let mut toleration = match draw.below(3) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": draw.of(&KEYS), "operator": "Exists"}),
        _ => json!({"key": draw.of(&KEYS), "operator": "Equal", "value": draw.of(&VALUES)}),
    };
    toleration["effect"] = json!(effect);
    if effect == "NoExecute" && draw.chance(30) {
        toleration["tolerationSeconds"] = json!(draw.below(600));
    }
    toleration
}

fn expression(draw: &mut Draw) -> Value {
    match draw.below(4) {
        0 => json!({"key": draw.of(&KEYS), "operator": "Exists"}),
        1 => json!({"key": draw.of(&KEYS), "operator": "DoesNotExist"}),
        2 => json!({"key": draw.of(&KEYS), "operator": "NotIn", "values": [draw.of(&VALUES)]}),
        _ => json!({"key": draw.of(&KEYS), "operator": "In", "values": [draw.of(&VALUES), draw.of(&VALUES)]}),
    }
}

fn spec(draw: &mut Draw) -> Value {
    let mut spec = json!({});
    if draw.chance(30) {
        spec["nodeSelector"] = json!({*draw.of(&KEYS): draw.of(&VALUES)});
    }
    if draw.chance(60) {
        let count = draw.below(4);
        spec["tolerations"] = (0..count).map(|_| toleration(draw)).collect();
    }
    if draw.chance(30) {
        let count = 1 + draw.below(2);
        let terms: Vec<Value> = (0..count)
            .map(|_| {
                let mut term = json!({});
                if draw.chance(80) {
                    term["matchExpressions"] = json!([expression(draw)]);
                }
                if draw.chance(20) {
                    term["matchFields"] =
                        json!([{"key": "metadata.name", "operator": "In", "values": [draw.of(&NODES).0]}]);
                }
                term
            })
            .collect();
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    }
    if draw.chance(8) {
        spec["nodeName"] = json!(draw.of(&NODES).0);
    }
    if draw.chance(10) {
        spec["schedulingGates"] = json!([{"name": "x.dev/y"}]);
    }
    if draw.chance(5) {
        spec["schedulerName"] = json!("mine");
    }
    spec
}

/// One operation, and whether it was allowed.
async fn operate(client: &Client, seed: u64) -> anyhow::Result<bool> {
    let draw = &mut Draw(seed | 1);
    draw.next();
    let namespace = *draw.of(&NAMESPACES);
    let name = format!("p{}", draw.below(NAMES));
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let done = |result: Result<(), kube::Error>| match result {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(_)) => Ok(false),
        Err(error) => Err(anyhow::Error::from(error)),
    };
    match draw.below(10) {
        0..=4 => {
            let mut object = pod(namespace, &name, spec(draw));
            if draw.chance(15) {
                object["metadata"]["annotations"] =
                    json!({"croft.dev/pool": draw.of(&["pool-a", "pool-a2", "pool-b", ""])});
            }
            Ok(create(client, &object, false).await?.is_done())
        }
        5 => {
            let add = json!({"spec": {"tolerations": [toleration(draw)]}});
            done(api.patch(&name, &PatchParams::default(), &Patch::Strategic(add)).await.map(|_| ()))
        }
        6 => {
            let patch = match draw.below(3) {
                0 => json!({"spec": {"schedulingGates": null}}),
                1 => {
                    json!({"spec": {"schedulingGates": null, "nodeSelector": {*draw.of(&KEYS): draw.of(&VALUES)}}})
                }
                _ => json!({"spec": {"nodeSelector": {*draw.of(&KEYS): draw.of(&VALUES)}}}),
            };
            done(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ()))
        }
        7 => {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
                "target": {"apiVersion": "v1", "kind": "Node", "name": draw.of(&NODES).0}});
            done(
                api.create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding)
                    .await
                    .map(|_| ()),
            )
        }
        _ => done(api.delete(&name, &DeleteParams::default().grace_period(0)).await.map(|_| ())),
    }
}

#[tokio::test]
async fn ten_thousand_random_operations_misplace_no_pod() {
    let (plane, _croft) = marked_arena(Options::default().requests_per_second(1_000)).await.unwrap();
    let admin = plane.admin().await.unwrap();
    // Pods that are bound only for a moment count as well.
    let misplaced_once = Arc::new(std::sync::Mutex::new(BTreeMap::new()));
    let bound = Arc::new(AtomicUsize::new(0));
    let watching = {
        let (misplaced_once, bound) = (Arc::clone(&misplaced_once), Arc::clone(&bound));
        let stream = watcher(Api::<Pod>::all(admin.clone()), watcher::Config::default())
            .default_backoff()
            .applied_objects();
        tokio::spawn(stream.for_each(move |pod| {
            if let Ok(pod) = pod {
                let namespace = pod.metadata.namespace.unwrap_or_default();
                if let Some(node) = pod.spec.and_then(|s| s.node_name) {
                    bound.fetch_add(1, Ordering::Relaxed);
                    if !may_be_on(&namespace, &node) {
                        misplaced_once
                            .lock()
                            .unwrap()
                            .insert(pod.metadata.name.unwrap_or_default(), (namespace, node));
                    }
                }
            }
            std::future::ready(())
        }))
    };
    // Permissions of a namespace's admin, and to write bindings and namespaces.
    let jane = plane.client_for("maker", &["system:masters"]).await.unwrap();
    let mut seeds = Draw(SEED);
    let seeds: Vec<u64> = (0..OPERATIONS).map(|_| seeds.next()).collect();
    let results = stream::iter(seeds).map(|seed| operate(&jane, seed)).buffer_unordered(AT_ONCE);
    let results: Vec<anyhow::Result<bool>> = results.collect().await;
    let allowed = results.into_iter().map(Result::unwrap).filter(|allowed| *allowed).count();
    println!("{OPERATIONS} operations with seed {SEED:#x}: {allowed} allowed");
    assert!(allowed > OPERATIONS / 10 && allowed < OPERATIONS, "both happen: {allowed}");
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());
    watching.abort();
    assert!(bound.load(Ordering::Relaxed) > 500, "pods were bound: {}", bound.load(Ordering::Relaxed));
    assert_eq!(*misplaced_once.lock().unwrap(), BTreeMap::new());
}
