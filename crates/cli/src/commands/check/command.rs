//! Arguments and steps of the command.

use std::process::ExitCode;

use clap::Args;
use croft_api::{CroftConfig, EC2NodeClass, Tenant, TenantPool};
use kube::Client;

#[cfg(feature = "aws")]
use super::account;
use super::{
    cluster, configurations, enforcement, former_clusters, identity,
    installed::{Installed, Subject},
    karpenter, limits, mutation, network_policy, node_agents, orphans, placement, pod_security, policies,
    preflight::{self, features},
    prices, processes,
    readiness::ready,
    report::Report,
    reviews,
};
use crate::{
    aws::{Access, AwsArgs},
    failure::Failure,
    failure::said,
    output::{Format, Output},
    source::ClusterArgs,
};

/// Arguments of `croft check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Check whether Croft can be installed: version and features of Kubernetes, node agents, room for Croft's pods,
    /// and the AWS rights of the present credentials. Nothing is changed
    #[arg(long)]
    preflight: bool,
    #[command(flatten)]
    aws: AwsArgs,
    /// Name of the cluster at EKS. Default: the one that the controller has
    #[arg(long, value_name = "NAME")]
    cluster_name: Option<String>,
    /// Name or URL of the interruption queue. Default: the one that the controller has
    #[arg(long, value_name = "QUEUE")]
    interruption_queue: Option<String>,
    /// Format of the result
    #[arg(short, long, value_enum, default_value = "text")]
    output: Format,
}

/// Runs the command. The exit code is 1 if a check fails.
pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CheckArgs { cluster, preflight, aws, cluster_name, interruption_queue, output } = args;
    let code = cluster.run(async |client| {
        let mut report = Report::new(out, *output);
        let subject = Subject {
            namespace: cluster.croft_namespace(),
            aws,
            cluster_name: cluster_name.as_deref(),
            interruption_queue: interruption_queue.as_deref(),
        };
        if *preflight {
            preflight::check(&client, &subject, &mut report).await?;
            return report.finish("Croft can be installed");
        }
        check(&client, &subject, &mut report).await?;
        report.finish("the installation is healthy")
    })?;
    Ok(code)
}

async fn check(client: &Client, subject: &Subject<'_>, report: &mut Report<'_>) -> anyhow::Result<()> {
    let Subject { namespace, aws, .. } = *subject;
    report.step("cluster", &[], cluster::api_server(client)).await?;
    report.advise("version", &["cluster"], features::version(client)).await?;
    report.advise("features", &["cluster"], features::features(client)).await?;
    report.step("crds", &["cluster"], cluster::crds(client)).await?;
    report.step("namespace", &["cluster"], cluster::namespace(client, namespace)).await?;
    report.step("recorded cluster", &["namespace"], former_clusters::recorded(client, namespace)).await?;
    report.step("webhook", &["namespace"], processes::webhook_replicas(client, namespace)).await?;
    report.step("configurations", &["namespace"], configurations::check(client)).await?;
    report.step("policies", &["cluster"], policies::check(client)).await?;
    report.step("enforcement", &["cluster"], enforcement::check(client)).await?;
    report.step("mutation", &["crds", "namespace"], mutation::check(client, namespace)).await?;
    report.step("controller", &["namespace"], processes::leader(client, namespace)).await?;
    report.step("classes", &["crds"], ready::<EC2NodeClass>(client)).await?;
    report.step("config", &["crds"], ready::<CroftConfig>(client)).await?;
    report.step("pools", &["crds"], ready::<TenantPool>(client)).await?;
    report.step("tenants", &["crds"], ready::<Tenant>(client)).await?;
    report.step("karpenter", &["crds"], karpenter::check(client)).await?;
    around(client, subject, report).await?;
    report.step("instances", &["cluster"], orphans::check(client, namespace, aws)).await?;
    let former = former_clusters::former_instances(client, namespace, aws);
    report.step("former clusters", &["namespace"], former).await?;
    report.advise("pod security", &["crds"], pod_security::check(client, namespace)).await?;
    report.advise("limits", &["crds"], limits::check(client)).await?;
    report.advise("node agents", &["crds"], node_agents::of_cluster(client, namespace)).await
}

/// Checks the surroundings of the processes: their nodes, the way from the API server to the webhook, the account.
async fn around(client: &Client, subject: &Subject<'_>, report: &mut Report<'_>) -> anyhow::Result<()> {
    let namespace = subject.namespace;
    report.step("reviews", &["webhook", "configurations"], reviews::check(client, namespace)).await?;
    report.step("prices", &["crds"], prices::check(client)).await?;
    if report.has_failed("namespace") {
        return Ok(());
    }
    let installed = match Installed::read(client, namespace).await {
        Ok(installed) => installed,
        Err(error) => return report.note("installation", format!("not checked: {}", said(&error))),
    };
    report.step("placement", &[], async { placement::check(&installed) }).await?;
    report.step("network policy", &[], network_policy::check(client, namespace, &installed)).await?;
    let recorded = installed.recorded("region").map(str::to_owned);
    match subject.aws.access(recorded).await {
        Ok(access) => in_account(client, subject, installed, access, report).await,
        Err(why) => {
            report.note("aws", format!("not checked: {why}"))?;
            if installed.controller.is_none() {
                return Ok(());
            }
            let unasked = Err("of Pod Identity, since AWS isn't asked".to_owned());
            report.step("identity", &[], async { identity::check(&installed, namespace, &unasked) }).await
        }
    }
}

#[cfg(feature = "aws")]
async fn in_account(
    client: &Client,
    subject: &Subject<'_>,
    installed: Installed,
    access: Access,
    report: &mut Report<'_>,
) -> anyhow::Result<()> {
    let Subject { namespace, cluster_name, interruption_queue, .. } = *subject;
    let read = account::Subject::read(client, namespace, installed, cluster_name, interruption_queue).await?;
    account::check(&access, &read, true, report).await
}

#[cfg(not(feature = "aws"))]
#[expect(clippy::unused_async, reason = "the same signature as with AWS")]
async fn in_account(
    _: &Client,
    _: &Subject<'_>,
    _: Installed,
    access: Access,
    _: &mut Report<'_>,
) -> anyhow::Result<()> {
    match access {}
}
