//! Two tenants, whose pods run on what Croft launches.

use croft_testkit::{ControlPlane, CroftOptions};

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
