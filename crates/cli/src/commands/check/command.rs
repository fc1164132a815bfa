//! Arguments and steps of the command.

use std::{io::Write as _, process::ExitCode};

use clap::Args;
use croft_api::{CroftConfig, EC2NodeClass, Tenant, TenantPool};

use super::{
    cluster, configurations, limits, pod_security, policies, processes, readiness::ready, report::Report,
};
use crate::{
    failure::Failure,
    output::Output,
    source::ClusterArgs,
    table::{BAD, GOOD, counted},
};

/// Arguments of `croft check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Namespace that Croft is installed in
    #[arg(short, long, value_name = "NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    namespace: String,
}

/// Runs the command. The exit code is 1 if a check fails.
pub(crate) fn run(args: &CheckArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let CheckArgs { cluster, namespace } = args;
    let failed = cluster.run(async |client| {
        let mut report = Report::new(out);
        report.step("cluster", &[], async || cluster::api_server(&client).await).await?;
        report.step("crds", &["cluster"], async || cluster::crds(&client).await).await?;
        report.step("namespace", &["cluster"], async || cluster::namespace(&client, namespace).await).await?;
        report
            .step("webhook", &["namespace"], async || processes::webhook_replicas(&client, namespace).await)
            .await?;
        report.step("configurations", &["namespace"], async || configurations::check(&client).await).await?;
        report.step("policies", &["cluster"], async || policies::check(&client).await).await?;
        report
            .step("controller", &["namespace"], async || processes::leader(&client, namespace).await)
            .await?;
        report
            .step("classes", &["crds"], async || {
                ready::<EC2NodeClass>(&client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("config", &["crds"], async || {
                ready::<CroftConfig>(&client, |c| c.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("pools", &["crds"], async || {
                ready::<TenantPool>(&client, |p| p.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .step("tenants", &["crds"], async || {
                ready::<Tenant>(&client, |t| t.status.as_ref().map(|s| s.conditions.clone())).await
            })
            .await?;
        report
            .advise("pod security", &["crds"], async || pod_security::check(&client, namespace).await)
            .await?;
        report.advise("limits", &["crds"], async || limits::check(&client).await).await?;
        Ok(report.failures())
    })?;
    if failed == 0 {
        writeln!(out, "{GOOD}the installation is healthy{GOOD:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "{BAD}{} failed or could not run{BAD:#}", counted(failed, "check"))?;
    Ok(ExitCode::FAILURE)
}
