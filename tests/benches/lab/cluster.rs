//! The measured cluster: tenants, their pools, and their Deployments.

use std::time::Duration;

use anyhow::Context as _;
use croft_api::{EC2NodeClass, NodeClaim, Tenant};
use croft_testkit::{
    CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{class, joined, tenant},
    stack::{Stack, condition_of},
};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{audit::Audit, stopwatch::LABEL};

/// Options that differ from the control plane's defaults, besides the simulated cloud.
pub(crate) const SETTING: &str = "kube-controller-manager and kube-scheduler with --kube-api-qps=2000 --kube-api-burst=4000 \
     (by default 20 and 50 a second); Croft with its default settings, and pools of consolidateAfter 24h except in `steady`;\n\
     etcd without fsync; instances of ec2-sim run and join at once; on-demand, allocation strategy lowest-price; KWOK plays the kubelets";
pub(crate) const REQUESTS_PER_SECOND: u32 = 2_000;
/// Above every duration here, also on a busy computer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// Equal tenants, each with its own namespace and pool.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredCluster {
    pub(crate) tenants: usize,
    /// Requirements of every pool, in addition to on-demand Linux.
    pub(crate) requirements: Value,
    /// The pools' `disruption`.
    pub(crate) disruption: Value,
}

/// Pods of one tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) replicas: usize,
    pub(crate) cpu: &'static str,
    pub(crate) memory: &'static str,
}

impl MeasuredCluster {
    /// The instance types of the platform's example.
    pub(crate) fn usual(tenants: usize) -> Self {
        let requirements = json!([
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
            {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["2"]},
        ]);
        // The run without Croft's launches uses the same nodes.
        Self { tenants, requirements, disruption: json!({"consolidateAfter": "24h"}) }
    }

    /// Starts a control plane with Croft, and waits until every tenant is Ready.
    pub(crate) async fn start(&self) -> anyhow::Result<(Stack, Audit)> {
        let (audit, options) = Audit::new(Options::default().requests_per_second(REQUESTS_PER_SECOND))?;
        let stack = Stack::start_with(options, cloud_without_delays()?).await?;
        stack.plane.apply(&self.manifest()).await?;
        let client = stack.plane.admin().await?;
        condition_of::<EC2NodeClass>(&client, "default", "Ready", "True").await?;
        for n in 0..self.tenants {
            condition_of::<Tenant>(&client, &name(n), "Ready", "True").await?;
        }
        Ok((stack, audit))
    }

    /// The platform team's manifests.
    pub(crate) fn manifest(&self) -> String {
        let mut documents = vec![class("default")];
        for n in 0..self.tenants {
            let name = name(n);
            let spec = json!({
                "template": {"spec": {"nodeClassRef": {"name": "default"}, "requirements": self.requirements}},
                "disruption": self.disruption,
            });
            documents.extend(tenant(&name, &name, &spec));
        }
        joined(&documents)
    }

    /// The tenants' Deployments.
    pub(crate) fn deployments(&self, load: Load) -> Vec<Value> {
        let labels = json!({LABEL.0: LABEL.1});
        let one = |n| {
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app", "namespace": name(n)},
                "spec": {
                    "replicas": load.replicas, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {
                        "automountServiceAccountToken": false,
                        "containers": [{
                            "name": "app", "image": "registry.example/app:1",
                            "resources": {"requests": {"cpu": load.cpu, "memory": load.memory}},
                        }],
                    }},
                },
            })
        };
        (0..self.tenants).map(one).collect()
    }

    /// Creates the Deployments, all at once.
    pub(crate) async fn deploy(&self, client: &Client, load: Load) -> anyhow::Result<()> {
        create(client, self.deployments(load)).await
    }

    /// Deletes the Deployments. Their pods end afterwards.
    pub(crate) async fn withdraw(&self, client: &Client) -> anyhow::Result<()> {
        let params = DeleteParams::background();
        for n in 0..self.tenants {
            Api::<Deployment>::namespaced(client.clone(), &name(n)).delete("app", &params).await?;
        }
        Ok(())
    }
}

/// Creates the Deployments of the tenants, all at once.
pub(crate) async fn create(client: &Client, deployments: Vec<Value>) -> anyhow::Result<()> {
    let creating = deployments.into_iter().enumerate().map(|(n, value)| async move {
        let api: Api<Deployment> = Api::namespaced(client.clone(), &name(n));
        let deployment: Deployment = serde_json::from_value(value)?;
        api.create(&PostParams::default(), &deployment).await?;
        anyhow::Ok(())
    });
    futures::future::try_join_all(creating).await.context("failed to create a Deployment").map(drop)
}

/// Croft with a cloud whose instances run, join and end at once.
pub(crate) fn cloud_without_delays() -> anyhow::Result<CroftOptions> {
    Ok(CroftOptions::find()?
        .flag(Part::Cloud, "--running-after-ms=0")
        .flag(Part::Cloud, "--boot-ms=0")
        .flag(Part::Cloud, "--terminated-after-ms=0"))
}

/// The name of a tenant, and of its namespace and pool.
pub(crate) fn name(n: usize) -> String {
    format!("tenant-{n:02}")
}

/// Every claim.
pub(crate) async fn claims(client: &Client) -> anyhow::Result<Vec<NodeClaim>> {
    Ok(Api::<NodeClaim>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// Every node.
pub(crate) async fn nodes(client: &Client) -> anyhow::Result<Vec<Node>> {
    Ok(Api::<Node>::all(client.clone()).list(&ListParams::default()).await?.items)
}

/// Scales down to no instance, and waits until all are terminated.
pub(crate) async fn clear(client: &Client) -> anyhow::Result<()> {
    Api::<NodeClaim>::all(client.clone())
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    until("no node and no claim", PATIENCE, async || {
        let (claims, nodes) = (claims(client).await?.len(), nodes(client).await?.len());
        anyhow::Ok(Seen::from_option((claims + nodes == 0).then_some(()), format!("{claims} and {nodes}")))
    })
    .await?;
    Ok(())
}

/// Total price of the instances, in dollars per hour.
pub(crate) fn cost(claims: &[NodeClaim]) -> anyhow::Result<f64> {
    let price = |claim: &NodeClaim| {
        let price = claim.status.as_ref().and_then(|status| status.price_per_hour.as_deref());
        anyhow::Ok(price.context("a claim has no price")?.parse::<f64>()?)
    };
    claims.iter().map(price).sum()
}

/// Instance types with their counts.
pub(crate) fn kinds(claims: &[NodeClaim]) -> String {
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for claim in claims {
        let kind = claim.status.as_ref().and_then(|status| status.instance_type.clone()).unwrap_or_default();
        *kinds.entry(kind).or_default() += 1;
    }
    kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}
