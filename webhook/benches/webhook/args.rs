//! The program's arguments, in a file of their own: a test of `croft-xtask` reads the commands of the Makefile by them.

use clap::{Parser, ValueEnum};

/// The cost of admission
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Parts to measure; all if nothing is named
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
    /// Reviews per second, beside a floor
    Capacity,
    /// The time that a pod's creation takes longer
    Latency,
    /// Memory, readiness and latency with 1,000 tenants
    Size,
}
