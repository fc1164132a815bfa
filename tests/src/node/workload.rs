//! Installs Croft by its Helm charts, and two tenants.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use croft_testkit::{
    ControlPlane, Croft, CroftOptions, Process, Recipe, http,
    wait::{Seen, until},
};
use serde_json::json;

use crate::node::{Parts, network::FIRST};

/// Where ec2-sim listens.
pub const CLOUD: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(FIRST), 4599);
const STARTED_WITHIN: Duration = Duration::from_secs(60);

/// Starts ec2-sim, on the address that pods reach.
///
/// # Errors
/// If it doesn't start, with the end of its log.
pub async fn cloud(plane: &ControlPlane, parts: &Parts) -> anyhow::Result<Process> {
    let (certificate, key) = plane.authority_files();
    let recipe = Recipe::new("ec2-sim", parts.binaries.join("ec2-sim"), plane.log("ec2-sim"))
        .arguments([format!("--listen={CLOUD}"), format!("--apiserver={}", plane.url())])
        .arguments([
            format!("--node-ca-cert={}", certificate.display()),
            format!("--node-ca-key={}", key.display()),
        ]);
    let mut process = plane.spawn(&recipe)?;
    until("ec2-sim", STARTED_WITHIN, || async {
        let answer = http::get(CLOUD, "/_control/state").await?;
        Ok::<_, croft_testkit::Error>(Seen::from_option((answer.status == 200).then_some(()), answer.status))
    })
    .await?;
    process.check()?;
    Ok(process)
}

/// Installs the charts, with two replicas of the webhook and EC2 at [`CLOUD`].
///
/// # Errors
/// If Helm fails.
pub async fn install(plane: &ControlPlane) -> anyhow::Result<()> {
    // The name of the cloud is resolved by /etc/hosts of the pod: the image has to resolve names.
    let values = json!({
        "webhook": {"replicas": 2},
        "controller": {
            "settings": {
                "clusterName": "croft", "awsRegion": "us-east-1",
                "awsEndpointUrl": format!("http://ec2.test.internal:{}", CLOUD.port()),
            },
            "env": [
                {"name": "AWS_ACCESS_KEY_ID", "value": "test"},
                {"name": "AWS_SECRET_ACCESS_KEY", "value": "test"},
                {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
            ],
            "hostAliases": [{"ip": CLOUD.ip(), "hostnames": ["ec2.test.internal"]}],
        },
    });
    let file = plane.write("values.yaml", &values.to_string())?;
    let options = CroftOptions::find()?;
    let charts = options.manifests.join("chart");
    let values = format!("--values={}", file.display());
    Croft::install(plane, options.by_helm(&charts, "croft-system", &[&values])).await?;
    Ok(())
}

/// Waits until every replica of a Deployment of Croft is available, of its newest revision.
///
/// # Errors
/// If it isn't in time.
pub async fn until_rolled_out(plane: &ControlPlane, deployment: &str) -> anyhow::Result<()> {
    let target = format!("deployment/{deployment}");
    let arguments = ["rollout", "status", "--namespace=croft-system", "--timeout=180s", &target];
    plane.kubectl(arguments).await.map(drop).with_context(|| format!("{deployment} didn't become available"))
}

/// The two tenants of the example. Waits until their pods run on nodes that Croft launched.
///
/// # Errors
/// If a manifest is refused, or a pod doesn't run.
pub async fn tenants(plane: &ControlPlane) -> anyhow::Result<()> {
    let example = CroftOptions::find()?.manifests.join("examples/two-tenants");
    let path = |file: &str| example.join(file).display().to_string();
    plane.kubectl(["apply", "--server-side", "-f", &path("platform.yaml")]).await?;
    plane.kubectl(["wait", "--for=condition=Ready", "--timeout=120s", "tenant", "--all"]).await?;
    plane.kubectl(["apply", "--server-side", "-f", &path("workloads.yaml")]).await?;
    for (namespace, deployment) in [("tenant-a", "web"), ("tenant-a", "api"), ("tenant-b", "workers")] {
        let (namespace, target) = (format!("--namespace={namespace}"), format!("deployment/{deployment}"));
        plane.kubectl(["rollout", "status", "--timeout=180s", &namespace, &target]).await?;
    }
    Ok(())
}

/// One more pod than the tenant's nodes have room for. Waits until it runs.
///
/// # Errors
/// If it doesn't run.
pub async fn grow(plane: &ControlPlane) -> anyhow::Result<()> {
    let nodes = async || plane.kubectl(["get", "nodes", "-l", "node-pool=pool-b", "-o", "name"]).await;
    let before = nodes().await?.lines().count();
    plane.kubectl(["scale", "--namespace=tenant-b", "deployment/workers", "--replicas=40"]).await?;
    let arguments = ["rollout", "status", "--timeout=180s", "--namespace=tenant-b", "deployment/workers"];
    plane.kubectl(arguments).await?;
    let after = nodes().await?.lines().count();
    anyhow::ensure!(after > before, "40 pods run on {after} nodes, as 3 did: no instance was launched");
    Ok(())
}
