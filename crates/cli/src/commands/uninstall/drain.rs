//! The controller drains and terminates: Tenants are deleted, then TenantPools, whose finalizers wait for their nodes.

use croft_api::{NodeClaim, Tenant, TenantPool, stored::Stored};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};

use super::{declared, found::Found, progress::Progress};
use crate::{
    aws::{AwsArgs, Instances},
    commands::check::leader_of,
    own_events::{is_possible, says_croft},
    own_objects::{claims, names, unless_absent},
    shown::one_line,
    table::{counted, shortened},
};

/// At most this many objects are named.
const NAMED: usize = 5;
/// The reason of events about pods that can't be evicted, in controller's definitions.
const FAILED_DRAINING: &str = "FailedDraining";

/// Drains every pool. Returns what is left once the time is up; `None` if nothing is.
///
/// # Errors
/// If an object can't be read or deleted.
pub(super) async fn drain(
    client: &Client,
    found: &Found,
    aws: &AwsArgs,
    progress: &mut Progress<'_>,
) -> anyhow::Result<Option<String>> {
    let tenants = declared::delete_all::<Tenant>(client).await?;
    progress.done("tenants", &format!("{} deleted", counted(tenants.len(), "Tenant")))?;
    let pools = declared::delete_all::<TenantPool>(client).await?;
    // Without a NodeClaim a pool has nothing to drain, and without a leader nothing is launched.
    if found.leader.is_none() && claims(client).await?.is_empty() {
        declared::delete_released::<TenantPool>(client).await?;
    }
    loop {
        let (pools, claims) = (names::<TenantPool>(client).await?, claims(client).await?);
        delete_claims_without_pool(client, &claims, &pools).await?;
        let left = if !pools.is_empty() || !claims.is_empty() {
            format!("{} of {}", counted(claims.len(), "NodeClaim"), counted(pools.len(), "TenantPool"))
        } else if let Some(ids) = alive(client, &found.namespace, aws).await? {
            format!(
                "{} without a NodeClaim, which the controller terminates: {}",
                counted(ids.len(), "instance"),
                shortened(&ids, NAMED)
            )
        } else {
            break;
        };
        let led = leader_of(client, &found.namespace).await?.is_some();
        let without = if led { "" } else { "; no controller leads, and nothing proceeds without one" };
        if !progress.wait_for(&format!("{left}{without}")).await? {
            return Ok(Some(explain(client, &left, led, &claims).await?));
        }
    }
    progress.done(
        "pools",
        &format!("{} drained and deleted, their instances terminated", counted(pools.len(), "TenantPool")),
    )?;
    Ok(None)
}

/// Deletes the NodeClaims that no pool's deletion reaches.
async fn delete_claims_without_pool(
    client: &Client,
    claims: &[NodeClaim],
    pools: &[String],
) -> anyhow::Result<()> {
    let api: Api<Stored<NodeClaim>> = Api::all(client.clone());
    let without = |claim: &&NodeClaim| !pools.contains(&claim.spec.pool);
    for claim in claims.iter().filter(without).filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        unless_absent(api.delete(&claim.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}

/// Ids of the instances that AWS still shows as alive; `None` if there are none, or AWS isn't asked.
async fn alive(client: &Client, namespace: &str, aws: &AwsArgs) -> anyhow::Result<Option<Vec<String>>> {
    let Instances::Found(instances) = aws.instances(client, namespace).await? else { return Ok(None) };
    let alive = instances.into_iter().filter(|instance| instance.state.is_alive());
    let ids: Vec<String> = alive.map(|instance| instance.id).collect();
    Ok((!ids.is_empty()).then_some(ids))
}

/// Why the drain hasn't ended, and what to do.
async fn explain(client: &Client, left: &str, led: bool, claims: &[NodeClaim]) -> anyhow::Result<String> {
    let mut text = format!("the time is up, and there are still {left}");
    let events = Api::<Event>::all(client.clone()).list(&ListParams::default()).await?;
    let mut blocked: Vec<String> = events
        .items
        .into_iter()
        .filter(|event| event.reason.as_deref() == Some(FAILED_DRAINING))
        .filter(|event| says_croft(event) && is_possible(event))
        .filter(|event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            claims.iter().any(|claim| claim.metadata.name.as_deref() == about)
        })
        .filter_map(|event| event.note)
        .collect();
    blocked.sort();
    blocked.dedup();
    for note in blocked.iter().take(NAMED) {
        text.push_str(&format!("\n  {}", one_line(note)));
    }
    text.push_str(if led {
        "\nlook at kubectl describe nodeclaims; a PodDisruptionBudget is met once its pods run elsewhere: give them nodes of no \
         pool, or delete them. Then run the command again"
    } else {
        "\nstart the controller again (kubectl -n NAMESPACE scale deployment croft-controller --replicas=2), and run the command \
         again; or hand the instances over with --keep-instances"
    });
    Ok(text)
}
