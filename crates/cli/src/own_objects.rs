//! Croft's own resources in a cluster whose CRDs may be missing.

use anyhow::{Context as _, anyhow};
use croft_api::{
    NodeClaim,
    stored::{Kind, Stored},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, api::ListParams};

use crate::failure::missing_object;

/// True for an error that says that the object, or its kind, isn't there any more. Without its CRD the answer isn't a Status
/// with a reason.
pub(crate) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The answer about what may be gone; `None` if it is.
pub(crate) fn unless_absent<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(error) if is_absent(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Objects of a kind; `None` if its CRD is missing.
async fn served<K: Kind>(client: &Client) -> anyhow::Result<Option<Vec<Stored<K>>>> {
    let listed = Api::<Stored<K>>::all(client.clone()).list(&ListParams::default()).await;
    let listed = unless_absent(listed).with_context(|| format!("failed to list {}", K::plural(&())))?;
    Ok(listed.map(|list| list.items))
}

/// Objects of a kind; none if its CRD is missing.
async fn list<K: Kind>(client: &Client) -> anyhow::Result<Vec<Stored<K>>> {
    Ok(served(client).await?.unwrap_or_default())
}

/// Names of the objects of a kind; none if its CRD is missing.
pub(crate) async fn names<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    let list = list::<K>(client).await?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

/// Names of the objects of a kind.
///
/// # Errors
/// If its CRD is missing, or it can't be listed.
pub(crate) async fn served_names<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    let list = served::<K>(client).await?.ok_or_else(not_installed)?;
    Ok(list.iter().map(ResourceExt::name_any).collect())
}

/// Why an object that was named isn't there: its kind isn't, or others of it are.
pub(crate) async fn missing<K: Kind>(client: &Client, name: &str) -> anyhow::Error {
    match served_names::<K>(client).await {
        Ok(there) => missing_object(&K::kind(&()), name, there.iter().map(String::as_str)).into(),
        Err(error) => error,
    }
}

/// The cluster has no CRDs of Croft's.
pub(crate) fn not_installed() -> anyhow::Error {
    anyhow!(
        "this cluster has no Tenants: install Croft's CRDs (croft check says what is missing), or choose another cluster by --context"
    )
}

/// Every NodeClaim, also one that can't be read as a whole.
pub(crate) async fn claims(client: &Client) -> anyhow::Result<Vec<NodeClaim>> {
    Ok(list::<NodeClaim>(client).await?.into_iter().filter_map(Stored::legible).collect())
}

/// The CRDs that are there.
///
/// # Errors
/// If one can't be read.
pub(crate) async fn crds(client: &Client) -> anyhow::Result<Vec<CustomResourceDefinition>> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut found = Vec::new();
    for crd in croft_api::crds() {
        let name = crd.name_any();
        found.extend(api.get_opt(&name).await.with_context(|| format!("failed to read the CRD {name}"))?);
    }
    Ok(found)
}
