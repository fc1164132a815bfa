//! Croft's writes on objects of others: labels and annotations of namespaces, templates of DaemonSets.

use std::time::Duration;

use anyhow::Context as _;
use croft_inspect::admission::{Admission, Outcome};
use croft_manifest::{Input, Origin};
use croft_policy::{
    definitions::{IDENTITY_PREFIX, INJECTED_ANNOTATION, TENANCY_LABEL, parameter::PREFIX},
    policies::pod_security,
};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Namespace};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Map, Value, json};

use super::{progress::Progress, refused};
use crate::{cluster_reader::list_all, commands::check::leader_of, own_objects::is_absent, table::counted};

/// API servers enforce a deleted policy for a moment longer.
const LINGERS: u32 = 60;

/// Croft's annotations of a Namespace.
fn is_own(annotation: &str) -> bool {
    annotation.starts_with(PREFIX) || annotation.starts_with(IDENTITY_PREFIX)
}

/// True if a Namespace has a label or an annotation that Croft wrote.
pub(super) fn is_marked(namespace: &Namespace) -> bool {
    namespace.labels().contains_key(TENANCY_LABEL) || namespace.annotations().keys().any(|key| is_own(key))
}

/// Removes what Croft wrote on every namespace but its own, which a running controller would write again. Pods that were refused
/// there are created.
///
/// # Errors
/// If a Namespace can't be written.
pub(super) async fn clean_namespaces(
    client: &Client,
    own: &str,
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    let mut count = 0;
    for namespace in list_all::<Namespace>(client).await? {
        if namespace.name_any() != own && is_marked(&namespace) {
            refused::retry(client, &namespace.name_any()).await?;
            clean(client, &namespace).await?;
            count += 1;
        }
    }
    progress
        .done("namespaces", &format!("{} without Croft's label and annotations", counted(count, "namespace")))
}

/// Removes the parameters from Croft's own Namespace, unless a controller of a Helm release still writes them.
///
/// # Errors
/// If the Namespace can't be written.
pub(super) async fn clean_own_namespace(
    client: &Client,
    own: &str,
    progress: &mut Progress<'_>,
) -> anyhow::Result<()> {
    if leader_of(client, own).await?.is_some() {
        return progress.done(
            "own namespace",
            "kept as it is while a controller runs: run the command again after helm uninstall",
        );
    }
    let api: Api<Namespace> = Api::all(client.clone());
    match api.get_opt(own).await? {
        Some(namespace) if is_marked(&namespace) => clean(client, &namespace).await?,
        _ => {}
    }
    progress.done("own namespace", &format!("{own} is kept, without the policies' parameters"))
}

async fn clean(client: &Client, namespace: &Namespace) -> anyhow::Result<()> {
    let name = namespace.name_any();
    let annotations: Map<String, Value> = namespace
        .annotations()
        .keys()
        .filter(|key| is_own(key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    // Pod Security goes back to what people had set.
    let (labels, annotated) = (namespace.labels(), namespace.annotations());
    let (mut labels, _) = pod_security::changes(
        [None; 3],
        |key| labels.get(key).map(String::as_str),
        |key| annotated.get(key).map(String::as_str),
    );
    labels.insert(TENANCY_LABEL.to_owned(), None);
    let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
    let api: Api<Namespace> = Api::all(client.clone());
    let mut attempts = 0;
    loop {
        let failed = || format!("failed to remove Croft's metadata from the Namespace {name}");
        match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(left) if !is_marked(&left) => return Ok(()),
            Err(error) if is_absent(&error) => return Ok(()),
            // An API server that doesn't know yet that this has ended puts it back.
            Ok(_) if attempts < LINGERS => {}
            Ok(_) => anyhow::bail!(
                "{}: it is put back by a webhook or a policy of Croft; run the command again",
                failed()
            ),
            Err(kube::Error::Api(status)) if status.is_forbidden() && attempts < LINGERS => {}
            Err(error) => return Err(error).with_context(failed),
        }
        attempts += 1;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Takes out of DaemonSets what Croft injected, as admission does in a cluster without tenants.
///
/// # Errors
/// If a DaemonSet can't be read or written.
pub(super) async fn restore_daemonsets(client: &Client, progress: &mut Progress<'_>) -> anyhow::Result<()> {
    let mut input = Input::default();
    let origin = Origin { file: "cluster".into(), line: 0 };
    for namespace in list_all::<Namespace>(client).await? {
        input.namespaces.put(namespace, origin.clone());
    }
    let admission = Admission::new(&input).context("failed to evaluate admission without tenants")?;
    let mut count = 0;
    for set in list_all::<DaemonSet>(client).await? {
        let template = set.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref());
        let is_injected = template
            .is_some_and(|t| t.annotations.iter().flatten().any(|(key, _)| key == INJECTED_ANNOTATION));
        if !is_injected {
            continue;
        }
        if let Outcome::Changed(restored) = admission.daemon_set(&set).outcome {
            let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
            Api::<DaemonSet>::namespaced(client.clone(), &namespace)
                .replace(&name, &PostParams::default(), &restored)
                .await
                .with_context(|| {
                    format!("failed to restore the DaemonSet {namespace}/{name}; run the command again")
                })?;
            count += 1;
        }
    }
    progress.done("DaemonSets", &format!("{count} restored to what their owners wrote"))
}
