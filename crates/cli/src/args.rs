//! The root of the command line.

use clap::{Parser, Subcommand};

use crate::{admit::AdmitArgs, lab::LabArgs, plan::PlanArgs, simulate::SimulateArgs};

/// Gives every tenant of a shared Kubernetes cluster its own ground: its pods on its nodes, and nobody else's.
///
/// Commands with -f work on files alone and ask no cluster.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "croft",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    /// Answer an AdmissionReview as the webhook would: JSON in, JSON out
    Admit(AdmitArgs),
    /// Show what the pods of a manifest will become: the changes, the pool, warnings
    Plan(PlanArgs),
    /// Show which machines would be launched for the input, what they cost, and what would wait why
    Simulate(SimulateArgs),
    /// Run the real control plane, an EC2 simulator and Croft on this machine
    Lab(LabArgs),
}
