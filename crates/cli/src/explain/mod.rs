//! `croft explain`: why a pod waits, why it is where it is, why a node stays.
//!
//! It reads the cluster (or files), judges with the policy's functions and plans with the scheduler's, as the
//! servers do, and says in words what they answer.

mod ground;
mod pod;
mod reasons;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::{failure::Failure, input::InputError, live::SourceArgs, output::Output};

/// Options of `croft explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Why a pod waits, or why it runs where it does
    Pod(PodArgs),
    /// Whose a node is, what it costs, and why it stays
    Node(NameArgs),
    /// What a pool is, who uses it, and how far its limits reach
    Pool(NameArgs),
    /// Which namespaces, pools and nodes are a tenant's
    Tenant(NameArgs),
    /// What the reasons mean that a pod stays pending for
    Reason(ReasonArgs),
}

#[derive(Args, Clone, Debug)]
struct PodArgs {
    /// The pod's name
    name: String,
    /// The pod's namespace
    #[arg(short, long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Args, Clone, Debug)]
struct NameArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Args, Clone, Debug)]
struct ReasonArgs {
    /// One reason; all of them if left out
    name: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Pod(PodArgs { name, namespace, source }) => {
            pod::explain(&source.load(namespace)?, namespace, name, out)
        }
        What::Node(NameArgs { name, source }) => ground::node(&source.load("default")?, name, out),
        What::Pool(NameArgs { name, source }) => ground::pool(&source.load("default")?, name, out),
        What::Tenant(NameArgs { name, source }) => ground::tenant(&source.load("default")?, name, out),
        What::Reason(ReasonArgs { name }) => reasons::explain(name.as_deref(), out),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The object isn't there.
fn missing<'n>(kind: &str, name: &str, there: impl Iterator<Item = &'n str>) -> Failure {
    let there: Vec<&str> = there.collect();
    let hint =
        crate::input::closest(name, &there).map(|n| format!("; did you mean {n}?")).unwrap_or_default();
    InputError::Other(format!("there is no {kind} {name}{hint}")).into()
}
