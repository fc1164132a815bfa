//! Switching between the webhook and the policies under a stream of creations and of attacks: no pod is refused, none is
//! misplaced, no attack succeeds; and with every process of Croft killed in Policy mode, pods are created, pinned and
//! started.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use croft_policy::{Mutation, definitions::POOLS_ANNOTATION};
use croft_testkit::{Options, Part, wait};
use croft_tests::{
    arena::{SOON, create, in_mode, kept_arena, misplaced_pods, pod, settings},
    attacks::{self, Stream},
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, api::ListParams};
use serde_json::{Value, json};

/// Pods that are created while no process of Croft runs.
const PODS: usize = 30;

/// Creates pods of a tenant until `stop`. Returns their number, and the refusals.
async fn stream(client: Client, stop: Arc<AtomicBool>) -> (usize, Vec<String>) {
    let (mut made, mut refused) = (0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let object = pod("tenant-a", &format!("stream-{made}"), json!({}));
        let answer = create(&client, &object, false).await.unwrap();
        if !answer.is_done() {
            refused.push(answer.sentence());
        }
        made += 1;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    (made, refused)
}

fn selector(pod: &Pod) -> Value {
    json!(pod.spec.as_ref().and_then(|spec| spec.node_selector.clone()))
}

#[tokio::test]
async fn switching_loses_no_pod_and_policies_need_no_process() {
    let (plane, mut croft) = kept_arena(Options::default()).await.unwrap();
    let client = plane.admin().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    wait::until("the pools on the namespace", SOON, async || {
        let own = namespaces.get("tenant-a").await?.metadata.annotations.unwrap_or_default();
        let yes = own.contains_key(POOLS_ANNOTATION);
        Ok::<_, kube::Error>(wait::Seen::from_option(yes.then_some(()), format!("{own:?}")))
    })
    .await
    .unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let streaming = tokio::spawn(stream(client.clone(), stop.clone()));
    // Paced, so that the stream of pods goes on on a busy computer.
    let attacking = Stream::start_paced(attacks::placement(&plane).await.unwrap(), attacks::SLOW);
    for mode in [Mutation::Policy, Mutation::Webhook, Mutation::Policy] {
        plane.apply(&settings(mode)).await.unwrap();
        in_mode(&client, mode).await.unwrap();
    }
    let tally = attacking.stop().await;
    assert!(tally.is_clean(), "{:?}", tally.breaches);
    assert!(tally.answered > 10, "attacks were answered meanwhile: {}", tally.answered);
    stop.store(true, Ordering::Relaxed);
    let (made, refused) = streaming.await.unwrap();
    assert!(made > 10, "pods were created meanwhile: {made}");
    assert_eq!(refused, Vec::<String>::new(), "of {made}");

    croft.kill(Part::Webhook).unwrap();
    croft.kill(Part::Controller).unwrap();
    for index in 0..PODS {
        let answer =
            create(&client, &pod("tenant-a", &format!("alone-{index}"), json!({})), false).await.unwrap();
        assert!(answer.is_done(), "{}", answer.sentence());
    }
    let foreign = json!({"nodeSelector": {"node-pool": "pool-b"}});
    let answer = create(&client, &pod("tenant-a", "foreign", foreign), true).await.unwrap();
    assert!(answer.sentence().contains("pools"), "{}", answer.sentence());
    assert!(!answer.is_done(), "a foreign pool is refused");
    let named = json!({"nodeName": "a-1"});
    let answer = create(&client, &pod("tenant-a", "named", named), true).await.unwrap();
    assert!(!answer.is_done(), "only the webhook knows the node's pool");

    let pods: Api<Pod> = Api::namespaced(client.clone(), "tenant-a");
    let total = made + PODS;
    wait::until("all pods running", SOON, async || {
        let list = pods.list(&ListParams::default()).await?.items;
        let running = list
            .iter()
            .filter(|p| p.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running"))
            .count();
        let yes = running == total;
        Ok::<_, kube::Error>(wait::Seen::from_option(yes.then_some(()), format!("{running} of {total} run")))
    })
    .await
    .unwrap();
    for pod in pods.list(&ListParams::default()).await.unwrap().items {
        assert_eq!(selector(&pod), json!({"node-pool": "pool-a"}), "{:?}", pod.metadata.name);
    }
    assert_eq!(misplaced_pods(&client).await.unwrap(), Vec::<String>::new());
}
