//! The `croft` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    croft_cli::main(std::env::args_os().collect(), croft_runtime::build!())
}
