//! The AWS rights of the present credentials.

#[cfg(feature = "aws")]
use std::collections::BTreeMap;

#[cfg(feature = "aws")]
use croft_cloud_aws::{Right, Verdict};
use kube::Client;

use crate::commands::check::{installed::Subject, report::Report};
#[cfg(feature = "aws")]
use crate::{
    commands::check::{
        account,
        installed::Installed,
        report::{Finding, Problem, fail},
    },
    table::counted,
};

/// Checks each right of docs/aws-permissions.md, unless AWS isn't to be asked.
///
/// # Errors
/// If the report can't be written.
pub(super) async fn check(
    client: &Client,
    subject: &Subject<'_>,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    match subject.aws.access(None).await {
        Ok(access) => ask(client, subject, access, report).await,
        Err(why) => report.note("aws", format!("not checked: {why}")),
    }
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with AWS")]
async fn ask(
    _: &Client,
    _: &Subject<'_>,
    access: crate::aws::Access,
    _: &mut Report<'_>,
) -> anyhow::Result<()> {
    match access {}
}

#[cfg(feature = "aws")]
async fn ask(
    client: &Client,
    subject: &Subject<'_>,
    access: crate::aws::Access,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    use croft_cloud_aws::{Rights, check_rights};

    let whose = croft_cloud_aws::Subject {
        cluster_uid: crate::aws::cluster_uid(client).await?,
        cluster_name: subject.cluster_name.map(str::to_owned),
        kubernetes_version: croft_runtime::kubernetes::release(client).await?.to_string(),
        interruption_queue: subject.interruption_queue.map(str::to_owned),
    };
    let mut checked: Option<Rights> = None;
    report
        .step("aws", &[], async {
            let rights = check_rights(&access, &whose).await.map_err(|error| {
                Problem::fail(error.to_string(), "give valid credentials and a region, or --skip-aws")
            })?;
            let Some(rights) = rights else { return Ok("not checked: no region is set".to_owned()) };
            let identity = &rights.identity;
            let text = format!("the credentials are those of {} in {}", identity.arn, identity.region);
            checked = Some(rights);
            Ok(text)
        })
        .await?;
    let Some(Rights { identity: _, rights }) = checked else { return Ok(()) };
    report.step("aws rights", &["aws"], async { verdict(&rights) }).await?;
    if let Some(text) = unknown(&rights) {
        report.note("aws rights", text)?;
    }
    // The stack's resources, before Croft is there to use them.
    let installed = Installed::read(client, subject.namespace).await?;
    let Subject { namespace, cluster_name, interruption_queue, .. } = *subject;
    let around =
        account::Subject::read(client, namespace, installed, cluster_name, interruption_queue).await?;
    account::check(&access, &around, false, report).await
}

/// No right is denied.
#[cfg(feature = "aws")]
fn verdict(rights: &[Right]) -> Finding {
    let denied: Vec<String> = rights
        .iter()
        .filter_map(|right| match &right.verdict {
            Verdict::Denied(said) => {
                Some(format!("{} ({}): {}", right.action, right.purpose, first_sentence(said)))
            }
            _ => None,
        })
        .collect();
    let granted = rights.iter().filter(|right| right.verdict == Verdict::Granted).count();
    let what = match denied.len() {
        0 => return Ok(format!("{granted} of {} are granted, none is denied", rights.len())),
        1 => "1 right is denied".to_owned(),
        count => format!("{count} rights are denied"),
    };
    fail(
        what,
        format!(
            "{}\nattach the policy of docs/aws-permissions.md (manifests/aws/iam-policy.json), and check with the credentials of \
             the controller's role",
            denied.join("\n")
        ),
    )
}

/// The rights that can't be checked, by the reason.
#[cfg(feature = "aws")]
fn unknown(rights: &[Right]) -> Option<String> {
    let mut actions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for right in rights {
        if let Verdict::Unknown(why) = &right.verdict {
            actions.entry(why).or_default().push(&right.action);
        }
    }
    let count: usize = actions.values().map(Vec::len).sum();
    let lines: Vec<String> = actions
        .into_iter()
        .map(|(why, actions)| format!("{}: {}", actions.join(", "), first_sentence(why)))
        .collect();
    (count > 0).then(|| format!("{} can't be checked\n{}", counted(count, "right"), lines.join("\n")))
}

/// AWS's message without the encoded part, which only an administrator can decode.
#[cfg(feature = "aws")]
fn first_sentence(said: &str) -> &str {
    said.split(" Encoded authorization failure message").next().unwrap_or(said)
}
