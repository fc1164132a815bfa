//! The instances of a cluster, for commands that need no controller.

use croft_cloud::{CloudError, CloudInstance};

use crate::{
    connect::{self, Access},
    instances,
    pace::Paces,
    refusal,
};

/// Every instance with the tag of the cluster that isn't terminated; `None` if `access` finds no region. `cluster_uid` is the UID
/// of the Namespace kube-system.
///
/// # Errors
/// If AWS can't be reached, or refuses.
pub async fn owned_instances(
    access: &Access,
    cluster_uid: &str,
) -> Result<Option<Vec<CloudInstance>>, CloudError> {
    let clients = connect::connect(access).await;
    if clients.region.is_empty() {
        return Ok(None);
    }
    let found = instances::of_cluster(&clients, &Paces::default(), cluster_uid)
        .await
        .map_err(|fault| refusal::refused("list the instances of this cluster", fault))?;
    Ok(Some(found.into_iter().map(|described| described.instance).collect()))
}
