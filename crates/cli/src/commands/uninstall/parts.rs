//! Policies, webhook configurations, processes and rights: every object that carries Croft's label.

use std::time::Duration;

use anyhow::Context as _;
use croft_policy::definitions::REPLICA_LABEL;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, ListParams},
    discovery::ApiResource,
};

use super::progress::Progress;
use crate::{own_objects::unless_absent, table::counted};

/// The label of every object of the manifests.
const LABEL: &str = "app.kubernetes.io/part-of=croft";
/// The annotations by which Helm knows its objects.
const RELEASE: [&str; 2] = ["meta.helm.sh/release-name", "meta.helm.sh/release-namespace"];
/// Leases of the processes, besides one for each replica of the webhook.
const LEASES: [&str; 2] = ["croft-controller", "croft-webhook-certificate"];

/// API version, kind and plural.
pub(super) type ObjectKind = (&'static str, &'static str, &'static str);

/// Kinds by which requests are refused. They are removed before those that change pods: in between, each new pod of a tenant would be
/// refused for lack of its pool, and its ReplicaSet would wait for up to 16 minutes after the last of many refusals.
const REFUSING: [ObjectKind; 3] = [
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    (
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
];
/// Kinds by which pods are changed.
const CHANGING: [ObjectKind; 3] = [
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
];
/// API servers look once a second which policies there are.
const POLICIES_SETTLE: Duration = Duration::from_secs(3);
/// Kinds in Croft's namespace, in the order of their removal.
const IN_NAMESPACE: [ObjectKind; 10] = [
    ("apps/v1", "Deployment", "deployments"),
    ("v1", "Service", "services"),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    ("rbac.authorization.k8s.io/v1", "Role", "roles"),
    ("v1", "ServiceAccount", "serviceaccounts"),
    ("v1", "Secret", "secrets"),
    ("v1", "ConfigMap", "configmaps"),
    ("coordination.k8s.io/v1", "Lease", "leases"),
];
/// Rights in the whole cluster.
const RIGHTS: [ObjectKind; 2] = [
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
];

/// An object of the installation.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) kind: &'static str,
    /// Name and namespace of the Helm release that owns it.
    pub(super) helm: Option<(String, String)>,
    /// It refuses or changes requests.
    pub(super) enforces: bool,
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// The API of a kind, in one namespace or in all.
pub(super) fn api(
    client: &Client,
    (version, kind, plural): ObjectKind,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = resource(version, kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Croft's objects of a kind. Others may carry the same label, so the name counts, too.
async fn list(
    client: &Client,
    kind: ObjectKind,
    namespace: Option<&str>,
) -> anyhow::Result<Vec<DynamicObject>> {
    let api = api(client, kind, namespace);
    let failed = || format!("failed to list {}", kind.2);
    if kind.1 == "Lease" {
        let all = api.list(&ListParams::default()).await.with_context(failed)?.items;
        let own = |lease: &DynamicObject| {
            LEASES.contains(&lease.name_any().as_str()) || lease.labels().contains_key(REPLICA_LABEL)
        };
        return Ok(all.into_iter().filter(own).collect());
    }
    // Mutating policies are served since Kubernetes 1.36.
    let found = unless_absent(api.list(&ListParams::default().labels(LABEL)).await).with_context(failed)?;
    Ok(found.into_iter().flatten().filter(|object| object.name_any().starts_with("croft-")).collect())
}

fn release(object: &DynamicObject) -> Option<(String, String)> {
    let [name, namespace] = RELEASE.map(|key| object.annotations().get(key).cloned());
    Some((name?, namespace.unwrap_or_default()))
}

/// Every part that is there. `namespace` is Croft's own.
///
/// # Errors
/// If a kind can't be listed.
pub(super) async fn read(client: &Client, namespace: &str) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    let all = REFUSING
        .iter()
        .chain(&CHANGING)
        .map(|kind| (*kind, None, true))
        .chain(IN_NAMESPACE.iter().map(|kind| (*kind, Some(namespace), false)))
        .chain(RIGHTS.iter().map(|kind| (*kind, None, false)));
    for (kind, namespace, enforces) in all {
        for object in list(client, kind, namespace).await? {
            // Leases are written by the processes: while these run, they aren't left over.
            let helm = release(&object);
            parts.push(Part { kind: kind.1, helm, enforces });
        }
    }
    let helm = parts.iter().find(|part| part.kind == "Deployment").and_then(|part| part.helm.clone());
    for part in parts.iter_mut().filter(|part| part.kind == "Lease") {
        part.helm.clone_from(&helm);
    }
    Ok(parts)
}

/// Deletes policies and webhook configurations, also those of a Helm release: Helm takes what is gone for deleted.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_enforcement(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let mut count = delete_all(client, REFUSING).await?;
    if count > 0 {
        tokio::time::sleep(POLICIES_SETTLE).await;
    }
    count += delete_all(client, CHANGING).await?;
    progress.done("enforcement", &format!("{} and policies removed", counted(count, "webhook configuration")))
}

async fn delete_all(client: &Client, kinds: [ObjectKind; 3]) -> anyhow::Result<usize> {
    let mut count = 0;
    for kind in kinds {
        for object in list(client, kind, None).await? {
            delete(&api(client, kind, None), kind.1, &object.name_any()).await?;
            count += 1;
        }
    }
    Ok(count)
}

/// Deletes the processes and their rights, but for what a Helm release owns.
///
/// # Errors
/// If one can't be deleted.
pub(super) async fn delete_processes(
    client: &Client,
    namespace: &str,
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    // Deployments come first, and Leases are written by what they run.
    let (mut count, mut is_helms) = (0, false);
    for (kind, within) in
        IN_NAMESPACE.map(|kind| (kind, Some(namespace))).into_iter().chain(RIGHTS.map(|kind| (kind, None)))
    {
        for object in list(client, kind, within).await? {
            let owned = release(&object).is_some();
            is_helms |= owned && kind.1 == "Deployment";
            if owned || (is_helms && kind.1 == "Lease") {
                continue;
            }
            delete(&api(client, kind, within), kind.1, &object.name_any()).await?;
            count += 1;
        }
    }
    progress.done("processes and rights", &format!("{} removed", counted(count, "object")))
}

/// Deletes an object, if it is there.
///
/// # Errors
/// If it can't be deleted.
pub(super) async fn delete(api: &Api<DynamicObject>, kind: &str, name: &str) -> anyhow::Result<()> {
    unless_absent(api.delete(name, &DeleteParams::background()).await)
        .with_context(|| format!("failed to delete the {kind} {name}"))?;
    Ok(())
}
