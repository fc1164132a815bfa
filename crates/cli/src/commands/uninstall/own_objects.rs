//! Lists of Croft's own resources, whose CRDs may be missing.

use croft_api::{
    NodeClaim,
    stored::{Kind, Stored},
};
use kube::{Api, Client, api::ListParams};

/// True for an error that says that the object, or its kind, isn't there any more. Without its CRD the answer isn't a Status
/// with a reason.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Objects of a kind; none if its CRD is missing.
async fn list<K: Kind>(client: &Client) -> anyhow::Result<Vec<Stored<K>>> {
    match Api::<Stored<K>>::all(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(anyhow::Error::new(error).context(format!("failed to list {}", K::plural(&())))),
    }
}

/// Names of the objects of a kind; none if its CRD is missing.
pub(super) async fn names<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    let list = list::<K>(client).await?;
    Ok(list.iter().map(|object| kube::Resource::meta(object).name.clone().unwrap_or_default()).collect())
}

/// Every NodeClaim, also one that can't be read as a whole.
pub(super) async fn claims(client: &Client) -> anyhow::Result<Vec<NodeClaim>> {
    Ok(list::<NodeClaim>(client).await?.into_iter().filter_map(Stored::legible).collect())
}
