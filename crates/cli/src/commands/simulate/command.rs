//! Arguments and steps of the command.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use croft_scheduler::Options;

use super::{json, text};
use crate::{
    catalog_file::instance_types,
    failure::Failure,
    output::{Format, Output},
    simulation::simulate_with_consolidation,
    source::FileArgs,
};

/// Arguments of `croft simulate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Catalogue of instance types and prices, as a JSON file; the built-in one if left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Search longer for a cheaper plan: a multiple of the default effort; 0 is plain first-fit-decreasing
    #[arg(long, value_name = "N", default_value_t = 1)]
    effort: u32,
    /// Also show which nodes consolidation would remove, and why each other node is kept
    #[arg(long)]
    consolidate: bool,
    /// Exit with 1 if a pod stays pending
    #[arg(long)]
    fail_on_pending: bool,
    /// How the plan is printed
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { files, catalog, effort, consolidate, fail_on_pending, output } = args;
    let input = files.load(out)?;
    let types = instance_types(catalog.as_deref())?;
    let options = Options { effort: *effort, ..Options::default() };
    let simulation = simulate_with_consolidation(&input, types, &options, *consolidate)?;
    out.warn(&simulation.warnings)?;
    match output {
        Format::Json => json::write(&simulation, &input, out)?,
        Format::Text => text::write(&simulation, &input, out)?,
    }
    Ok(if *fail_on_pending && !simulation.is_complete() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
