//! Arguments and steps of the command.

use std::{io::Write as _, process::ExitCode};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use croft_api::{CroftConfig, config::SINGLETON};
use croft_manifest::to_yaml;
use croft_record::SNAPSHOT_REQUESTED;
use croft_runtime::{
    build::Build,
    clock::{Clock as _, SystemClock},
};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{objects, records};
use crate::{
    cluster_reader::read,
    failure::Failure,
    output::Output,
    own_objects::is_absent,
    record::{Period, RecordArgs},
    source::ClusterArgs,
};

/// Arguments of `croft debug`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DebugArgs {
    #[command(subcommand)]
    command: DebugCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum DebugCommand {
    /// Write a snapshot of the cluster, which croft simulate reads: with -f alone, or with --record to try out changes
    ///
    /// It has pods, workloads, nodes, namespaces, storage and Croft's objects, and of these what decides a place: no Secret, no
    /// ConfigMap, no environment, command or argument of a container, no content of a volume, no user data, and no
    /// annotation but Croft's own and those that decide something. Names, labels and images are in it. Also events of
    /// Croft's objects, Leases, versions, and the metrics of Croft's processes.
    Dump(DumpArgs),
    /// Let the record have a snapshot of the cluster now, beside those of every ten minutes: simulate --at and the page show it
    ///
    /// An annotation of the CroftConfig asks for it; a cluster without one gets none.
    Snapshot(SnapshotArgs),
    /// Write the decision log to standard output: a gzip file of JSON lines that explain --record and history --record read
    Record(LogArgs),
}

#[derive(Args, Clone, Debug)]
struct LogArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    record: RecordArgs,
}

#[derive(Args, Clone, Debug)]
struct SnapshotArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Args, Clone, Debug)]
struct DumpArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Runs the command.
pub(crate) fn run(args: &DebugArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    match &args.command {
        DebugCommand::Dump(args) => dump(args, build, out),
        DebugCommand::Snapshot(SnapshotArgs { cluster }) => request_snapshot(cluster, out),
        DebugCommand::Record(LogArgs { cluster, record }) => {
            let log = record.load(cluster, Period::last_day(SystemClock.wall()), out)?;
            out.write_all(&log.to_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn request_snapshot(cluster: &ClusterArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let now = SystemClock.wall().to_string();
    cluster.run(async |client| {
        let configs: Api<CroftConfig> = Api::all(client);
        // A merge, and no apply: a command of debug creates nothing, and settings that nobody wrote would look like settings.
        let annotated = json!({"metadata": {"annotations": {SNAPSHOT_REQUESTED: now}}});
        match configs.patch(SINGLETON, &PatchParams::default(), &Patch::Merge(annotated)).await {
            Err(error) if is_absent(&error) => bail!(
                "there is no CroftConfig {SINGLETON}, whose annotation asks for a snapshot: croft debug dump writes one to a file, and the \
                 controller makes the next within ten minutes"
            ),
            patched => patched.with_context(|| format!("failed to annotate CroftConfig {SINGLETON}")).map(drop),
        }
    })?;
    writeln!(out, "the controller makes a snapshot: croft simulate --at 0s reads it in a few seconds")?;
    Ok(ExitCode::SUCCESS)
}

fn dump(DumpArgs { cluster }: &DumpArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    let namespace = cluster.croft_namespace();
    let documents = cluster.run(async |client| {
        let input = read(&client).await?;
        let mut documents = records::documents(&client, namespace, &build.line(), SystemClock.wall()).await?;
        documents.extend(objects::documents(&input)?);
        Ok(documents)
    })?;
    out.write_all(to_yaml(&documents)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
