//! The admission webhook of Croft.

use std::process::ExitCode;

use croft_runtime::process;
use croft_webhook::{args::Args, run::run};

fn main() -> ExitCode {
    process::main(croft_runtime::build!(), |args: &Args| &args.process, run)
}
