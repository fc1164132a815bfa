//! Switching between the webhook and the policies under a stream of creations and of attacks: no pod is refused, none is
//! misplaced, no attack succeeds; and with every process of Croft killed in Policy mode, pods are created, pinned and
//! started. With several creators and a replica of the webhook killed meanwhile, no pod is lost and none mis-pinned.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use croft_policy::{Mutation, definitions::POOLS_ANNOTATION};
use croft_testkit::{Component, Options, Part, wait};
use croft_tests::{
    arena::{
        Answer, SOON, create, in_mode, in_mode_within, kept_arena, misplaced_pods, pod, settings, settled,
    },
    attacks::{self, Stream},
    replicas::Replicas,
};
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
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

/// Creators at once, two for each of these namespaces.
const CREATORS: [&str; 6] = ["tenant-a", "tenant-b", "no-tenant", "tenant-a", "tenant-b", "no-tenant"];
/// Time between two pods of a creator: the control plane holds some thousand pods at the end.
const PACE: Duration = Duration::from_millis(500);
/// A Lease expires, and another replica takes over, before a switch goes on.
const SWITCHED: Duration = Duration::from_secs(150);
/// The message of the API server when no answer comes from the webhook.
const NO_ANSWER: &str = "failed calling webhook";

/// The names that a creator created, and how often the webhook gave no answer. Like a controller, it tries each pod again.
#[derive(Default)]
struct Created {
    names: BTreeSet<String>,
    without_answer: usize,
    refused: Vec<String>,
}

/// Creates pods until `stop`. A non-tenant pod tolerates every taint of the pools' key, so that it must be kept out.
async fn creator(client: Client, number: usize, namespace: &'static str, stop: Arc<AtomicBool>) -> Created {
    let mut created = Created::default();
    let spec = match namespace {
        "no-tenant" => json!({"tolerations": [{"key": "node-pool", "operator": "Exists"}]}),
        _ => json!({}),
    };
    while !stop.load(Ordering::Relaxed) {
        let name = format!("load-{number}-{}", created.names.len());
        match create(&client, &pod(namespace, &name, spec.clone()), false).await.unwrap() {
            Answer::Done(_) => drop(created.names.insert(name)),
            Answer::Refused(status) if status.message.contains(NO_ANSWER) => created.without_answer += 1,
            Answer::Refused(status) => {
                created.refused.push(status.message);
                created.names.insert(name);
            }
        }
        tokio::time::sleep(PACE).await;
    }
    created
}

/// The pod, unless it is pinned once to the pool of its namespace, or kept off the pools.
fn mis_pinned(pod: &Pod) -> Option<String> {
    let spec = json!(pod.spec.clone().unwrap_or_default());
    let of_key = |toleration: &&Value| toleration["key"] == "node-pool";
    let tolerations = spec["tolerations"].as_array().into_iter().flatten().filter(of_key).count();
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let is_right = match pod.namespace().as_deref() {
        Some("tenant-a") => spec["nodeSelector"] == json!({"node-pool": "pool-a"}) && tolerations == 1,
        Some("tenant-b") => spec["nodeSelector"] == json!({"node-pool": "pool-b"}) && tolerations == 1,
        _ => {
            spec["nodeSelector"].is_null()
                && required["nodeSelectorTerms"].as_array().is_some_and(|t| t.len() == 1)
        }
    };
    (!is_right).then(|| format!("{}: {spec}", pod.name_any()))
}

/// No kubelets and no scheduler: the pods are looked at as admission left them.
#[tokio::test]
async fn switching_with_several_creators_and_a_killed_replica_loses_and_mis_pins_no_pod() {
    let options = Options::default().without(Component::Scheduler).without(Component::Kubelets);
    let (plane, mut croft) = kept_arena(options).await.unwrap();
    let client = plane.admin().await.unwrap();
    // Three replicas behind a Service take the place of the arena's only one.
    croft.kill(Part::Webhook).unwrap();
    let mut replicas = Replicas::new(&plane, &["--drain=3", "--ca-propagation-delay=2"]).await.unwrap();
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(replicas.add(&plane).await.unwrap());
    }
    settled(&client).await.unwrap();
    in_mode_within(&client, Mutation::Webhook, SWITCHED).await.unwrap();

    let stop = Arc::new(AtomicBool::new(false));
    let creators = CREATORS
        .into_iter()
        .enumerate()
        .map(|(number, namespace)| tokio::spawn(creator(client.clone(), number, namespace, stop.clone())));
    let creators: Vec<_> = creators.collect();
    for (round, mode) in
        [Mutation::Policy, Mutation::Webhook, Mutation::Policy, Mutation::Webhook].into_iter().enumerate()
    {
        plane.apply(&settings(mode)).await.unwrap();
        // The first replica keeps the webhook configurations, so that it dies in the midst of the switch.
        if round == 1 {
            replicas.kill(&names[0]).unwrap();
        }
        in_mode_within(&client, mode, SWITCHED).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);

    let mut wanted: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (namespace, created) in CREATORS.into_iter().zip(join_all(creators).await) {
        let created = created.unwrap();
        assert_eq!(created.refused, Vec::<String>::new(), "{namespace}");
        assert!(created.names.len() > 10, "{namespace}: {} pods", created.names.len());
        println!("{namespace}: {} pods, {} times no answer", created.names.len(), created.without_answer);
        wanted.entry(namespace).or_default().extend(created.names);
    }
    for (namespace, names) in wanted {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        let there: BTreeSet<String> = found.iter().map(kube::ResourceExt::name_any).collect();
        let lost: Vec<&String> = names.difference(&there).collect();
        assert!(lost.is_empty(), "{namespace}: {lost:?}");
        let wrong: Vec<String> = found.iter().filter_map(mis_pinned).collect();
        assert!(wrong.is_empty(), "{namespace}: {} of {}: {:?}", wrong.len(), found.len(), wrong.first());
    }
}
