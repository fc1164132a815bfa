//! The AWS rights of the present credentials.

use kube::Client;

use super::Subject;
use crate::commands::check::report::Report;

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
        Err(why) => report.note("aws", why),
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
    use croft_cloud_aws::{Rights, Verdict, check_rights};

    use crate::{
        commands::check::report::fail,
        table::{counted, shortened},
    };

    let version = client.apiserver_version().await?;
    let minor: String = version.minor.chars().take_while(char::is_ascii_digit).collect();
    let whose = croft_cloud_aws::Subject {
        cluster_uid: crate::aws::cluster_uid(client).await?,
        cluster_name: subject.cluster_name.map(str::to_owned),
        kubernetes_version: format!("{}.{minor}", version.major),
        interruption_queue: subject.interruption_queue.map(str::to_owned),
    };
    let mut checked: Option<Rights> = None;
    report
        .step("aws", &[], async || match check_rights(&access, &whose).await {
            Ok(Some(rights)) => {
                let identity = &rights.identity;
                let text = format!("the credentials are those of {} in {}", identity.arn, identity.region);
                checked = Some(rights);
                Ok(text)
            }
            Ok(None) => Ok("not checked, since no region is set".to_owned()),
            Err(error) => fail(format!("{error}"), "give valid credentials and a region, or --skip-aws"),
        })
        .await?;
    let Some(Rights { identity: _, rights }) = checked else { return Ok(()) };
    report
        .step("aws rights", &["aws"], async || {
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
            if denied.is_empty() {
                return Ok(format!("{granted} of {} are granted, none is denied", rights.len()));
            }
            fail(
                format!("{} denied", if denied.len() == 1 { "1 right is".to_owned() } else { format!("{} rights are", denied.len()) }),
                format!(
                    "{}\nattach the policy of docs/aws-permissions.md (manifests/aws/iam-policy.json), and check with the \
                     credentials of the controller's role",
                    denied.join("\n")
                ),
            )
        })
        .await?;
    let unknown: Vec<String> = rights
        .iter()
        .filter_map(|right| match &right.verdict {
            Verdict::Unknown(why) => Some((why.clone(), right.action.clone())),
            _ => None,
        })
        .fold(std::collections::BTreeMap::<String, Vec<String>>::new(), |mut by, (why, action)| {
            by.entry(why).or_default().push(action);
            by
        })
        .into_iter()
        .map(|(why, actions)| format!("{}: {}", shortened(&actions, actions.len()), first_sentence(&why)))
        .collect();
    if !unknown.is_empty() {
        let count = rights.iter().filter(|right| matches!(right.verdict, Verdict::Unknown(_))).count();
        report.note(
            "aws rights",
            format!("{} can't be checked\n{}", counted(count, "right"), unknown.join("\n")),
        )?;
    }
    Ok(())
}

/// AWS's message without the encoded part, which only an administrator can decode.
#[cfg(feature = "aws")]
fn first_sentence(said: &str) -> &str {
    said.split(" Encoded authorization failure message").next().unwrap_or(said)
}
