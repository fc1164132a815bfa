//! `croft break-glass`: stops enforcement while Croft itself keeps pods from starting, and starts it again.
//!
//! The switch is a ClusterRoleBinding that grants the verb `break-glass` to a ServiceAccount that doesn't exist. While it
//! holds the verb, the admission policies admit what they would deny, and those of Policy mode change nothing. So the right
//! to create ClusterRoleBindings is the right to stop enforcement, and applying the manifests again doesn't start it. The
//! webhook is scaled down and its configurations are emptied; it fills them when it runs again.

use std::{collections::BTreeMap, io::Write as _, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use croft_policy::policies::BREAK_GLASS_SUBJECT;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::Deployment,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{failure::Failure, output::Output, source::ClusterArgs};

/// Arguments of `croft break-glass`.
#[derive(Args, Clone, Debug)]
pub struct BreakGlassArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// on stops enforcement, off starts it again
    #[arg(value_enum)]
    switch: Switch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    /// Stop enforcement
    On,
    /// Start it again
    Off,
}

/// Name of the binding and of its ClusterRole in manifests/install.
const NAME: &str = "croft-break-glass";
/// Name of the webhook's Deployment and configurations.
const WEBHOOK: &str = "croft-webhook";
/// Annotation of the Deployment: its replicas before.
const REPLICAS: &str = "croft.dev/replicas-before-break-glass";
/// A webhook that shuts down may write its configurations once more within this time.
const SETTLES: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_secs(1);

/// Runs the command.
pub(crate) fn run(args: &BreakGlassArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let BreakGlassArgs { cluster, switch } = args;
    let namespace = cluster.croft_namespace();
    cluster.run(async |client| match switch {
        Switch::On => stop_enforcement(&client, namespace, out).await,
        Switch::Off => start_enforcement(&client, namespace, out).await,
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn stop_enforcement(client: &Client, namespace: &str, out: &mut Output) -> anyhow::Result<()> {
    let (subject_namespace, subject) = BREAK_GLASS_SUBJECT;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": NAME, "labels": {"app.kubernetes.io/part-of": "croft"}},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "namespace": subject_namespace, "name": subject}],
    }))?;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    // An error is no answer: whoever may create the binding need not be able to read roles.
    if let Ok(None) = roles.get_opt(NAME).await {
        bail!(
            "nothing was changed: there is no ClusterRole {NAME}, so that Croft isn't installed in this cluster; choose another one by --context"
        );
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    match bindings.create(&PostParams::default(), &binding).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => {
            return Err(error).with_context(|| format!("failed to create the ClusterRoleBinding {NAME}"));
        }
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    if let Some(webhook) = webhook(&deployments, namespace, out).await? {
        let replicas = webhook.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        if replicas > 0 {
            let patch = json!({
                "metadata": {"annotations": {REPLICAS: replicas.to_string()}}, "spec": {"replicas": 0},
            });
            deployments
                .patch(WEBHOOK, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("failed to scale the Deployment {namespace}/{WEBHOOK} down"))?;
        }
    }
    let mut quiet = Duration::ZERO;
    while quiet < SETTLES {
        quiet = if clear_configurations(client).await? { Duration::ZERO } else { quiet + POLL };
        tokio::time::sleep(POLL).await;
    }
    writeln!(
        out,
        "enforcement is stopped: pods of tenants are created as they are written, and any pod may tolerate a pool's taint or name its \
         node\nwhat still holds: pools' taints and labels, what kubelets may write on their nodes, who may move a namespace, and \
         the annotations that Croft alone writes\nstart it again: croft break-glass off; then see croft audit for what was created \
         meanwhile\na GitOps tool that scales {namespace}/{WEBHOOK} up again starts enforcement by webhook: pause it"
    )?;
    Ok(())
}

/// The webhook's Deployment. Without it there is nothing to scale, which may be a mistake: a webhook in another namespace goes on.
async fn webhook(
    deployments: &Api<Deployment>,
    namespace: &str,
    out: &mut Output,
) -> anyhow::Result<Option<Deployment>> {
    let found = deployments.get_opt(WEBHOOK).await;
    let found = found.with_context(|| format!("failed to read the Deployment {namespace}/{WEBHOOK}"))?;
    if found.is_none() {
        out.warn(&[format!(
            "there is no Deployment {namespace}/{WEBHOOK} to scale: if Croft is installed in another namespace, name it by --croft-namespace"
        )])?;
    }
    Ok(found)
}

/// Empties the webhook configurations. Returns true if one had webhooks.
async fn clear_configurations(client: &Client) -> anyhow::Result<bool> {
    let nothing = Patch::Merge(json!({"webhooks": null}));
    let params = PatchParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mut emptied = false;
    if mutating.get_opt(WEBHOOK).await?.is_some_and(|c| c.webhooks.is_some_and(|w| !w.is_empty())) {
        mutating.patch(WEBHOOK, &params, &nothing).await.context("failed to empty the mutating webhooks")?;
        emptied = true;
    }
    if validating.get_opt(WEBHOOK).await?.is_some_and(|c| c.webhooks.is_some_and(|w| !w.is_empty())) {
        validating
            .patch(WEBHOOK, &params, &nothing)
            .await
            .context("failed to empty the validating webhooks")?;
        emptied = true;
    }
    Ok(emptied)
}

async fn start_enforcement(client: &Client, namespace: &str, out: &mut Output) -> anyhow::Result<()> {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    match bindings.delete(NAME, &DeleteParams::default()).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => {
            return Err(error).with_context(|| format!("failed to delete the ClusterRoleBinding {NAME}"));
        }
    }
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    if let Some(webhook) = webhook(&deployments, namespace, out).await? {
        let annotations: BTreeMap<String, String> = webhook.annotations().clone();
        if let Some(replicas) = annotations.get(REPLICAS).and_then(|text| text.parse::<i32>().ok()) {
            let patch =
                json!({"metadata": {"annotations": {REPLICAS: null}}, "spec": {"replicas": replicas}});
            deployments
                .patch(WEBHOOK, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .with_context(|| format!("failed to scale the Deployment {namespace}/{WEBHOOK} up"))?;
        }
    }
    writeln!(
        out,
        "the policies enforce again, and pods of tenants wait until the webhook is ready\nsee what was created meanwhile: croft audit"
    )?;
    Ok(())
}
