//! Pods of tenants that are created while no process of Croft runs, in Policy mode: each must be pinned and started.
//!
//! Four of five are created as pods, the fifth by scaling a Deployment, so that kube-controller-manager creates it.

use std::time::Duration;

use anyhow::Context as _;
use croft_testkit::{
    ControlPlane,
    wait::{Seen, until},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::arena::{SOON, create, misplaced_pods, pod};

/// The label of the pods.
const LABEL: &str = "lab.croft.dev/outage";
/// Name and Deployment of each tenant's namespace, with the key and the value that pin its pods.
const TENANTS: [(&str, &str, &str); 2] =
    [("tenant-a", "node-pool", "pool-a"), ("tenant-b", "node-pool", "pool-b")];
const DEPLOYMENT: &str = "outage";

/// How long, and how many pods.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Time over which the pods are created.
    pub length: Duration,
    /// Number of pods.
    pub pods: usize,
}

/// Ten minutes and 500 pods.
pub const TEN_MINUTES: Outage = Outage { length: Duration::from_secs(600), pods: 500 };

/// The result of an outage.
#[derive(Clone, Debug, Default)]
pub struct Started {
    /// Pods that exist at its end.
    pub created: usize,
    /// Pods with the selector of their tenant's pool.
    pub pinned: usize,
    /// Pods that run.
    pub running: usize,
    /// Seconds of the outage.
    pub seconds: u64,
    /// Median and maximum of the time from a pod's request to its answer, in milliseconds.
    pub answered_ms: (u128, u128),
    /// Maximum of the time from a pod's creation until it runs, in seconds.
    pub slowest_start_seconds: i64,
    /// Refusals, pods without pins, pods on other nodes, pods that don't run.
    pub failures: Vec<String>,
}

impl Started {
    /// The figures in one line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { created, pinned, running, seconds, answered_ms, slowest_start_seconds, failures } = self;
        let (median, maximum) = answered_ms;
        format!(
            "no process for {seconds} s: created={created} pinned={pinned} running={running} failures={} \
             request_p50_ms={median} request_max_ms={maximum} slowest_start_s={slowest_start_seconds}",
            failures.len()
        )
    }
}

/// Creates the pods, evenly over the time. Returns once all of them run, or have not within a minute.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn create_pods(plane: &ControlPlane, outage: Outage) -> anyhow::Result<Started> {
    let client = plane.admin().await?;
    let mut started = Started::default();
    for (namespace, ..) in TENANTS {
        let answer = create(&client, &deployment(namespace), false).await?;
        anyhow::ensure!(answer.is_done(), "{}", answer.sentence());
    }
    let begun = Instant::now();
    let count = u32::try_from(outage.pods).context("too many pods")?;
    let mut tick = interval(outage.length / count.max(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut times = Vec::new();
    let mut replicas = [0_u32; TENANTS.len()];
    for number in 0..outage.pods {
        tick.tick().await;
        let at = number % TENANTS.len();
        let (Some((namespace, ..)), Some(replicas)) = (TENANTS.get(at), replicas.get_mut(at)) else {
            continue;
        };
        if number % 5 == 4 {
            *replicas += 1;
            let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
            let scale = json!({"spec": {"replicas": *replicas}});
            api.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Merge(scale)).await?;
            continue;
        }
        let mut object = pod(namespace, &format!("outage-{number}"), json!({}));
        if let Some(metadata) = object.pointer_mut("/metadata") {
            *metadata =
                json!({"name": format!("outage-{number}"), "namespace": namespace, "labels": {LABEL: "yes"}});
        }
        let sent = Instant::now();
        let answer = create(&client, &object, false).await?;
        times.push(sent.elapsed().as_millis());
        if !answer.is_done() {
            started.failures.push(answer.sentence());
        }
    }
    tick.tick().await;
    started.seconds = begun.elapsed().as_secs();
    times.sort_unstable();
    started.answered_ms =
        (times.get(times.len() / 2).copied().unwrap_or_default(), times.last().copied().unwrap_or_default());
    count_started(&client, outage.pods, &mut started).await?;
    Ok(started)
}

/// Waits for the pods to run, and counts.
async fn count_started(client: &Client, wanted: usize, started: &mut Started) -> anyhow::Result<()> {
    let all = ListParams::default().labels(LABEL);
    let listed = async || Ok::<_, kube::Error>(Api::<Pod>::all(client.clone()).list(&all).await?.items);
    let waited = until("the pods to run", SOON, async || {
        let running = listed().await?.iter().filter(|pod| is_running(pod)).count();
        Ok::<_, kube::Error>(Seen::from_option((running >= wanted).then_some(()), running))
    })
    .await;
    if let Err(error) = waited {
        started.failures.push(error.to_string());
    }
    let pods = listed().await?;
    started.created = pods.len();
    for pod in &pods {
        let namespace = pod.namespace().unwrap_or_default();
        let pin = TENANTS.iter().find(|(tenant, ..)| *tenant == namespace);
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.clone()).unwrap_or_default();
        let is_pinned = pin.is_some_and(|(_, key, value)| selector.get(*key).is_some_and(|v| v == value));
        started.pinned += usize::from(is_pinned);
        started.running += usize::from(is_running(pod));
        if !is_pinned {
            started.failures.push(format!("{namespace}/{} has {selector:?}", pod.name_any()));
        }
        let seconds = start_seconds(pod).unwrap_or_default();
        started.slowest_start_seconds = started.slowest_start_seconds.max(seconds);
    }
    started.failures.extend(misplaced_pods(client).await?);
    Ok(())
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

/// Time from the creation of a pod until it was ready.
fn start_seconds(pod: &Pod) -> Option<i64> {
    let created = pod.metadata.creation_timestamp.as_ref()?.0;
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let ready = conditions.find(|c| c.type_ == "Ready")?.last_transition_time.as_ref()?.0;
    Some(ready.as_second() - created.as_second())
}

/// Deletes the pods and what created them.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn delete_pods(plane: &ControlPlane) -> anyhow::Result<()> {
    let client = plane.admin().await?;
    for (namespace, ..) in TENANTS {
        Api::<Deployment>::namespaced(client.clone(), namespace)
            .delete(DEPLOYMENT, &DeleteParams::default())
            .await?;
        let now = DeleteParams::default().grace_period(0);
        let all = ListParams::default().labels(LABEL);
        Api::<Pod>::namespaced(client.clone(), namespace).delete_collection(&now, &all).await?;
    }
    Ok(())
}

fn deployment(namespace: &str) -> serde_json::Value {
    let labels = json!({"app": DEPLOYMENT, LABEL: "yes"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": DEPLOYMENT, "namespace": namespace},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c"}]}}},
    })
}
