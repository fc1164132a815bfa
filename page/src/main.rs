//! The read-only web page of Croft.

use std::process::ExitCode;

use croft_page::{args::Args, run::run};
use croft_runtime::process;

fn main() -> ExitCode {
    process::main(croft_runtime::build!(), |args: &Args| &args.process, run)
}
