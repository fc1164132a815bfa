//! Instances are handed over: the controller is stopped, and finalizers are removed, so that nothing is terminated.

use anyhow::Context as _;
use croft_api::{NodeClaim, Tenant, TenantPool};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Node};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{declared, found::Found, progress::Progress};
use crate::{commands::check::leader_of, own_objects::names, table::counted};

/// The controller's Deployment.
const CONTROLLER: &str = "croft-controller";

/// Stops the controller, removes the finalizers, and deletes what is declared.
///
/// # Errors
/// If the controller doesn't stop, or an object can't be written.
pub(super) async fn release(
    client: &Client,
    found: &Found,
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    stop_controller(client, &found.namespace, progress).await?;
    for node in &found.nodes {
        declared::release::<Node>(client, &node.name_any(), node.finalizers()).await?;
    }
    let claims = declared::delete_released::<NodeClaim>(client).await?;
    let left = names::<NodeClaim>(client).await?;
    anyhow::ensure!(
        left.is_empty(),
        "NodeClaims are left, since another finalizer than Croft's keeps them: {}",
        left.join(", ")
    );
    progress.done(
        "instances",
        &format!("{} deleted, the instances run on", counted(claims.len(), "NodeClaim")),
    )?;
    let tenants = declared::delete_all::<Tenant>(client).await?;
    progress.done("tenants", &format!("{} deleted", counted(tenants.len(), "Tenant")))?;
    let pools = declared::delete_released::<TenantPool>(client).await?;
    progress.done(
        "pools",
        &format!("{} deleted; nodes keep their labels and taints", counted(pools.len(), "TenantPool")),
    )
}

/// Scales the controller down and waits until none leads: one that acts would terminate the instances of deleted claims.
async fn stop_controller(
    client: &Client,
    namespace: &str,
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    if deployments.get_opt(CONTROLLER).await?.is_some() {
        let patch = Patch::Merge(json!({"spec": {"replicas": 0}}));
        deployments
            .patch(CONTROLLER, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("failed to scale the Deployment {namespace}/{CONTROLLER} down"))?;
    }
    while let Some(holder) = leader_of(client, namespace).await? {
        if !progress.wait_for(&format!("until the controller {holder} has stopped")).await? {
            anyhow::bail!(
                "the controller {holder} still leads, and would terminate the instances: stop it (a GitOps tool may have scaled \
                 {namespace}/{CONTROLLER} up again), and run the command again"
            );
        }
    }
    progress.done("controller", "stopped")
}
