//! The cluster as an [`Input`]: what `-f` would read from a dump of it.

use anyhow::Context as _;
use croft_api::stored::{Kind, Stored};
use croft_manifest::{Input, KindGroup, Objects, Origin, each_kind};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::own_objects::{self, is_absent};

/// Page size of large lists, which bounds the memory of the API server.
const PAGE: u32 = 500;

/// Lists every kind that commands use.
///
/// # Errors
/// If a kind can't be listed.
pub(crate) async fn read(client: &Client) -> anyhow::Result<Input> {
    let mut input = Input::default();
    put_own(client, &mut input.tenants).await.map_err(not_installed)?;
    put_own(client, &mut input.pools).await?;
    put_own(client, &mut input.classes).await?;
    put_own(client, &mut input.claims).await?;
    put_own(client, &mut input.configs).await?;
    put_kubernetes(client, &mut input).await?;
    Ok(input)
}

/// An error of a cluster without Croft's CRDs says so.
fn not_installed(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<kube::Error>() {
        Some(inner) if is_absent(inner) => own_objects::not_installed(),
        _ => error,
    }
}

/// Lists every kind that commands use; of Croft's own what is there, and nothing in a cluster without its API group.
///
/// # Errors
/// If a kind can't be listed.
pub(crate) async fn read_any(client: &Client) -> anyhow::Result<Input> {
    if has_croft(client).await? { read(client).await } else { read_kubernetes(client).await }
}

/// True if the cluster serves kinds of Croft's.
///
/// # Errors
/// If the API groups can't be listed.
async fn has_croft(client: &Client) -> anyhow::Result<bool> {
    // A reader without rights on kinds that don't exist is refused them, so that the group alone says whether they do.
    let found = client.list_api_groups().await.context("failed to list the API groups")?;
    Ok(found.groups.iter().any(|group| group.name == croft_api::GROUP))
}

/// Lists every kind of Kubernetes, and what admission depends on where Croft is installed already: whose namespaces are whose.
///
/// # Errors
/// If a kind that is served can't be listed.
pub(crate) async fn read_before_installation(client: &Client) -> anyhow::Result<Input> {
    let mut input = read_kubernetes(client).await?;
    if has_croft(client).await? {
        put_tenancy(client, &mut input).await?;
    }
    Ok(input)
}

/// Lists every kind that commands use, but for Croft's own, whose CRDs may be missing.
///
/// # Errors
/// If a kind can't be listed.
async fn read_kubernetes(client: &Client) -> anyhow::Result<Input> {
    let mut input = Input::default();
    put_kubernetes(client, &mut input).await?;
    Ok(input)
}

/// Lists the DaemonSets, and what admission of them depends on.
///
/// # Errors
/// If a kind can't be listed.
pub(crate) async fn read_daemon_sets(client: &Client) -> anyhow::Result<Input> {
    let mut input = Input::default();
    put_tenancy(client, &mut input).await?;
    put_all(client, &mut input.namespaces).await?;
    put_all(client, &mut input.daemon_sets).await?;
    Ok(input)
}

/// Croft's objects that admission depends on; none of a kind whose CRD is missing.
async fn put_tenancy(client: &Client, input: &mut Input) -> anyhow::Result<()> {
    let tenants = put_own(client, &mut input.tenants).await;
    let pools = put_own(client, &mut input.pools).await;
    let configs = put_own(client, &mut input.configs).await;
    for listed in [tenants, pools, configs] {
        match listed {
            Err(error) if !error.downcast_ref::<kube::Error>().is_some_and(is_absent) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn put_kubernetes(client: &Client, input: &mut Input) -> anyhow::Result<()> {
    macro_rules! list {
        ($($field:ident: $group:ident),*) => { $(if !KindGroup::$group.is_croft() {
            put_all(client, &mut input.$field).await?;
        })* };
    }
    each_kind!(list);
    Ok(())
}

/// Croft's own objects. One that can't be decoded is left out, so that it doesn't hide the others.
async fn put_own<K: Kind>(client: &Client, into: &mut Objects<K>) -> anyhow::Result<()> {
    let mut stored: Objects<Stored<K>> = Objects::default();
    put_all(client, &mut stored).await?;
    for stored in stored.iter() {
        if let Some(object) = stored.object.clone().legible() {
            into.put(object, stored.origin.clone());
        }
    }
    Ok(())
}

async fn put_all<K>(client: &Client, into: &mut Objects<K>) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let origin = Origin { file: "cluster".into(), line: 0 };
    for object in list_all(client).await? {
        into.put(object, origin.clone());
    }
    Ok(())
}

/// Every object of a kind, in pages.
///
/// # Errors
/// If the kind can't be listed.
pub(crate) async fn list_all<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut items = Vec::new();
    loop {
        let list = api.list(&params).await.with_context(|| format!("failed to list {}", K::plural(&())))?;
        items.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(items),
        }
    }
}
