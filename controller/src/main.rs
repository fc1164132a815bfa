//! `croft-controller`.

use std::process::ExitCode;

use croft_controller::{config::args::Args, run::run};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    croft_runtime::process::main(croft_runtime::build!(), |args: &Args| &args.process, run)
}
