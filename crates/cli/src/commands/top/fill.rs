//! How full nodes are: of what pods may request, how much they do, and how much the metrics API says that they use.

use std::collections::BTreeMap;

use croft_inspect::{NODE_METRICS, NodeMetricsList, inventory};
use croft_manifest::Input;
use croft_scheduler::{
    Cluster, PodKey, Resources,
    resources::{CPU, MEMORY, quantity},
};
use k8s_openapi::{
    api::core::v1::{Node, Pod},
    apimachinery::pkg::api::resource::Quantity as ApiQuantity,
    jiff::Timestamp,
};
use kube::{Client, ResourceExt as _};
use serde::Serialize;

/// Amounts of one resource of a node. An amount that isn't known is `None`, and never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Fill {
    /// The part that pods may request.
    pub(super) allocatable: Option<String>,
    /// The requests of its pods.
    pub(super) requested: Option<String>,
    /// Its use at the moment.
    pub(super) used: Option<String>,
}

/// Thousandths of a CPU, and bytes of memory.
type Amounts = (i64, i64);

/// The measures of a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    /// The moment; `None` for files, which are of no moment.
    pub(super) at: Option<Timestamp>,
    /// The use of each node; empty without a metrics API.
    pub(super) used: BTreeMap<String, Amounts>,
}

impl Measured {
    /// The cluster at this moment. Without a metrics API, or the right to read it, what nodes use isn't known.
    pub(super) async fn read(client: &Client, at: Timestamp) -> Self {
        let mut measured = Self { at: Some(at), ..Self::default() };
        let Ok(request) = http::Request::get(NODE_METRICS).body(Vec::new()) else { return measured };
        if let Ok(list) = client.request::<NodeMetricsList>(request).await {
            measured.take(list);
        }
        measured
    }

    fn take(&mut self, list: NodeMetricsList) {
        self.used.extend(list.by_node().into_iter().map(|(name, used)| (name, (used.cpu, used.memory))));
    }

    /// Seconds since the node was created.
    pub(super) fn age(&self, node: &Node) -> Option<i64> {
        let created = node.metadata.creation_timestamp.as_ref()?.0;
        Some(self.at?.duration_since(created).as_secs().max(0))
    }
}

/// CPU and memory of a list of resources; `None` if one is missing or can't be read.
fn amounts(of: &BTreeMap<String, ApiQuantity>) -> Option<Amounts> {
    let known = [CPU, MEMORY].iter().all(|name| of.contains_key(*name));
    let all = Resources::from_api(of).ok().filter(|_| known)?;
    Some((all.get(CPU), all.get(MEMORY)))
}

/// The requests of each node's pods. `None` for a node with a pod whose requests can't be read.
#[derive(Default)]
pub(super) struct Requested<'i>(BTreeMap<&'i str, Option<Amounts>>);

impl<'i> Requested<'i> {
    pub(super) fn new(input: &'i Input) -> Self {
        let mut cluster = Cluster::new();
        let mut requested = Self::default();
        for pod in inventory::active_pods(input) {
            let Some(node) = inventory::node_of(pod) else { continue };
            let sum = requested.0.entry(node).or_insert(Some((0, 0)));
            let of_pod = of_pod(&mut cluster, pod);
            *sum =
                sum.zip(of_pod).map(|(sum, one)| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)));
        }
        requested
    }

    fn of(&self, node: &str) -> Option<Amounts> {
        self.0.get(node).copied().unwrap_or(Some((0, 0)))
    }

    /// CPU and memory of a node.
    pub(super) fn fill(&self, node: &Node, measured: &Measured) -> (Fill, Fill) {
        let name = node.name_any();
        let allocatable = node.status.as_ref().and_then(|status| amounts(status.allocatable.as_ref()?));
        let (requested, used) = (self.of(&name), measured.used.get(&name).copied());
        let text = |resource: &str, pick: fn(Amounts) -> i64| {
            let text = |of: Option<Amounts>| of.map(|amounts| quantity(resource, pick(amounts)).to_string());
            Fill { allocatable: text(allocatable), requested: text(requested), used: text(used) }
        };
        (text(CPU, |amounts| amounts.0), text(MEMORY, |amounts| amounts.1))
    }
}

fn of_pod(cluster: &mut Cluster, pod: &Pod) -> Option<Amounts> {
    cluster.upsert_pod(pod).ok()?;
    cluster.requests(&PodKey::new(&pod.namespace().unwrap_or_default(), &pod.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn input() -> Input {
        let text = "
apiVersion: v1
kind: Node
metadata: {name: n1, creationTimestamp: '2026-01-01T00:00:00Z'}
status: {allocatable: {cpu: '4', memory: 16Gi, pods: '20'}}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {nodeName: n1, containers: [{name: a, image: a, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop}
spec: {nodeName: n1, containers: [{name: a, image: a, resources: {requests: {cpu: '1'}}}]}
";
        croft_manifest::parse("t.yaml", text, &croft_manifest::LoadOptions::default()).unwrap()
    }

    #[test]
    fn requests_are_summed_and_what_is_not_known_is_not_zero() {
        let input = input();
        let requested = Requested::new(&input);
        let usage =
            json!({"items": [{"metadata": {"name": "n1"}, "usage": {"cpu": "250000000n", "memory": "2Gi"}}]});
        let metrics: NodeMetricsList = serde_json::from_value(usage).unwrap();
        let mut measured = Measured { at: "2026-01-01T01:00:00Z".parse().ok(), ..Measured::default() };
        let node = |name: &str| &input.nodes.get("", name).unwrap().object;
        let (cpu, _) = requested.fill(node("n1"), &measured);
        assert_eq!(cpu, Fill { allocatable: Some("4".into()), requested: Some("1500m".into()), used: None });
        measured.take(metrics);
        let (cpu, memory) = requested.fill(node("n1"), &measured);
        assert_eq!((cpu.used.as_deref(), memory.used.as_deref()), (Some("250m"), Some("2Gi")));
        assert_eq!(memory.requested.as_deref(), Some("1Gi"));
        let (cpu, _) = requested.fill(node("n2"), &measured);
        assert_eq!(cpu, Fill { allocatable: None, requested: Some("0".into()), used: None });
        assert_eq!((measured.age(node("n1")), measured.age(node("n2"))), (Some(3600), None));
    }
}
