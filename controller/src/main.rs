//! `croft-controller`.

use std::process::ExitCode;

use croft_controller::{args::Args, run::run};

fn main() -> ExitCode {
    croft_runtime::process::main(|args: &Args| &args.process, run)
}
