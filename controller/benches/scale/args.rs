//! The program's arguments, in a file of their own: a test of `croft-xtask` reads the commands of the Makefile by them.

use clap::Parser;

/// The controller at rest and after a restart, at a size
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// How many nodes
    #[arg(long)]
    pub(crate) nodes: Option<u64>,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    #[allow(dead_code, reason = "it says nothing")]
    bench: bool,
}
