//! The command line of Croft, `croft` (also `kubectl croft`), as a library.
//!
//! ```text
//!  arguments ──args──▶ one of commands/ ──▶ source: croft_manifest::load(-f ...), or the cluster ──▶ Input
//!                          │                                                                       │
//!                          │   ┌───────────────────────────────────────────────────────────────────┤
//!                          ▼   ▼                                                                   ▼
//!                  admit, plan: admission                   simulation: workload ▶ admission ▶ scheduler::solve
//!                          │                                                                       │
//!                          └─────────────────────────▶ output (text or JSON) ◀─────────────────────┘
//! ```
//!
//! Commands call the functions that the webhook and the controller call, so they give the same answers; for an input,
//! [`croft_inspect`] calls them. Exit codes: 0 done, 1 failed or found something, 2 bad input or arguments.
//!
//! | module | owns |
//! |---|---|
//! | `commands` | a file or folder per command: arguments, what it does, what it prints |
//! | `source`, `cluster_reader`, `catalog_file` | where input comes from: files, the API server, a catalogue |
//! | `aws` | which AWS commands ask, if any |
//! | `record` | the decision log: where it is read from, times, and how entries are shown |
//! | `page_client` | the page's API, for users with rights in their own namespaces only |
//! | `output`, `shown`, `table`, `costs`, `reference` | text, what others wrote, tables, costs, the generated reference page |

mod activity;
mod args;
mod aws;
mod catalog_file;
mod cluster_reader;
mod commands;
mod costs;
mod croft_object;
mod failure;
mod output;
mod own_events;
mod own_objects;
mod page_client;
mod record;
pub mod reference;
mod shown;
mod source;
mod table;

use std::{ffi::OsString, io::Write as _, path::Path, process::ExitCode};

use clap::{CommandFactory as _, FromArgMatches as _};
use croft_manifest::InputError;
use croft_runtime::{build::Build, connect_error::without_numbers};

pub use args::Cli;
pub use failure::Failure;
pub use output::Output;

use crate::{
    args::Command,
    commands::{
        admit, advise, audit, break_glass, catalog, check, completion, cost, debug, events, explain, history,
        import, lab, page, pause, plan, simulate, tenant, top, uninstall, version,
    },
    table::BAD,
};

/// Parses `args`, runs the command of the program that is built as `build`, and returns the process's exit code.
#[must_use]
pub fn main(args: Vec<OsString>, build: Build) -> ExitCode {
    let mut command = Cli::command().version(build.clap_version());
    if is_plugin(&args) {
        command = command.bin_name("kubectl croft");
    }
    let cli = match command.try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        // clap exits with 2 for bad arguments and with 0 for help and version.
        Err(error) => error.exit(),
    };
    let mut out = Output::standard();
    let code = run_built(&cli, &build, &mut out);
    let _ = out.flush();
    code
}

/// Parses `args` and runs the command with `out` as its streams. Returns the exit code.
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

/// Runs one command and writes its error, if any. Returns the exit code.
pub fn run(cli: &Cli, out: &mut Output) -> ExitCode {
    run_built(cli, &Build::unknown(env!("CARGO_PKG_VERSION")), out)
}

fn run_built(cli: &Cli, build: &Build, out: &mut Output) -> ExitCode {
    let result = accept_namespace(cli).and_then(|()| run_command(cli, build, out));
    let result = result.and_then(|code| Ok(out.flush().map(|()| code)?));
    match result {
        Ok(code) => code,
        Err(failure) => {
            let code = failure.exit_code();
            if code != 0 {
                let _ = writeln!(out.err(), "{BAD}error:{BAD:#} {}", without_numbers(&failure));
            }
            ExitCode::from(code)
        }
    }
}

/// Refuses a namespace that the command would ignore: it may be meant as the one that Croft is installed in.
fn accept_namespace(cli: &Cli) -> Result<(), Failure> {
    match cli.cluster.named_namespace() {
        Some(namespace) if !cli.command.is_namespaced() => {
            let message = format!(
                "this command isn't about a namespace: leave out --namespace {namespace}; --croft-namespace names the one that Croft is \
                 installed in, and --namespaces of croft tenant add those of a tenant"
            );
            Err(InputError::Other(message).into())
        }
        _ => Ok(()),
    }
}

fn run_command(cli: &Cli, build: &Build, out: &mut Output) -> Result<ExitCode, Failure> {
    match &cli.command {
        Command::Admit(args) => admit::run(args, out),
        Command::Plan(args) => plan::run(args, out),
        Command::Simulate(args) => simulate::run(args, out),
        Command::Audit(args) => audit::run(args, out),
        Command::Advise(args) => advise::run(args, out),
        Command::Explain(args) => explain::run(args, out),
        Command::History(args) => history::run(args, out),
        Command::Top(args) => top::run(args, out),
        Command::Import(args) => import::run(args, out),
        Command::Tenant(args) => tenant::run(args, out),
        Command::Catalog(args) => catalog::run(args, out),
        Command::Check(args) => check::run(args, out),
        Command::Completion(args) => completion::run(args, Cli::command(), out),
        Command::Events(args) => events::run(args, out),
        Command::Cost(args) => cost::run(args, out),
        Command::Page(args) => page::run(args, out),
        Command::Debug(args) => debug::run(args, build, out),
        Command::BreakGlass(args) => break_glass::run(args, out),
        Command::Pause(args) => pause::pause(args, out),
        Command::Resume(args) => pause::resume(args, out),
        Command::Lab(args) => lab::run(args, out),
        Command::Uninstall(args) => uninstall::run(args, out),
        Command::Version(args) => version::run(args, build, out),
    }
}

/// True if `kubectl` runs this program as the plugin `kubectl-croft`.
fn is_plugin(args: &[OsString]) -> bool {
    let name = args.first().map(Path::new).and_then(Path::file_stem).and_then(|n| n.to_str());
    name.is_some_and(|n| n.starts_with("kubectl-") || n.starts_with("kubectl_"))
}
