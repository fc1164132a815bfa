//! Volumes of nodes that are drained: an instance is terminated once they are detached, or when the controller has waited
//! for six minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use croft_simkit::{Spread, is_of_daemonset};
use serde_json::json;
use tokio::time::sleep;

use crate::{panics, run::Run, runs::rest};

const ZONES: [&str; 2] = ["us-east-1a", "us-east-1b"];
const WAITS_FOR_MS: u64 = 360_000;
/// The models act this often, and it takes some seconds until a termination is seen in the cloud.
const LOOK: Duration = Duration::from_millis(250);
const SLACK_MS: u64 = 30_000;

/// How often instances were terminated after their volumes were detached, and with one that never was.
#[derive(Debug, Default)]
struct Ended {
    detached: usize,
    hung: usize,
}

/// Instances and the names of their nodes, as claims have them.
fn nodes(run: &Run) -> BTreeMap<String, String> {
    let store = run.environment.store.lock().unwrap();
    let pairs = store.of_kind("NodeClaim").filter_map(|(_, claim)| {
        let id = croft_cloud::instance_id(claim["status"]["providerId"].as_str()?);
        Some((id.to_owned(), claim["status"]["nodeName"].as_str()?.to_owned()))
    });
    pairs.collect()
}

/// Nodes that pods with a controller other than a DaemonSet are on, and nodes that volumes are attached to.
fn used_and_attached(run: &Run) -> [BTreeSet<String>; 2] {
    let store = run.environment.store.lock().unwrap();
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let pods = store.of_kind("Pod").filter(|(_, pod)| !is_of_daemonset(pod));
    let used = pods.filter_map(|(_, pod)| text(&pod["spec"]["nodeName"])).collect();
    let attached = store.of_kind("VolumeAttachment");
    [used, attached.filter_map(|(_, attachment)| text(&attachment["spec"]["nodeName"])).collect()]
}

/// A user deletes every NodeClaim.
fn delete_claims(run: &Run) {
    let (now, mut store) = (run.environment.clock.true_wall(), run.environment.store.lock().unwrap());
    let claims: Vec<_> = store.of_kind("NodeClaim").map(|(id, claim)| (id.clone(), claim.clone())).collect();
    for (id, claim) in claims {
        let instance = claim["status"]["providerId"].as_str().map(croft_cloud::instance_id);
        store.touched.extend(instance.map(str::to_owned));
        store.delete(&id, None, now);
    }
    drop(store);
    run.environment.changed.notify_waiters();
}

async fn play(seed: u64, ended: &mut Ended) {
    let mut run = Run::new(seed);
    run.environment.has_volumes.store(true, Ordering::Relaxed);
    {
        let mut model = run.model.lock().unwrap();
        model.hang_detachments(200);
        for workload in &mut model.workloads {
            (workload.spread, workload.end_ms, workload.max_unavailable) = (Spread::Anywhere, None, None);
            workload.volume_zones = ZONES.map(str::to_owned).to_vec();
            workload.replicas = workload.replicas.max(3);
        }
    }
    let (models, checks) = (run.start_models(), run.start_checks());
    run.start();
    assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
    let before = nodes(&run);
    delete_claims(&run);
    let mut alive = run.instances();
    let mut emptied: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..4 * 600 {
        sleep(LOOK).await;
        let ([used, attached], now) = (used_and_attached(&run), run.environment.now_ms());
        for name in before.values() {
            if used.contains(name) {
                emptied.remove(name);
            } else {
                emptied.entry(name.clone()).or_insert(now);
            }
        }
        let left = run.instances();
        for name in alive.difference(&left).filter_map(|id| before.get(id)) {
            let waited = now - emptied[name];
            if attached.contains(name) {
                ended.hung += 1;
                let range = WAITS_FOR_MS..WAITS_FOR_MS + SLACK_MS;
                assert!(range.contains(&waited), "seed {seed}: {name} ended after {waited} ms");
            } else {
                ended.detached += 1;
                assert!(waited < WAITS_FOR_MS, "seed {seed}: {name} ended after {waited} ms");
            }
        }
        alive = left;
    }
    assert_eq!(rest(&mut run).await, Vec::<String>::new(), "seed {seed}");
    let store = run.environment.store.lock().unwrap();
    let stateful = store
        .of_kind("Pod")
        .filter(|(_, pod)| pod["metadata"]["ownerReferences"][0]["kind"] == json!("StatefulSet"));
    assert!(stateful.count() >= 6, "seed {seed}");
    drop(store);
    models.abort();
    checks.abort();
}

#[test]
fn an_instance_ends_once_its_volumes_are_detached_and_with_one_that_never_is_after_six_minutes() {
    let mut ended = Ended::default();
    panics::play_or_fail(async {
        for seed in 50..54 {
            play(seed, &mut ended).await;
        }
    });
    println!("volumes: {ended:?}");
    assert!(ended.detached >= 5 && ended.hung >= 3, "{ended:?}");
}
