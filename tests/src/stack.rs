//! All of Croft on a control plane, with the tests' queries.

use std::{collections::BTreeMap, fmt::Debug, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use croft_api::{NodeClaim, condition};
use croft_testkit::{
    ControlPlane, Croft, CroftOptions, Options, Part, http,
    wait::{Seen, until},
};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Timeout from a request to its effect, instances included, on a busy computer.
pub const EVENTUALLY: Duration = Duration::from_secs(120);

/// A control plane with all of Croft.
#[derive(Debug)]
pub struct Stack {
    /// Croft's processes, which end before the control plane.
    pub croft: Croft,
    /// The control plane.
    pub plane: ControlPlane,
}

impl Stack {
    /// Starts everything.
    ///
    /// # Errors
    /// If a process doesn't start, with the end of its log.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(Options::default(), CroftOptions::find()?).await
    }

    /// Starts everything with these options.
    ///
    /// # Errors
    /// If a process doesn't start, with the end of its log.
    pub async fn start_with(options: Options, croft: CroftOptions) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(options).await?;
        let croft = Croft::start(&plane, croft).await?;
        Ok(Self { croft, plane })
    }

    /// The text of a file under manifests/.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn manifest(&self, file: &str) -> anyhow::Result<String> {
        let path = self.croft.manifests().join(file);
        std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))
    }

    /// Sends a control request to the cloud.
    ///
    /// # Errors
    /// If the cloud doesn't answer, or refuses.
    pub async fn control(&mut self, request: &Value) -> anyhow::Result<()> {
        let answer = http::post(self.croft.address(Part::Cloud)?, "/_control", &request.to_string()).await?;
        anyhow::ensure!(answer.status < 300, "{request}: {} {}", answer.status, answer.body);
        Ok(())
    }

    /// The running instances, as the cloud describes them.
    ///
    /// # Errors
    /// If the cloud doesn't answer.
    pub async fn instances(&mut self) -> anyhow::Result<Vec<Value>> {
        instances_of(self.croft.address(Part::Cloud)?).await
    }

    /// An error if a process has ended by itself.
    ///
    /// # Errors
    /// If one has, with the end of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        self.plane.check()?;
        Ok(self.croft.check()?)
    }
}

/// The running instances of the simulated cloud at `address`.
///
/// # Errors
/// If it doesn't answer.
pub async fn instances_of(address: SocketAddr) -> anyhow::Result<Vec<Value>> {
    let state = http::get(address, "/_control/state").await?;
    let state: Value = serde_json::from_str(&state.body)?;
    let all = state.get("instances").and_then(Value::as_array).cloned().unwrap_or_default();
    Ok(all
        .into_iter()
        .filter(|m| matches!(m.get("state").and_then(Value::as_str), Some("pending" | "running")))
        .collect())
}

/// The last lines of a process's log, for a failing test.
#[must_use]
pub fn log_tail(plane: &ControlPlane, process: &str) -> String {
    let log = std::fs::read_to_string(plane.log(process)).unwrap_or_default();
    let mut tail: Vec<&str> = log.lines().rev().take(120).collect();
    tail.reverse();
    tail.join("\n")
}

/// The pods of a namespace that aren't being deleted.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn pods(client: &Client, namespace: &str) -> kube::Result<Vec<Pod>> {
    let list = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    Ok(list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect())
}

/// The events about pods that couldn't be created.
async fn refusals(client: &Client, namespace: &str) -> kube::Result<Vec<String>> {
    let failed = ListParams::default().fields("reason=FailedCreate");
    let events = Api::<Event>::namespaced(client.clone(), namespace).list(&failed).await?;
    let text = |event: Event| {
        let last = event.deprecated_last_timestamp.map(|time| time.0.to_string()).unwrap_or_default();
        let times = event.deprecated_count.unwrap_or_default();
        let about = event.regarding.and_then(|object| object.name).unwrap_or_default();
        format!("{about}: {times} times until {last}: {}", event.note.unwrap_or_default())
    };
    Ok(events.items.into_iter().map(text).collect())
}

/// Waits until exactly `count` pods of `namespace` are Running. Returns them.
///
/// # Errors
/// On timeout, with the present pods, and why their controllers created no more.
pub async fn running(client: &Client, namespace: &str, count: usize) -> anyhow::Result<Vec<Pod>> {
    let what = format!("{count} running pods in {namespace}");
    let found = until(&what, EVENTUALLY, async || {
        let pods = pods(client, namespace).await?;
        let state = |pod: &Pod| {
            let status = pod.status.clone().unwrap_or_default();
            let why = status.conditions.unwrap_or_default().into_iter().find(|c| c.status == "False");
            let phase = status.phase.unwrap_or_default();
            format!("{}: {phase} {}", pod.name_any(), why.and_then(|c| c.message).unwrap_or_default())
        };
        let run = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let all = pods.len() == count && pods.iter().all(run);
        let mut seen: Vec<String> = pods.iter().map(state).collect();
        if pods.len() < count {
            seen.extend(refusals(client, namespace).await?);
        }
        Ok::<_, kube::Error>(Seen::from_option(all.then_some(pods), seen.join("; ")))
    });
    Ok(found.await?)
}

/// Creates a pod once its namespace takes pods: a new namespace refuses them until the webhook knows its pools.
///
/// # Errors
/// On timeout, with the last refusal; or if the API server doesn't answer.
pub async fn created(client: &Client, pod: &Pod) -> anyhow::Result<()> {
    let api: Api<Pod> =
        Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
    let found =
        until("the pod created", EVENTUALLY, async || match api.create(&PostParams::default(), pod).await {
            Ok(_) => Ok::<_, kube::Error>(Seen::Yes(())),
            Err(kube::Error::Api(refusal)) if refusal.code != 409 => Ok(Seen::NotYet(refusal.message)),
            Err(other) => Err(other),
        });
    Ok(found.await?)
}

/// Nodes by name.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn nodes(client: &Client) -> kube::Result<BTreeMap<String, Node>> {
    let list = Api::<Node>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(list.items.into_iter().map(|node| (node.name_any(), node)).collect())
}

/// Claims of a pool.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn claims(client: &Client, pool: &str) -> kube::Result<Vec<NodeClaim>> {
    let list = Api::<NodeClaim>::all(client.clone()).list(&ListParams::default()).await?;
    Ok(list.items.into_iter().filter(|claim| claim.spec.pool == pool).collect())
}

/// True if the claim is ready.
#[must_use]
pub fn is_ready(claim: &NodeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| condition::is_true(&status.conditions, condition::READY))
}

/// The value of a label; empty if absent.
#[must_use]
pub fn label(object: &impl ResourceExt, key: &str) -> String {
    object.labels().get(key).cloned().unwrap_or_default()
}

/// The node of a pod, as text.
#[must_use]
pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

/// Waits until the condition `kind` of a cluster-scoped object has `status`. Returns the condition.
///
/// # Errors
/// On timeout, with the present conditions.
pub async fn condition_of<K>(
    client: &Client,
    name: &str,
    kind: &str,
    status: &str,
) -> anyhow::Result<Condition>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + serde::Serialize,
{
    let api: Api<K> = Api::all(client.clone());
    let what = format!("{} {name} with {kind}={status}", K::kind(&()));
    let found = until(&what, EVENTUALLY, async || {
        let object = serde_json::to_value(api.get(name).await?).map_err(kube::Error::SerdeError)?;
        let conditions = object.pointer("/status/conditions").cloned().unwrap_or_default();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        let seen = format!("{conditions:?}");
        let found = conditions.into_iter().find(|c| c.type_ == kind && c.status == status);
        Ok::<_, kube::Error>(Seen::from_option(found, seen))
    });
    Ok(found.await?)
}

/// All events: object, reason, message.
///
/// # Errors
/// If the API server doesn't answer.
pub async fn events(client: &Client) -> kube::Result<Vec<(String, String, String)>> {
    let list = Api::<Event>::all(client.clone()).list(&ListParams::default()).await?;
    let about = |event: &Event| event.regarding.as_ref().and_then(|object| object.name.clone());
    let said = list.items.into_iter().map(|event| {
        (about(&event).unwrap_or_default(), event.reason.unwrap_or_default(), event.note.unwrap_or_default())
    });
    Ok(said.collect())
}

/// Waits for an event with `reason` about an object. Returns its message.
///
/// # Errors
/// On timeout, with the other events.
pub async fn event_about(client: &Client, kind: &str, name: &str, reason: &str) -> anyhow::Result<String> {
    let api: Api<Event> = Api::all(client.clone());
    let what = format!("an event {reason} about the {kind} {name}");
    let found = until(&what, EVENTUALLY, async || {
        let events = api.list(&ListParams::default()).await?;
        let about = |event: &&Event| {
            event.regarding.as_ref().is_some_and(|object| {
                object.kind.as_deref() == Some(kind) && object.name.as_deref() == Some(name)
            })
        };
        let said: Vec<_> = events
            .iter()
            .filter(about)
            .map(|event| (event.reason.clone().unwrap_or_default(), event.note.clone().unwrap_or_default()))
            .collect();
        let found = said.iter().find(|(why, _)| why == reason).map(|(_, note)| note.clone());
        Ok::<_, kube::Error>(Seen::from_option(found, format!("{said:?}")))
    });
    Ok(found.await?)
}
