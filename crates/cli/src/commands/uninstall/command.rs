//! Arguments of the command, and its steps in order.

use std::{io::Write as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Args;
use croft_runtime::clock::{Clock as _, SystemClock};
use kube::Client;

use super::{declared, drain, found::Found, keep, metadata, parts, plan, progress::Progress, tenant_objects};
use crate::{
    aws::AwsArgs,
    failure::Failure,
    output::Output,
    source::ClusterArgs,
    table::{BAD, GOOD, NOTE},
};

/// Arguments of `croft uninstall`.
#[derive(Args, Clone, Debug)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Remove it; without this the plan is printed and nothing is changed
    #[arg(long)]
    yes: bool,
    /// Hand the instances over instead of draining and terminating them: nodes and pods stay as they are, and the
    /// instances are yours to pay for and to terminate
    #[arg(long)]
    keep_instances: bool,
    /// Remove the CRDs too, once none of Croft's objects is left
    #[arg(long)]
    crds: bool,
    /// Time to wait for nodes to be drained and terminated, such as 30m
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30m")]
    timeout: Duration,
    #[command(flatten)]
    aws: AwsArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    match croft_api::duration::parse(text) {
        Ok(Some(duration)) => Ok(duration),
        Ok(None) => Err("write how long, such as 30m".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Runs the command. The exit code is 1 if it refuses, or stops before the end.
pub(crate) fn run(args: &UninstallArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let code = args.cluster.run(async |client| uninstall(&client, args, out).await)?;
    Ok(code)
}

async fn uninstall(client: &Client, args: &UninstallArgs, out: &mut Output) -> anyhow::Result<ExitCode> {
    let UninstallArgs { cluster, yes, keep_instances, crds, timeout, aws } = args;
    let namespace = cluster.croft_namespace();
    let found = Found::read(client, namespace, aws).await?;
    if found.is_nothing(*crds) {
        writeln!(out, "nothing of Croft is left that this command removes")?;
        write_remaining(&found, *crds, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    plan::write(&found, *keep_instances, *crds, out)?;
    out.flush()?;
    if let Some(refusal) = plan::refusal(&found, *keep_instances) {
        writeln!(out, "{BAD}refused:{BAD:#} {refusal}")?;
        return Ok(ExitCode::FAILURE);
    }
    if !yes {
        writeln!(
            out,
            "{NOTE}nothing was changed{NOTE:#}; to remove Croft: croft uninstall --yes, with the same options"
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let deadline = SystemClock.monotonic() + *timeout;
    let mut progress = Progress::new(out, deadline);
    if *keep_instances {
        keep::release(client, &found, &mut progress).await?;
    } else if let Some(left) = drain::drain(client, &found, aws, &mut progress).await? {
        writeln!(out, "{BAD}stopped:{BAD:#} {left}")?;
        return Ok(ExitCode::FAILURE);
    }
    tenant_objects::delete_creators(client, &mut progress).await?;
    declared::delete_settings(client, &mut progress).await?;
    parts::delete_enforcement(client, &mut progress).await?;
    tenant_objects::delete(client, &mut progress).await?;
    metadata::clean_namespaces(client, namespace, &mut progress).await?;
    if !keep_instances {
        metadata::restore_daemonsets(client, &mut progress).await?;
    }
    parts::delete_processes(client, namespace, &mut progress).await?;
    metadata::clean_own_namespace(client, namespace, &mut progress).await?;
    if *crds {
        declared::delete_crds(client, &mut progress).await?;
    }
    let left = Found::read(client, namespace, aws).await.context("failed to see what is left")?;
    writeln!(out, "{GOOD}Croft is removed{GOOD:#}")?;
    write_remaining(&left, *crds, out)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the remainder, with the command that removes each part.
fn write_remaining(found: &Found, crds: bool, out: &mut Output) -> anyhow::Result<()> {
    for line in plan::remaining(found, crds) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
