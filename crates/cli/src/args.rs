//! The root of the command line: one subcommand per module of `commands`.

use clap::{Parser, Subcommand};

use crate::commands::{
    admit::AdmitArgs,
    advise::AdviseArgs,
    audit::AuditArgs,
    break_glass::BreakGlassArgs,
    catalog::CatalogArgs,
    check::CheckArgs,
    completion::CompletionArgs,
    cost::CostArgs,
    debug::DebugArgs,
    events::EventsArgs,
    explain::ExplainArgs,
    history::HistoryArgs,
    import::ImportArgs,
    lab::LabArgs,
    page::PageCommandArgs,
    pause::{PauseArgs, ResumeArgs},
    plan::PlanArgs,
    simulate::SimulateArgs,
    tenant::TenantArgs,
    top::TopArgs,
    uninstall::UninstallArgs,
    version::VersionArgs,
};
use crate::source::ClusterArgs;

/// Gives every tenant of a shared Kubernetes cluster its own nodes: the tenant's pods run there, and no others.
///
/// Commands with -f read files only, except `plan --live` and `simulate --live`, which also read the cluster.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "croft",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// They may stand before the command, and clap hands them to the command's own; those of the command are here too.
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum Command {
    /// Answer an AdmissionReview as the webhook would: JSON in, JSON out
    Admit(AdmitArgs),
    /// Show what admission does to the pods of a manifest: changes, pool, warnings
    Plan(PlanArgs),
    /// Show which instances would be launched for the input, their cost, and why pods would stay pending
    Simulate(SimulateArgs),
    /// Explain why a pod is pending, why it runs on its node, and why a node is kept
    Explain(ExplainArgs),
    /// Show what each constraint costs (PodDisruptionBudgets, spreads, affinities, limits), and what to change
    Advise(AdviseArgs),
    /// Show what Croft decided, from its decision log
    History(HistoryArgs),
    /// Show the Events that Croft writes, and new ones as they come
    Events(EventsArgs),
    /// Show who paid what for which nodes: by tenant, namespace, workload, pool, and what for
    Cost(CostArgs),
    /// Open the web page: forward a port to it and sign in
    Page(PageCommandArgs),
    /// Find pods, nodes and tenants that break the isolation; exits with 1 if there are any
    Audit(AuditArgs),
    /// Show tenants, pools and nodes, and what they cost
    Top(TopArgs),
    /// Convert Gatekeeper's and Karpenter's objects to Croft's; every field that is left out is reported
    Import(ImportArgs),
    /// Add or remove a tenant, as manifests or applied
    Tenant(TenantArgs),
    /// Write the instance types and prices of a region, for plans without a cluster
    Catalog(CatalogArgs),
    /// Check an installation step by step, with a remedy for each failure
    Check(CheckArgs),
    /// Write what a report of a bug needs
    Debug(DebugArgs),
    /// Stop enforcement while Croft itself keeps pods from starting, and start it again
    BreakGlass(BreakGlassArgs),
    /// Start no voluntary disruption of nodes for a while, in one pool or in all
    Pause(PauseArgs),
    /// End a pause of voluntary disruption
    Resume(ResumeArgs),
    /// Run the real control plane, an EC2 simulator and Croft on this computer
    Lab(LabArgs),
    /// Remove Croft from a cluster: prints the plan, or carries it out
    Uninstall(UninstallArgs),
    /// Write a shell's completions to standard output
    Completion(CompletionArgs),
    /// Show version, commit and the supported Kubernetes releases
    Version(VersionArgs),
}

impl Command {
    /// True if the command asks about a namespace, or reads files with objects that may name none.
    pub(crate) fn is_namespaced(&self) -> bool {
        match self {
            Self::Simulate(args) => args.reads_files(),
            Self::Explain(args) => args.is_namespaced(),
            Self::Top(args) => args.reads_files(),
            Self::Admit(_) | Self::Plan(_) | Self::Advise(_) | Self::Events(_) | Self::Audit(_) => true,
            Self::History(_)
            | Self::Cost(_)
            | Self::Page(_)
            | Self::Import(_)
            | Self::Tenant(_)
            | Self::Catalog(_)
            | Self::Check(_)
            | Self::Debug(_)
            | Self::BreakGlass(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Lab(_)
            | Self::Uninstall(_)
            | Self::Completion(_)
            | Self::Version(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn cluster_is_named_before_or_after_the_command() {
        for args in [
            &["croft", "--kubeconfig", "k", "--context", "prod", "page"][..],
            &["croft", "page", "--kubeconfig", "k", "--context", "prod"],
            &["croft", "--context", "prod", "page", "--kubeconfig", "k"],
        ] {
            let Command::Page(page) = Cli::try_parse_from(args).unwrap().command else { panic!("{args:?}") };
            let target = page.cluster().target();
            assert_eq!((target.kubeconfig, target.context), (Some(Path::new("k")), Some("prod")), "{args:?}");
        }
    }

    #[test]
    fn namespace_is_named_before_or_after_the_command_and_known_to_the_root() {
        for args in [
            &["croft", "-n", "shop", "--croft-namespace", "c", "page"][..],
            &["croft", "page", "--namespace", "shop", "--croft-namespace", "c"],
            &["croft", "--namespace=shop", "page", "--croft-namespace=c"],
        ] {
            let cli = Cli::try_parse_from(args).unwrap();
            assert_eq!(cli.cluster.named_namespace(), Some("shop"), "{args:?}");
            let Command::Page(page) = cli.command else { panic!("{args:?}") };
            assert_eq!(page.cluster().namespace().unwrap(), "shop", "{args:?}");
            assert_eq!(page.cluster().croft_namespace(), "c", "{args:?}");
        }
        let cli = Cli::try_parse_from(["croft", "explain", "pod", "web", "-n", "shop"]).unwrap();
        assert!(cli.command.is_namespaced());
        assert_eq!(cli.cluster.named_namespace(), Some("shop"));
        assert_eq!(cli.cluster.croft_namespace(), "croft-system");
    }

    #[test]
    fn only_arguments_about_the_cluster_are_below_its_heading() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            for arg in command.get_arguments() {
                let heading = arg.is_global_set().then_some("The cluster");
                assert_eq!(arg.get_help_heading(), heading, "{} {}", command.get_name(), arg.get_id());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn commands_that_read_the_whole_cluster_have_a_namespace_with_files_only() {
        for command in
            ["top", "simulate --live --compare", "explain node n", "explain pool p", "explain tenant t"]
        {
            let is_namespaced = |more: &str| {
                let words = ["croft"].into_iter().chain(command.split(' ')).chain(more.split_whitespace());
                Cli::try_parse_from(words).unwrap().command.is_namespaced()
            };
            assert!(!is_namespaced("") && is_namespaced("-f a.yaml"), "{command}");
        }
    }
}
