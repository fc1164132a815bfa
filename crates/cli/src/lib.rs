//! The command line of Croft, `croft` (also `kubectl croft`), as a library.
//!
//! ```text
//!  arguments ──args──▶ one command ──▶ input::load(-f ...) ──▶ Input { tenants, pools, pods, workloads, nodes ... }
//!                          │                                        │
//!                          │   ┌────────────────────────────────────┤
//!                          ▼   ▼                                    ▼
//!                  admit, plan: policy             simulate: workload ▶ admission ▶ scheduler::solve
//!                          │                                        │
//!                          └──────────────▶ output (text or JSON) ◀─┘
//! ```
//!
//! Every command reads the types and calls the functions that the servers do; nothing is decided here. Exit
//! codes: 0 done, 1 failed or found something, 2 bad input or arguments.

mod admission;
mod admit;
mod args;
mod audit;
mod break_glass;
mod check;
mod costs;
mod explain;
mod failure;
mod import;
pub mod input;
mod lab;
mod live;
mod output;
mod plan;
pub mod reference;
pub mod simulate;
mod table;
mod tenant;
mod top;
mod workload;
mod yaml;

use std::{ffi::OsString, io::Write as _, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};

pub use args::Cli;
pub use failure::Failure;
pub use output::Output;

use crate::{args::Command, table::BAD};

/// Runs the command line: parses `args`, does what they say, answers the process's exit code.
#[must_use]
pub fn main(args: Vec<OsString>) -> ExitCode {
    let mut command = Cli::command();
    if is_plugin(&args) {
        command = command.bin_name("kubectl croft");
    }
    let cli = match command.try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // clap exits with 2 for bad arguments and with 0 for help and version.
        Err(error) => error.exit(),
    };
    let mut out = Output::standard();
    let code = run(&cli, &mut out);
    let _ = out.flush();
    code
}

/// Runs the command line with streams of the caller's; answers the exit code.
#[must_use]
pub fn run_with(args: Vec<OsString>, out: &mut Output) -> u8 {
    match Cli::command().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => {
            let code = run(&cli, out);
            (0..=2).find(|known| code == ExitCode::from(*known)).unwrap_or(1)
        }
        Err(error) => {
            let _ = writeln!(out.err(), "{error}");
            2
        }
    }
}

/// Does what `cli` says.
pub fn run(cli: &Cli, out: &mut Output) -> ExitCode {
    let result = match &cli.command {
        Command::Admit(args) => admit::run(args, out),
        Command::Plan(args) => plan::run(args, out),
        Command::Simulate(args) => simulate::run(args, out),
        Command::Audit(args) => audit::run(args, out),
        Command::Explain(args) => explain::run(args, out),
        Command::Top(args) => top::run(args, out),
        Command::Import(args) => import::run(args, out),
        Command::Tenant(args) => tenant::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::BreakGlass(args) => break_glass::run(args, out),
        Command::Lab(args) => lab::run(args, out),
    };
    let result = result.and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(failure) => {
            let code = failure.exit_code();
            if code != 0 {
                let _ = writeln!(out.err(), "{BAD}error:{BAD:#} {failure}");
            }
            ExitCode::from(code)
        }
    }
}

/// `kubectl` runs a plugin as `kubectl-croft`.
fn is_plugin(args: &[OsString]) -> bool {
    let name = args.first().map(Path::new).and_then(Path::file_stem).and_then(|n| n.to_str());
    name.is_some_and(|n| n.starts_with("kubectl-") || n.starts_with("kubectl_"))
}
