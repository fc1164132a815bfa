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
        report::{Finding, Problem, Report, fail},
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
    report.step("cluster", &[], cluster::api_server(client)).await?;
    report.step("version", &["cluster"], features::version(client)).await?;
    report.step("policies", &["cluster"], features::policies(client, namespace)).await?;
    report.step("webhooks", &["cluster"], features::webhooks(client)).await?;
    report.step("crds", &["cluster"], features::crds(client)).await?;
    report.advise("features", &["cluster"], features::features(client)).await?;
    report.advise("earlier installation", &["cluster"], earlier(client)).await?;
    let mut input = None;
    report
        .step("objects", &["cluster"], async {
            let read = read_before_installation(client).await.map_err(|error| {
                Problem::fail(told(&error), "ask for the right to list them: ClusterRole view and nodes")
            })?;
            let text = format!("{} nodes, {} pods", read.nodes.len(), read.pods.len());
            input = Some(read);
            Ok(text)
        })
        .await?;
    if let Some(input) = input {
        report.step("room", &["objects"], room(&input, subject)).await?;
        let admission = node_agents::admission(&input);
        report
            .advise("node agents", &["objects"], async {
                node_agents::kept_off(&input, admission.as_ref().map_err(Clone::clone)?, namespace)
            })
            .await?;
        report
            .advise("untolerated taints", &["objects"], async {
                node_agents::untolerating(&input, admission.as_ref().map_err(Clone::clone)?)
            })
            .await?;
        report
            .advise("workloads", &["objects"], async {
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
    let crds = own_objects::crds(client).await.map_err(|error| {
        Problem::fail(told(&error), "ask for the right to read CustomResourceDefinitions")
    })?;
    let found: Vec<String> = crds.iter().map(ResourceExt::name_any).collect();
    if found.is_empty() {
        return Ok("none".to_owned());
    }
    fail(
        format!("there are CRDs of Croft already: {}", found.join(", ")),
        "if Croft runs here, see croft check and upgrade it; else an installation takes over what they hold \
         (kubectl get croft --all-namespaces)",
    )
}
