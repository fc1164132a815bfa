//! Instances are handed over: the controller is stopped, and finalizers are removed, so that nothing is terminated.

use anyhow::Context as _;
use croft_api::{NodeClaim, Tenant, TenantPool, definitions::DISRUPTED_TAINT};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Node, Taint},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{declared, found::Found, progress::Progress};
use crate::{
    commands::check::leader_of,
    own_objects::{is_absent, names},
    table::counted,
};

/// The controller's Deployment.
const CONTROLLER: &str = "croft-controller";
/// Attempts to write a node that something else writes at the same time.
const ATTEMPTS: usize = 5;

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
        reopen(client, &node.name_any()).await?;
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

/// Opens a node again that the stopped controller was about to empty or to remove: nothing else would.
async fn reopen(client: &Client, name: &str) -> anyhow::Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    for _ in 0..ATTEMPTS {
        let found = api.get_opt(name).await.with_context(|| format!("failed to read the Node {name}"))?;
        let Some(patch) = found.as_ref().and_then(without_passing_taints) else { return Ok(()) };
        match api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(()),
            Err(error) if is_absent(&error) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("failed to remove Croft's passing taints of the Node {name}"));
            }
        }
    }
    anyhow::bail!("the Node {name} was written by others {ATTEMPTS} times meanwhile; run the command again")
}

/// The merge patch that removes the taints, and the cordon, of a disruption by Croft; `None` if there are none. The taint of
/// the node's pool stays.
fn without_passing_taints(node: &Node) -> Option<Value> {
    let taints = node.spec.as_ref()?.taints.as_deref()?;
    let others: Vec<&Taint> = taints.iter().filter(|taint| taint.key != DISRUPTED_TAINT).collect();
    // A cordon without the taint is a user's.
    (others.len() < taints.len()).then(|| {
        json!({"metadata": {"resourceVersion": node.resource_version()}, "spec": {"taints": others, "unschedulable": null}})
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(taints: &[&str], unschedulable: bool) -> Option<Value> {
        let taints: Vec<Value> =
            taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "resourceVersion": "7"},
            "spec": {"taints": taints, "unschedulable": unschedulable},
        }))
        .unwrap();
        without_passing_taints(&node)
    }

    #[test]
    fn taints_of_a_disruption_go_with_its_cordon_and_that_of_the_pool_stays() {
        let pool = json!([{"key": "node-pool", "effect": "NoSchedule"}]);
        let meta = json!({"resourceVersion": "7"});
        assert_eq!(
            patch(&["node-pool", "croft.dev/disrupted"], true),
            Some(json!({"metadata": meta, "spec": {"taints": pool, "unschedulable": null}}))
        );
        assert_eq!(patch(&["node-pool"], true), None, "the cordon is a user's");
    }
}
