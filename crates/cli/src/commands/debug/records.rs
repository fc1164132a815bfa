//! Documents for the reader of a snapshot, of which `croft simulate` takes the time alone: versions, the leader, Leases, events, metrics.

use std::{collections::BTreeMap, time::Duration};

use croft_manifest::{SNAPSHOT_KIND, SNAPSHOT_VERSION};
use croft_record::snapshot::fields::Fields;
use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod, events::v1::Event};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::objects::written;
use crate::{cluster_reader::list_all, commands::check, failure::told};

/// The label of Croft's pods, and its values.
const NAME: &str = "app.kubernetes.io/name";
const PROCESSES: [&str; 2] = ["croft-controller", "croft-webhook"];
/// Time for the metrics of a pod.
const METRICS: Duration = Duration::from_secs(10);
/// The annotation of a pod with the port of its metrics.
const PORT: &str = "prometheus.io/port";

/// Documents of what was read, the first of which says when, and what else could not be.
///
/// # Errors
/// If an object can't be written as JSON.
pub(super) async fn documents(
    client: &Client,
    namespace: &str,
    version: &str,
    now: Timestamp,
) -> anyhow::Result<Vec<Value>> {
    let mut unread = Vec::new();
    let mut note = |what: &str, why: String| unread.push(format!("{what}: {why}"));
    let kubernetes = match client.apiserver_version().await {
        Ok(info) => Value::from(info.git_version),
        Err(error) => {
            note("the API server's version", error.to_string());
            Value::Null
        }
    };
    let leader = check::leader_of(client, namespace).await.unwrap_or_else(|error| {
        note("the leader", told(&error));
        None
    });
    let leases: Vec<Lease> = in_namespace(client, namespace).await.unwrap_or_else(|error| {
        note("Leases", error.to_string());
        Vec::new()
    });
    let mut events: Vec<Event> = list_all(client).await.unwrap_or_else(|error| {
        note("events", told(&error));
        Vec::new()
    });
    events.retain(is_of_croft);
    let mut figures = BTreeMap::new();
    match pods(client, namespace).await {
        Ok(pods) => {
            for pod in pods {
                match metrics(client, namespace, &pod).await {
                    Ok(text) => {
                        figures.insert(pod.name_any(), text);
                    }
                    Err(error) => note(&format!("metrics of {}", pod.name_any()), error),
                }
            }
        }
        Err(error) => note("Croft's pods", error.to_string()),
    }
    let mut all = vec![json!({
        "apiVersion": SNAPSHOT_VERSION,
        "kind": SNAPSHOT_KIND,
        "time": now.to_string(),
        "versions": {"croft": version, "kubernetes": kubernetes},
        "namespace": namespace,
        "leader": leader,
        "metrics": figures,
        "unread": unread,
    })];
    let spec = Fields::new(&["spec"]);
    all.extend(written(&leases.iter().collect::<Vec<_>>(), &spec)?);
    let note = Fields::new(&[
        "action",
        "eventTime",
        "note",
        "reason",
        "regarding",
        "related",
        "reportingController",
        "reportingInstance",
        "series",
        "type",
    ]);
    all.extend(written(&events.iter().collect::<Vec<_>>(), &note)?);
    Ok(all)
}

/// True for an event about one of Croft's objects, and for one that a process of Croft wrote.
fn is_of_croft(event: &Event) -> bool {
    let about = event.regarding.as_ref().and_then(|object| object.api_version.as_deref());
    about.is_some_and(|version| version.starts_with(&format!("{}/", croft_api::GROUP)))
        || event.reporting_controller.as_deref().is_some_and(|by| by.contains("croft"))
}

async fn in_namespace<K>(client: &Client, namespace: &str) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Serialize
        + std::fmt::Debug,
{
    Ok(Api::<K>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?.items)
}

/// Croft's pods that run.
async fn pods(client: &Client, namespace: &str) -> kube::Result<Vec<Pod>> {
    let list = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let is_croft = |pod: &Pod| pod.labels().get(NAME).is_some_and(|name| PROCESSES.contains(&name.as_str()));
    Ok(list.items.into_iter().filter(|pod| runs(pod) && is_croft(pod)).collect())
}

/// The metrics of a pod, through the API server.
async fn metrics(client: &Client, namespace: &str, pod: &Pod) -> Result<String, String> {
    let port = pod.annotations().get(PORT).ok_or_else(|| format!("it has no annotation {PORT}"))?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/metrics", pod.name_any());
    let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    // Where `scrapers` of the chart leaves out the API servers, packets of this request are dropped.
    match timeout(METRICS, client.request_text(request)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s: see the chart's scrapers", METRICS.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_croft_are_kept() {
        let event = |fields: Value| -> Event { serde_json::from_value(fields).unwrap() };
        let about = |version: &str| {
            event(json!({"eventTime": null, "regarding": {"apiVersion": version, "kind": "A"}}))
        };
        assert!(is_of_croft(&about("croft.dev/v1alpha1")));
        assert!(!is_of_croft(&about("v1")) && !is_of_croft(&about("croft.dev.example/v1")));
        assert!(is_of_croft(&event(json!({"eventTime": null, "reportingController": "croft-controller"}))));
        assert!(!is_of_croft(&event(json!({"eventTime": null, "reportingController": "default-scheduler"}))));
    }
}
