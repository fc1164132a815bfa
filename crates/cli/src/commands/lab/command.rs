//! Arguments and steps of the command.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::{
    demo,
    folder::LabFolder,
    keeper::{self, Contents},
    load::Load,
    real_nodes::{self, InsideArgs},
    status,
};
use crate::{failure::Failure, output::Output};

/// Arguments of `croft lab`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum LabCommand {
    /// Start the lab and leave it running; prints the KUBECONFIG to use
    Up(UpArgs),
    /// Stop the lab and remove what it wrote
    Down,
    /// Show whether the lab runs, its processes, and their logs
    Status,
    /// Show two tenants getting their own instances and scaling down again, then stop everything
    Demo,
}

#[derive(Args, Clone, Debug)]
struct UpArgs {
    /// Stay in the foreground until Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Only the control plane, without Croft and the EC2 simulator
    #[arg(long)]
    bare: bool,
    /// Play a load: `city` is a day of 20 tenants at 60 times speed, over and over
    #[arg(long, value_enum, conflicts_with_all = ["bare", "real_node"])]
    load: Option<Load>,
    /// Run Croft from its images on two real nodes (kubelet, containerd), as root; `make node-images` builds them
    #[arg(long, conflicts_with = "bare")]
    real_node: bool,
    /// Used by `up` itself: end if standard input ends before it contains `stay`
    #[arg(long, hide = true, requires = "foreground")]
    leashed: bool,
    #[command(flatten)]
    inside: InsideArgs,
}

impl UpArgs {
    fn contents(&self) -> Contents {
        match (self.bare, self.real_node, self.load) {
            (true, ..) => Contents::Bare,
            (false, true, _) => Contents::RealNodes,
            (false, false, Some(load)) => Contents::Load(load),
            (false, false, None) => Contents::Croft,
        }
    }
}

/// Runs `croft lab`.
///
/// # Errors
/// If a process doesn't start, with the end of its log.
pub(crate) fn run(args: &LabArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the async runtime")?;
    let code = runtime.block_on(async {
        match &args.command {
            LabCommand::Up(args) => match args.inside.given() {
                Some(given) => {
                    real_nodes::inside(&LabFolder::find()?, &given, out).await.map(|()| ExitCode::SUCCESS)
                }
                None if args.foreground => keeper::keep(args.contents(), args.leashed, out).await,
                None => keeper::up(args.contents(), out).await,
            },
            LabCommand::Down => keeper::down(out).await,
            LabCommand::Status => status::status(out),
            LabCommand::Demo => demo::run(out).await,
        }
    });
    // A blocked read of standard input doesn't delay the exit.
    runtime.shutdown_background();
    Ok(code?)
}
