//! Croft's own resources: deletion, finalizers, CRDs.

use anyhow::Context as _;
use croft_api::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
    stored::{Kind, Stored},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::progress::Progress;
use crate::own_objects::{names, unless_absent};
use crate::table::{counted, shortened};

/// The prefix of Croft's finalizers.
const OWN: &str = "croft.dev/";
/// At most this many objects are named.
const NAMED: usize = 5;

/// Deletes the objects of a kind. Returns their names.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_all<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    let api: Api<Stored<K>> = Api::all(client.clone());
    let found = names::<K>(client).await?;
    for name in &found {
        unless_absent(api.delete(name, &DeleteParams::default()).await)
            .with_context(|| format!("failed to delete the {} {name}", K::kind(&())))?;
    }
    Ok(found)
}

/// Removes Croft's finalizers from an object, and leaves those of others.
///
/// # Errors
/// If the object can't be written.
pub(super) async fn release<K>(client: &Client, name: &str, finalizers: &[String]) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    if !finalizers.iter().any(|finalizer| finalizer.starts_with(OWN)) {
        return Ok(());
    }
    let others: Vec<&String> = finalizers.iter().filter(|finalizer| !finalizer.starts_with(OWN)).collect();
    let patch = json!({"metadata": {"finalizers": others}});
    let api: Api<K> = Api::all(client.clone());
    unless_absent(api.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await)
        .with_context(|| format!("failed to remove the finalizer of the {} {name}", K::kind(&())))?;
    Ok(())
}

/// Deletes the objects of a kind without their finalizers' work. Returns their names.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_released<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    let found = delete_all::<K>(client).await?;
    let api: Api<Stored<K>> = Api::all(client.clone());
    for name in &found {
        if let Ok(Some(object)) = api.get_metadata_opt(name).await {
            release::<Stored<K>>(client, name, object.finalizers()).await?;
        }
    }
    Ok(found)
}

/// Deletes settings and classes, which only name how nodes would be launched.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_settings(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let classes = delete_all::<EC2NodeClass>(client).await?;
    let configs = delete_all::<CroftConfig>(client).await?;
    progress.done(
        "classes and settings",
        &format!("{}, {} deleted", counted(classes.len(), "class"), counted(configs.len(), "CroftConfig")),
    )
}

/// The objects of a kind, each with the kind's name.
async fn titles<K: Kind>(client: &Client) -> anyhow::Result<Vec<String>> {
    Ok(names::<K>(client).await?.into_iter().map(|name| format!("{} {name}", K::kind(&()))).collect())
}

/// Deletes the CRDs, and waits until they are gone. They are kept while an object of one of them is left.
///
/// # Errors
/// If objects are left, or a CRD can't be deleted.
pub(super) async fn delete_crds(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let mut left = titles::<Tenant>(client).await?;
    left.extend(titles::<TenantPool>(client).await?);
    left.extend(titles::<NodeClaim>(client).await?);
    left.extend(titles::<EC2NodeClass>(client).await?);
    left.extend(titles::<CroftConfig>(client).await?);
    anyhow::ensure!(
        left.is_empty(),
        "the CRDs are kept, since objects are left or were created meanwhile: {}; run the command again",
        shortened(&left, NAMED)
    );
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in croft_api::crds() {
        let name = crd.name_any();
        unless_absent(api.delete(&name, &DeleteParams::default()).await)
            .with_context(|| format!("failed to delete the CRD {name}"))?;
        while api.get_opt(&name).await?.is_some() {
            if !progress.wait_for(&format!("until the CRD {name} is gone")).await? {
                anyhow::bail!("the CRD {name} is still being deleted; see kubectl describe crd {name}");
            }
        }
    }
    progress.done("CRDs", "removed")
}
