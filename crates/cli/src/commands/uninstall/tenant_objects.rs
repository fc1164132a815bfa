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

/// Kinds of which the controller keeps objects there.
const KINDS: [ObjectKind; 5] = [
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("v1", "ResourceQuota", "resourcequotas"),
    ("v1", "LimitRange", "limitranges"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings"),
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
    for kind in KINDS {
        let objects = list(client, kind).await?;
        found.extend(
            objects.iter().map(|o| format!("{}/{}", o.namespace().unwrap_or_default(), o.name_any())),
        );
    }
    Ok(found)
}

/// Deletes all of them. Tenants are gone by now, so no controller creates them again.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let mut count = 0;
    for kind in KINDS {
        for object in list(client, kind).await? {
            let api = parts::api(client, kind, object.namespace().as_deref());
            parts::delete(&api, kind.1, &object.name_any()).await?;
            count += 1;
        }
    }
    if count > 0 {
        progress.done("objects in tenants' namespaces", &format!("{} removed", counted(count, "object")))?;
    }
    Ok(())
}
