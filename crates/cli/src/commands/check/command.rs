//! Arguments and steps of the command.

use std::process::ExitCode;

use clap::Args;
use croft_api::{CroftConfig, EC2NodeClass, Tenant, TenantPool};
use kube::Client;

use super::{
    cluster, configurations, identity, limits, orphans, pod_security, policies, preflight, processes,
    readiness::ready, report::Report,
};
use crate::{
    aws::AwsArgs,
    failure::Failure,
    output::{Format, Output},
    source::ClusterArgs,
};

/// Arguments of `croft check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Namespace that Croft is installed in
    #[arg(short, long, value_name = "NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    namespace: String,
    /// Check whether Croft can be installed: version and features of Kubernetes, node agents, room for Croft's pods,
    /// and the AWS rights of the present credentials. Nothing is changed
    #[arg(long)]
    preflight: bool,
    #[command(flatten)]
    aws: AwsArgs,
    /// Name of the cluster at EKS, for --preflight
    #[arg(long, value_name = "NAME", requires = "preflight")]
    cluster_name: Option<String>,
    /// Name or URL of the interruption queue, for --preflight
    #[arg(long, value_name = "QUEUE", requires = "preflight")]
    interruption_queue: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// Runs the command. The exit code is 1 if a check fails.
pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CheckArgs { cluster, namespace, preflight, aws, cluster_name, interruption_queue, output } = args;
    let code = cluster.run(async |client| {
        let mut report = Report::new(out, *output);
        if *preflight {
            let subject = preflight::Subject {
                namespace,
                aws,
                cluster_name: cluster_name.as_deref(),
                interruption_queue: interruption_queue.as_deref(),
            };
            preflight::check(&client, &subject, &mut report).await?;
            return report.finish("Croft can be installed");
        }
        check(&client, namespace, aws, &mut report).await?;
        report.finish("the installation is healthy")
    })?;
    Ok(code)
}

async fn check(
    client: &Client,
    namespace: &str,
    aws: &AwsArgs,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    report.step("cluster", &[], async || cluster::api_server(client).await).await?;
    report.step("crds", &["cluster"], async || cluster::crds(client).await).await?;
    report.step("namespace", &["cluster"], async || cluster::namespace(client, namespace).await).await?;
    report.step("identity", &["namespace"], async || identity::recorded(client, namespace).await).await?;
    report
        .step("webhook", &["namespace"], async || processes::webhook_replicas(client, namespace).await)
        .await?;
    report.step("configurations", &["namespace"], async || configurations::check(client).await).await?;
    report.step("policies", &["cluster"], async || policies::check(client).await).await?;
    report.step("controller", &["namespace"], async || processes::leader(client, namespace).await).await?;
    report
        .step("classes", &["crds"], async || {
            ready::<EC2NodeClass>(client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
        })
        .await?;
    report
        .step("config", &["crds"], async || {
            ready::<CroftConfig>(client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
        })
        .await?;
    report
        .step("pools", &["crds"], async || {
            ready::<TenantPool>(client, |p| p.status.as_ref().map(|s| s.conditions.clone())).await
        })
        .await?;
    report
        .step("tenants", &["crds"], async || {
            ready::<Tenant>(client, |t| t.status.as_ref().map(|s| s.conditions.clone())).await
        })
        .await?;
    report.step("instances", &["cluster"], async || orphans::check(client, namespace, aws).await).await?;
    let former = async || identity::former_instances(client, namespace, aws).await;
    report.step("former clusters", &["namespace"], former).await?;
    report.advise("pod security", &["crds"], async || pod_security::check(client, namespace).await).await?;
    report.advise("limits", &["crds"], async || limits::check(client).await).await
}
