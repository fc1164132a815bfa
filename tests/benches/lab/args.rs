//! The program's arguments, in a file of their own: a test of `croft-xtask` reads the commands of the Makefile by them.

use clap::{Parser, ValueEnum};

/// Croft on the real control plane
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Parts to measure; all if nothing is named but `steady5000`
    #[arg(value_enum)]
    pub(crate) parts: Vec<Part>,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    #[allow(dead_code, reason = "it says nothing")]
    bench: bool,
}

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// From pods to Running on new instances
    Ready,
    /// From pods of 20 tenants to all bound
    Bind,
    /// A pod while thousands of another tenant's wait
    Neighbour,
    /// The controller with 2,000 nodes
    Steady,
    /// The controller with 5,000 nodes, if it is named
    Steady5000,
}
