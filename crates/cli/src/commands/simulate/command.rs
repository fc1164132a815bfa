//! Arguments and steps of the command.

use std::{fs::File, io::Read as _, path::Path, path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, ValueEnum};
use croft_inspect::{
    admission::Admission,
    custom_workload_warnings, merge,
    simulation::{simulate_with_consolidation, time_of},
};
use croft_manifest::{Input, InputError};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{InstanceType, Options};
use serde::Serialize;

use super::{comparison, json, launchers, replay, report::Report, text};
use crate::{
    activity::Activity,
    catalog_file::instance_types,
    commands::plan::impact::Removal,
    failure::Failure,
    output::Output,
    record::{Period, SnapshotArgs},
    source::{ClusterArgs, load_files},
};

/// Arguments of `croft simulate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateArgs {
    /// File, folder or - (standard input) with Kubernetes and Croft objects; may be given more than once. With --record,
    /// --at or --from, the Tenants, TenantPools, EC2NodeClasses and the CroftConfig to put over the recorded ones; with --live
    /// over those of the cluster
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present_any = ["record", "at", "from", "live"])]
    filenames: Vec<PathBuf>,
    /// Begin with this cluster: a file of croft debug dump; with --at or --from, an archive or a segment of snapshots. With -f, --without or
    /// --catalog-after, compare what it costs under its own settings and under the changed ones: now, once pending pods have a
    /// place, and at the end of consolidation
    #[arg(long, value_name = "FILE or URL")]
    record: Option<String>,
    #[command(flatten)]
    snapshot: SnapshotArgs,
    /// Replay the recorded time from here on, under its own settings and under the changed ones: pods come and go as they were
    /// recorded. A time as of --at; the snapshots are those that --at reads
    #[arg(long, value_name = "TIME", conflicts_with_all = ["at", "consolidate"])]
    from: Option<String>,
    /// With --from: replay up to this time; default: now
    #[arg(long, value_name = "TIME", requires = "from")]
    to: Option<String>,
    /// Compare the nodes that are there, whoever launched them, with Croft's plan for the same pods
    #[arg(long, conflicts_with_all = ["record", "at", "from", "consolidate", "without", "catalog_after"])]
    compare: bool,
    /// With --compare: read the cluster once, instead of files. Nothing of Croft need be installed in it, and nothing is written
    #[arg(long, requires = "compare")]
    live: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// With --record, --at or --from: remove this object, such as tenantpool/batch; may be given more than once
    #[arg(long, value_name = "KIND/NAME")]
    without: Vec<Removal>,
    /// Catalogue of instance types and prices, as a JSON file; the built-in one if left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// With --record, --at or --from: the catalogue after the changes, such as one with other prices or reserved capacity; recorded nodes
    /// are priced by it, too
    #[arg(long, value_name = "FILE")]
    catalog_after: Option<PathBuf>,
    /// Search longer for a cheaper plan: a multiple of the default effort; 0 is plain first-fit-decreasing
    #[arg(long, value_name = "N", default_value_t = 1)]
    effort: u32,
    /// Also show which nodes consolidation would remove, and why each other node is kept
    #[arg(long, conflicts_with_all = ["without", "catalog_after"])]
    consolidate: bool,
    /// Exit with 1 if a pod stays pending
    #[arg(long)]
    fail_on_pending: bool,
    /// How the plan is printed
    #[arg(short, long, value_enum, default_value_t = SimulateFormat::Text)]
    output: SimulateFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SimulateFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For a pull request; a comparison alone
    Markdown,
}

impl SimulateArgs {
    /// True if files are read, alone or over a cluster.
    pub(crate) fn reads_files(&self) -> bool {
        !self.filenames.is_empty()
    }
}

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { filenames, cluster, without, catalog_after, consolidate, .. } = args;
    if args.compare {
        return compare_launchers(args, out);
    }
    if let Some(from) = &args.from {
        return replay(args, from, out);
    }
    let Some(recorded) = read_record(args, out)? else {
        if !without.is_empty() || catalog_after.is_some() {
            let message =
                "--without and --catalog-after compare with a recorded cluster: add --record, --at or --from";
            return Err(InputError::Other(message.to_owned()).into());
        }
        return simulate(args, &load_files(filenames, cluster.namespace_of_files(), out)?, out);
    };
    if filenames.is_empty() && without.is_empty() && catalog_after.is_none() {
        return simulate(args, &recorded, out);
    }
    if *consolidate {
        let message = "leave out --consolidate: a comparison consolidates both sides";
        return Err(InputError::Other(message.to_owned()).into());
    }
    let edit = load_edit(args, out)?;
    compare(args, &recorded, &edit, out)
}

/// Plans for the input.
fn simulate(args: &SimulateArgs, input: &Input, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { catalog, consolidate, output, .. } = args;
    let types = instance_types(catalog.as_deref())?;
    let simulation = {
        let _activity = Activity::start("planning");
        simulate_with_consolidation(input, types, &options(args), *consolidate)?
    };
    out.warn(&simulation.warnings)?;
    if !input.custom_workloads.is_empty() {
        out.warn(&custom_workload_warnings(input, &Admission::new(input)?))?;
    }
    match output {
        SimulateFormat::Json => json::write(&simulation, input, out)?,
        SimulateFormat::Text => text::write(&simulation, input, out)?,
        SimulateFormat::Markdown => {
            let message = "-o markdown writes a comparison: add --compare, or --record, --at or --from and what changes, or write -o text";
            return Err(InputError::Other(message.to_owned()).into());
        }
    }
    Ok(exit_code(args, !simulation.is_complete()))
}

/// Compares a recorded time with the same under the changed settings.
fn replay(args: &SimulateArgs, from: &str, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { filenames, record, snapshot, to, cluster, without, catalog_after, .. } = args;
    if filenames.is_empty() && without.is_empty() && catalog_after.is_none() {
        let message = "--from compares with other settings: add -f, --without or --catalog-after";
        return Err(InputError::Other(message.to_owned()).into());
    }
    let edit = load_edit(args, out)?;
    let now = SystemClock.wall();
    let Period { from, to } = Period::parse(from, to.as_deref(), now)?;
    // Nothing is recorded of the future.
    let period = Period { from, to: to.min(now.as_millisecond()).max(from) };
    let mut player = replay::Player::new(replay::Question {
        period,
        edit: &edit,
        removals: without,
        types: instance_types(args.catalog.as_deref())?,
        types_after: types_after(args)?,
        options: options(args),
    });
    let comparison = {
        let activity = Activity::start("reading the snapshots");
        snapshot.each(record.as_deref(), period, cluster, |recorded| {
            activity.say(format!("replaying {}", time_of(&recorded)));
            Ok(player.observe(recorded)?)
        })?;
        player.finish()?
    };
    out.warn(&comparison.warnings)?;
    show(args, &comparison, &comparison.report(), out)?;
    Ok(exit_code(args, comparison.has_pending()))
}

/// The objects of the files, which may change settings alone.
fn load_edit(args: &SimulateArgs, out: &mut Output) -> Result<Input, Failure> {
    let SimulateArgs { filenames, cluster, .. } = args;
    let edit = if filenames.is_empty() {
        Input::default()
    } else {
        load_files(filenames, cluster.namespace_of_files(), out)?
    };
    comparison::check(&edit)?;
    Ok(edit)
}

fn types_after(args: &SimulateArgs) -> Result<Option<Arc<[InstanceType]>>, Failure> {
    Ok(args.catalog_after.as_deref().map(|path| instance_types(Some(path))).transpose()?)
}

/// Writes a comparison in the format that the user chose.
fn show(
    args: &SimulateArgs,
    comparison: &impl Serialize,
    report: &Report<'_>,
    out: &mut Output,
) -> Result<(), Failure> {
    match args.output {
        SimulateFormat::Json => out.json(comparison)?,
        SimulateFormat::Text => report.text(out)?,
        SimulateFormat::Markdown => report.markdown(out)?,
    }
    Ok(())
}

const fn exit_code(args: &SimulateArgs, is_pending: bool) -> ExitCode {
    if args.fail_on_pending && is_pending { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Compares the recorded cluster with the edited one.
fn compare(
    args: &SimulateArgs,
    recorded: &Input,
    edit: &Input,
    out: &mut Output,
) -> Result<ExitCode, Failure> {
    let SimulateArgs { without, catalog, .. } = args;
    let question = comparison::Question {
        recorded,
        edit,
        removals: without,
        types: instance_types(catalog.as_deref())?,
        types_after: types_after(args)?,
        options: options(args),
    };
    let comparison = {
        let _activity = Activity::start("planning the cluster as it was recorded, and with the changes");
        comparison::compare(&question)?
    };
    out.warn(&comparison.warnings)?;
    show(args, &comparison, &comparison.report(), out)?;
    Ok(exit_code(args, comparison.has_pending()))
}

/// Compares the nodes that are there with the plan for the same pods.
fn compare_launchers(args: &SimulateArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { filenames, live, cluster, catalog, .. } = args;
    let input = if *live {
        // Wrong files are told before the cluster is read.
        let edit = load_edit(args, out)?;
        let mut input = cluster.read_any()?;
        merge(&mut input, &edit);
        input
    } else {
        load_files(filenames, cluster.namespace_of_files(), out)?
    };
    let comparison = {
        let _activity = Activity::start("planning");
        croft_inspect::comparison::compare(&input, &instance_types(catalog.as_deref())?, &options(args))?
    };
    out.warn(&comparison.warnings)?;
    show(args, &comparison, &launchers::report(&comparison), out)?;
    Ok(exit_code(args, comparison.leaves_pods_out()))
}

fn options(args: &SimulateArgs) -> Options {
    Options { effort: args.effort, ..Options::default() }
}

/// Reads a recorded cluster; none if no record is named.
fn read_record(args: &SimulateArgs, out: &mut Output) -> Result<Option<Input>, Failure> {
    let SimulateArgs { record, snapshot, cluster, .. } = args;
    if snapshot.is_given() {
        return snapshot.load(record.as_deref(), cluster, SystemClock.wall(), out).map(Some);
    }
    let Some(record) = record else { return Ok(None) };
    if record.starts_with("s3://") {
        let message =
            format!("an archive has many snapshots: add --at TIME or --from TIME to --record {record}");
        return Err(InputError::Other(message).into());
    }
    let path = Path::new(record);
    if is_gzip(path) {
        let message = format!(
            "{} is compressed, as a decision log or a segment of snapshots: write a file of croft debug dump, or add --at TIME or \
             --from TIME to a segment of snapshots",
            path.display()
        );
        return Err(InputError::Other(message).into());
    }
    load_files(&[path.to_owned()], "default", out).map(Some)
}

/// True for a file that begins as gzip files do.
fn is_gzip(path: &Path) -> bool {
    let mut magic = [0; 2];
    File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok()) && magic == [0x1f, 0x8b]
}
