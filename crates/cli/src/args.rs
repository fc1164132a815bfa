//! The root of the command line.

use clap::{Parser, Subcommand};

use crate::{
    admit::AdmitArgs, audit::AuditArgs, break_glass::BreakGlassArgs, check::CheckArgs, explain::ExplainArgs,
    import::ImportArgs, lab::LabArgs, plan::PlanArgs, simulate::SimulateArgs, tenant::TenantArgs,
    top::TopArgs,
};

/// Gives every tenant of a shared Kubernetes cluster its own ground: its pods on its nodes, and nobody else's.
///
/// Commands with -f work on files alone and ask no cluster, but for `plan --live`.
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
    /// Say why a pod waits, why it runs where it does, and why a node stays
    Explain(ExplainArgs),
    /// Find pods, nodes and tenants that break the isolation; exits with 1 if there are any
    Audit(AuditArgs),
    /// Show tenants, pools and nodes, and what they cost
    Top(TopArgs),
    /// Make Croft's objects of Gatekeeper's and Karpenter's; nothing is dropped silently
    Import(ImportArgs),
    /// Add or remove a tenant, as manifests or applied
    Tenant(TenantArgs),
    /// Check an installation, step by step, each with its remedy
    Check(CheckArgs),
    /// Stop enforcement when Croft itself keeps pods from starting, and start it again
    BreakGlass(BreakGlassArgs),
    /// Run the real control plane, an EC2 simulator and Croft on this machine
    Lab(LabArgs),
}
