//! Arguments and steps of the command.

use std::{io::Write as _, process::ExitCode};

use clap::{Args, Subcommand};
use croft_inspect::reasons::MEANINGS;

use super::{
    node, page,
    past::{self, PastArgs},
    pod, pool, tenant,
};
use crate::{failure::Failure, output::Output, page_client::PageArgs, source::SourceArgs, table::BOLD};

/// Arguments of `croft explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Clone, Debug)]
enum What {
    /// Why a pod is pending, or why it runs on its node
    Pod(Box<PodArgs>),
    /// Which pool a node belongs to, what it costs, and why it is kept
    Node(NodeArgs),
    /// Which tenants use a pool, what it costs, and how much of its limits is used
    Pool(NameArgs),
    /// Which namespaces, pools and nodes belong to a tenant
    Tenant(NameArgs),
    /// Meanings of the reasons for pending pods, and their remedies
    Reason(ReasonArgs),
}

#[derive(Args, Clone, Debug)]
struct PodArgs {
    /// The pod's name
    name: String,
    #[command(flatten)]
    past: PastArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    source: SourceArgs,
}

#[derive(Args, Clone, Debug)]
struct NodeArgs {
    /// Its name; with --at, also that of its NodeClaim
    name: String,
    #[command(flatten)]
    past: PastArgs,
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

impl ExplainArgs {
    /// True if it asks about a namespace, or reads files with objects that may name none.
    pub(crate) fn is_namespaced(&self) -> bool {
        match &self.what {
            What::Pod(_) => true,
            What::Node(NodeArgs { source, .. })
            | What::Pool(NameArgs { source, .. })
            | What::Tenant(NameArgs { source, .. }) => !source.is_live(),
            What::Reason(_) => false,
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Pod(args) => {
            let PodArgs { name, past, page, source } = &**args;
            let namespace = &source.namespace()?;
            if page.is_given() && source.is_live() {
                page::explain_pod(page, source.cluster(), namespace, name, past::moment(past)?, out)
            } else {
                match past::load(past, source.cluster(), out)? {
                    Some((log, at)) => past::explain_pod(&log, namespace, name, at, out),
                    None => pod::explain(&source.load(out)?, namespace, name, out),
                }
            }
        }
        What::Node(NodeArgs { name, past, source }) => match past::load(past, source.cluster(), out)? {
            Some((log, at)) => past::explain_node(&log, name, at, out),
            None => node::explain(&source.load(out)?, name, out),
        },
        What::Pool(NameArgs { name, source }) => pool::explain(&source.load(out)?, name, out),
        What::Tenant(NameArgs { name, source }) => tenant::explain(&source.load(out)?, name, out),
        What::Reason(ReasonArgs { name }) => explain_reason(name.as_deref(), out),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Explains one reason for pending pods, or all.
fn explain_reason(name: Option<&str>, out: &mut Output) -> Result<(), Failure> {
    let is_chosen = |reason: &str| name.is_none_or(|name| name.eq_ignore_ascii_case(reason));
    let chosen: Vec<_> = MEANINGS.iter().filter(|(reason, _)| is_chosen(reason)).collect();
    if let (Some(name), true) = (name, chosen.is_empty()) {
        return Err(Failure::missing("reason", name, MEANINGS.iter().map(|(reason, _)| *reason)));
    }
    for (reason, meaning) in chosen {
        writeln!(out, "{BOLD}{reason}{BOLD:#}\n  {meaning}")?;
    }
    Ok(())
}
