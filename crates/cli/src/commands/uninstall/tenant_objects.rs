//! Objects that the controller kept in tenants' namespaces, and for tenants in the whole cluster.

use anyhow::Context as _;
use croft_policy::definitions::{TENANT_LABEL, TENANT_OBJECT_PREFIX};
use kube::{
    Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use super::{
    parts::{self, ObjectKind},
    progress::Progress,
};
use crate::table::counted;

/// By these owners may create namespaces, and only a policy keeps them to their prefix and its labels.
const CREATORS: ObjectKind = ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings");
/// Kinds of which the controller keeps objects in tenants' namespaces.
const KINDS: [ObjectKind; 4] = [
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("v1", "ResourceQuota", "resourcequotas"),
    ("v1", "LimitRange", "limitranges"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
];

/// Objects of a kind. Others may carry the same label, so the name counts, too.
async fn list(client: &Client, kind: ObjectKind) -> anyhow::Result<Vec<DynamicObject>> {
    let labelled = ListParams::default().labels(TENANT_LABEL);
    let found = parts::api(client, kind, None).list(&labelled).await;
    let found = found.with_context(|| format!("failed to list {}", kind.2))?.items;
    Ok(found.into_iter().filter(|object| object.name_any().starts_with(TENANT_OBJECT_PREFIX)).collect())
}

/// All of them, each with its namespace.
///
/// # Errors
/// If a kind can't be listed.
pub(super) async fn read(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for kind in KINDS.into_iter().chain([CREATORS]) {
        let objects = list(client, kind).await?;
        found.extend(
            objects.iter().map(|o| format!("{}/{}", o.namespace().unwrap_or_default(), o.name_any())),
        );
    }
    Ok(found)
}

/// Deletes the right of owners to create namespaces, before the policies that bound it. Tenants are gone by now, so no
/// controller gives it again.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_creators(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let count = delete_all(client, &[CREATORS]).await?;
    if count > 0 {
        progress
            .done("namespaces of owners", &format!("{} removed", counted(count, "ClusterRoleBinding")))?;
    }
    Ok(())
}

/// Deletes the others.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let count = delete_all(client, &KINDS).await?;
    if count > 0 {
        progress.done("objects in tenants' namespaces", &format!("{} removed", counted(count, "object")))?;
    }
    Ok(())
}

async fn delete_all(client: &Client, kinds: &[ObjectKind]) -> anyhow::Result<usize> {
    let mut count = 0;
    for kind in kinds.iter().copied() {
        for object in list(client, kind).await? {
            let api = parts::api(client, kind, object.namespace().as_deref());
            parts::delete(&api, kind.1, &object.name_any()).await?;
            count += 1;
        }
    }
    Ok(count)
}
