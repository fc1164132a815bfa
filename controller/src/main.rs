//! `croft-controller`.

use std::process::ExitCode;

use croft_controller::{args::Args, run::run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    croft_runtime::process::main(|args: &Args| &args.process, run)
}
