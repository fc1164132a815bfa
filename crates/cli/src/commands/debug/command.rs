//! Arguments and steps of the command.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, Subcommand};
use croft_manifest::to_yaml;
use croft_runtime::{
    build::Build,
    clock::{Clock as _, SystemClock},
};

use super::{objects, records};
use crate::{
    cluster_reader::read,
    failure::Failure,
    output::Output,
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
struct DumpArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// Namespace that Croft is installed in
    #[arg(short, long, value_name = "NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    namespace: String,
}

/// Runs the command.
pub(crate) fn run(args: &DebugArgs, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    match &args.command {
        DebugCommand::Dump(args) => dump(args, build, out),
        DebugCommand::Record(LogArgs { cluster, record }) => {
            let log = record.load(cluster, Period::last_day(SystemClock.wall()), out)?;
            out.write_all(&log.to_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn dump(
    DumpArgs { cluster, namespace }: &DumpArgs,
    build: &Build,
    out: &mut Output,
) -> Result<ExitCode, Failure> {
    let documents = cluster.run(async |client| {
        let input = read(&client).await?;
        let mut documents = records::documents(&client, namespace, &build.line(), SystemClock.wall()).await?;
        documents.extend(objects::documents(&input)?);
        Ok(documents)
    })?;
    out.write_all(to_yaml(&documents)?.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
