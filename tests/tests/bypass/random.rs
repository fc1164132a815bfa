//! Ten thousand operations of tenants, drawn from a fixed seed, on the real API server with the real scheduler;
//! afterwards no pod is misplaced.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use croft_simkit::Random;
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

const KEYS: [&str; 4] = ["node-pool", "other-key", "node-restriction.kubernetes.io/pool", "zone"];
const VALUES: [&str; 6] = ["pool-a", "pool-b", "pool-a2", "two", "later", "z"];

fn toleration(random: &mut Random) -> Value {
    let effect = random.one_of(&["", "NoSchedule", "NoExecute"]);
    let mut toleration = match random.below(3) {
        0 => json!({"operator": "Exists"}),
        1 => json!({"key": random.one_of(&KEYS), "operator": "Exists"}),
        _ => json!({"key": random.one_of(&KEYS), "operator": "Equal", "value": random.one_of(&VALUES)}),
    };
    toleration["effect"] = json!(effect);
    if effect == "NoExecute" && random.percent(30) {
        toleration["tolerationSeconds"] = json!(random.below(600));
    }
    toleration
}

fn expression(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!({"key": random.one_of(&KEYS), "operator": "Exists"}),
        1 => json!({"key": random.one_of(&KEYS), "operator": "DoesNotExist"}),
        2 => json!({"key": random.one_of(&KEYS), "operator": "NotIn", "values": [random.one_of(&VALUES)]}),
        _ => {
            json!({"key": random.one_of(&KEYS), "operator": "In", "values": [random.one_of(&VALUES), random.one_of(&VALUES)]})
        }
    }
}

fn spec(random: &mut Random) -> Value {
    let mut spec = json!({});
    if random.percent(30) {
        spec["nodeSelector"] = json!({random.one_of(&KEYS): random.one_of(&VALUES)});
    }
    if random.percent(60) {
        let count = random.below(4);
        spec["tolerations"] = (0..count).map(|_| toleration(random)).collect();
    }
    if random.percent(30) {
        let count = 1 + random.below(2);
        let terms: Vec<Value> = (0..count)
            .map(|_| {
                let mut term = json!({});
                if random.percent(80) {
                    term["matchExpressions"] = json!([expression(random)]);
                }
                if random.percent(20) {
                    term["matchFields"] =
                        json!([{"key": "metadata.name", "operator": "In", "values": [random.one_of(&NODES).0]}]);
                }
                term
            })
            .collect();
        spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    }
    if random.percent(8) {
        spec["nodeName"] = json!(random.one_of(&NODES).0);
    }
    if random.percent(10) {
        spec["schedulingGates"] = json!([{"name": "x.dev/y"}]);
    }
    if random.percent(5) {
        spec["schedulerName"] = json!("mine");
    }
    spec
}

/// One operation, and whether it was allowed.
async fn operate(client: &Client, seed: u64) -> anyhow::Result<bool> {
    let random = &mut Random::new(seed);
    let namespace = random.one_of(&NAMESPACES);
    let name = format!("p{}", random.below(NAMES));
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let done = |result: Result<(), kube::Error>| match result {
        Ok(()) => Ok(true),
        Err(kube::Error::Api(_)) => Ok(false),
        Err(error) => Err(anyhow::Error::from(error)),
    };
    match random.below(10) {
        0..=4 => {
            let mut object = pod(namespace, &name, spec(random));
            if random.percent(15) {
                object["metadata"]["annotations"] =
                    json!({"croft.dev/pool": random.one_of(&["pool-a", "pool-a2", "pool-b", ""])});
            }
            Ok(create(client, &object, false).await?.is_done())
        }
        5 => {
            let add = json!({"spec": {"tolerations": [toleration(random)]}});
            done(api.patch(&name, &PatchParams::default(), &Patch::Strategic(add)).await.map(|_| ()))
        }
        6 => {
            let patch = match random.below(3) {
                0 => json!({"spec": {"schedulingGates": null}}),
                1 => {
                    json!({"spec": {"schedulingGates": null, "nodeSelector": {random.one_of(&KEYS): random.one_of(&VALUES)}}})
                }
                _ => json!({"spec": {"nodeSelector": {random.one_of(&KEYS): random.one_of(&VALUES)}}}),
            };
            done(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(|_| ()))
        }
        7 => {
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
                "target": {"apiVersion": "v1", "kind": "Node", "name": random.one_of(&NODES).0}});
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
    let mut seeds = Random::new(SEED);
    let seeds: Vec<u64> = (0..OPERATIONS).map(|_| seeds.next_u64()).collect();
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
