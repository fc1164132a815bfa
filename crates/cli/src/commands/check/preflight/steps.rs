//! The steps of the preflight check, in order.

use croft_manifest::Input;
use kube::{Client, ResourceExt};

use super::{features, rights, room};
use crate::{
    cluster_reader::read_before_installation,
    commands::check::{
        cluster,
        installed::Subject,
        node_agents,
        report::{Finding, Report, fail},
    },
    failure::told,
    own_objects,
};

/// Runs every step.
///
/// # Errors
/// If the report can't be written.
pub(in crate::commands::check) async fn check(
    client: &Client,
    subject: &Subject<'_>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let Subject { namespace, .. } = subject;
    report.step("cluster", &[], async || cluster::api_server(client).await).await?;
    report.step("version", &["cluster"], async || features::version(client).await).await?;
    report.step("policies", &["cluster"], async || features::policies(client, namespace).await).await?;
    report.step("webhooks", &["cluster"], async || features::webhooks(client).await).await?;
    report.step("crds", &["cluster"], async || features::crds(client).await).await?;
    report.advise("features", &["cluster"], async || features::features(client).await).await?;
    report.advise("earlier installation", &["cluster"], async || earlier(client).await).await?;
    let mut input = None;
    report
        .step("objects", &["cluster"], async || match read_before_installation(client).await {
            Ok(read) => {
                let text = format!("{} nodes, {} pods", read.nodes.len(), read.pods.len());
                input = Some(read);
                Ok(text)
            }
            Err(error) => fail(told(&error), "ask for the right to list them: ClusterRole view and nodes"),
        })
        .await?;
    if let Some(input) = input {
        report.step("room", &["objects"], async || room(&input, subject).await).await?;
        let admission = node_agents::admission(&input);
        report
            .advise("node agents", &["objects"], async || {
                node_agents::kept_off(&input, admission.as_ref().map_err(Clone::clone)?, namespace)
            })
            .await?;
        report
            .advise("untolerated taints", &["objects"], async || {
                node_agents::untolerating(&input, admission.as_ref().map_err(Clone::clone)?)
            })
            .await?;
        report
            .advise("workloads", &["objects"], async || {
                node_agents::workloads(&input, admission.as_ref().map_err(Clone::clone)?, namespace)
            })
            .await?;
    }
    rights::check(client, subject, report).await
}

#[cfg(feature = "aws")]
async fn room(input: &Input, subject: &Subject<'_>) -> Finding {
    match room::check(input, subject.namespace) {
        Err(failed) => super::fargate::instead(failed, subject).await,
        fits => fits,
    }
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with AWS")]
async fn room(input: &Input, subject: &Subject<'_>) -> Finding {
    room::check(input, subject.namespace)
}

/// There is no earlier installation, whose objects this one would take over.
async fn earlier(client: &Client) -> Finding {
    let found: Vec<String> = match own_objects::crds(client).await {
        Ok(crds) => crds.iter().map(ResourceExt::name_any).collect(),
        Err(error) => {
            return fail(told(&error), "ask for the right to read CustomResourceDefinitions");
        }
    };
    if found.is_empty() {
        return Ok("none".to_owned());
    }
    fail(
        format!("there are CRDs of Croft already: {}", found.join(", ")),
        "if Croft runs here, see croft check and upgrade it; else an installation takes over what they hold \
         (kubectl get croft --all-namespaces)",
    )
}
