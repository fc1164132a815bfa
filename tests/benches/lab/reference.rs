//! The same Deployments on a control plane without Croft: its nodes are there, and its pods select and tolerate them by
//! themselves.
//!
//! ```text
//!   measured cluster ──copies of Nodes──────────────────────────▶ reference
//!                    ──nodeSelector and tolerations of its pods──▶ Deployments there
//! ```

use anyhow::Context as _;
use croft_testkit::{
    ControlPlane, Options,
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, Pod, ServiceAccount};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    audit::Audit,
    cluster::{self, Load, MeasuredCluster, PATIENCE, REQUESTS_PER_SECOND, name},
    processes::Usage,
    stopwatch::{Count, LABEL, Stopwatch},
};

/// Taints with this prefix are the node controller's.
const CONDITION_TAINTS: &str = "node.kubernetes.io/";

/// A control plane without Croft.
pub(crate) struct Reference {
    plane: ControlPlane,
    client: Client,
    watch: Stopwatch,
    /// Its API server writes the log that the measured one writes.
    _audit: Audit,
}

impl Reference {
    /// Starts it, with the namespaces of `cluster`.
    ///
    /// # Errors
    /// If a process doesn't start.
    pub(crate) async fn start(cluster: &MeasuredCluster) -> anyhow::Result<Self> {
        let (audit, options) = Audit::new(Options::default().requests_per_second(REQUESTS_PER_SECOND))?;
        let plane = ControlPlane::start(options).await?;
        let client = plane.admin().await?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        for n in 0..cluster.tenants {
            let metadata = ObjectMeta { name: Some(name(n)), ..ObjectMeta::default() };
            namespaces
                .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
                .await?;
        }
        for n in 0..cluster.tenants {
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name(n));
            until("the namespace's ServiceAccount", PATIENCE, async || {
                Ok::<_, kube::Error>(Seen::from_option(accounts.get_opt("default").await?, "none"))
            })
            .await?;
        }
        let watch = Stopwatch::start(client.clone());
        Ok(Self { plane, client, watch, _audit: audit })
    }

    /// Replaces the nodes by copies of those of a measured cluster, and waits until all are Ready.
    ///
    /// # Errors
    /// If a node can't be created, or isn't Ready in time.
    pub(crate) async fn copy_nodes(&self, measured: &Client) -> anyhow::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let nodes: Vec<Node> = cluster::nodes(measured).await?.into_iter().map(copy).collect();
        let creating = nodes.iter().map(|node| async { api.create(&PostParams::default(), node).await });
        futures::future::try_join_all(creating).await.context("failed to create a Node")?;
        until("the copied nodes to be Ready", PATIENCE, async || {
            let ready = cluster::nodes(&self.client).await?.iter().filter(|node| is_open(node)).count();
            let seen = format!("{ready} of {}", nodes.len());
            anyhow::Ok(Seen::from_option((ready == nodes.len()).then_some(()), seen))
        })
        .await?;
        Ok(())
    }

    /// Creates the Deployments of `cluster` with `constraints` in their pods, and returns the seconds until `is_done`. Then
    /// deletes them.
    ///
    /// # Errors
    /// If a Deployment can't be created, or its pods come no further.
    pub(crate) async fn measure(
        &mut self,
        cluster: &MeasuredCluster,
        load: Load,
        constraints: &[PodConstraints],
        is_done: impl Fn(Count) -> bool,
    ) -> anyhow::Result<f64> {
        let deployments = cluster.deployments(load).into_iter().zip(constraints);
        let deployments = deployments.map(|(deployment, constraints)| constraints.written_into(deployment));
        let before = Usage::of_plane(&self.plane)?;
        let begun = Instant::now();
        cluster::create(&self.client, deployments.collect()).await?;
        let seconds = self.watch.until(is_done).await?.duration_since(begun).as_secs_f64();
        println!("         {seconds:.2} s on a control plane without Croft, onto copies of the nodes");
        println!("  CPU seconds: {}", Usage::of_plane(&self.plane)?.since(&before));
        cluster.withdraw(&self.client).await?;
        self.watch.until(|count| count.pods == 0).await?;
        self.plane.check()?;
        Ok(seconds)
    }
}

/// The parts of a tenant's pods that Croft has added: which nodes they select and tolerate.
#[derive(Clone, Debug)]
pub(crate) struct PodConstraints {
    selector: Value,
    tolerations: Value,
}

impl PodConstraints {
    /// Of each tenant, from a pod of its Deployment in the measured cluster.
    ///
    /// # Errors
    /// If a tenant has no pod, or its pods select no node.
    pub(crate) async fn of_tenants(
        cluster: &MeasuredCluster,
        measured: &Client,
    ) -> anyhow::Result<Vec<Self>> {
        let one = ListParams::default().labels(&format!("{}={}", LABEL.0, LABEL.1)).limit(1);
        let mut all = Vec::new();
        for n in 0..cluster.tenants {
            let pods = Api::<Pod>::namespaced(measured.clone(), &name(n)).list(&one).await?.items;
            let spec = pods.into_iter().next().and_then(|pod| pod.spec);
            let spec = spec.with_context(|| format!("{} has no pod", name(n)))?;
            let selector =
                spec.node_selector.with_context(|| format!("a pod of {} is not pinned", name(n)))?;
            all.push(Self { selector: json!(selector), tolerations: json!(spec.tolerations) });
        }
        Ok(all)
    }

    fn written_into(&self, mut deployment: Value) -> Value {
        if let Some(spec) = deployment.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
            spec.insert("nodeSelector".to_owned(), self.selector.clone());
            spec.insert("tolerations".to_owned(), self.tolerations.clone());
        }
        deployment
    }
}

/// The node as its kubelet would register it: KWOK, which its label selects, reports it as Ready.
fn copy(node: Node) -> Node {
    let metadata =
        ObjectMeta { name: node.metadata.name, labels: node.metadata.labels, ..ObjectMeta::default() };
    let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
    let taints = taints.into_iter().filter(|taint| !taint.key.starts_with(CONDITION_TAINTS)).collect();
    let status = node.status.map(|mut status| {
        status.conditions = None;
        status
    });
    let spec = NodeSpec { taints: Some(taints), ..NodeSpec::default() };
    Node { metadata, spec: Some(spec), status }
}

/// True if kube-scheduler binds pods to the node: it is Ready, and the node controller's taints are gone.
fn is_open(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
        && !taints.any(|taint| taint.key.starts_with(CONDITION_TAINTS))
}
