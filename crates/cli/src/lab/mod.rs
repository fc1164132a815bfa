//! `croft lab`: the real control plane, an EC2 simulator and Croft itself, on this machine.
//!
//! ```text
//!   croft lab up ──starts──▶ keeper (croft lab up --foreground) ──▶ ControlPlane ──▶ Croft
//!        │ reads progress until it is up, then leaves   │ holds the lock, writes state.json
//!   croft lab status ──reads──────────────────────────▶ │
//!   croft lab down ──SIGTERM, waits for the lock──────▶ ends, and everything with it
//!
//!   croft lab demo: a control plane of its own, in the foreground
//! ```
//!
//! One process owns everything that runs; when it goes, however it goes, all of it goes.

mod demo;
mod keeper;
mod place;
mod progress;
mod view;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use croft_testkit::{ControlPlane, Croft, CroftOptions, Options, Part};

use crate::{failure::Failure, output::Output};
use progress::Progress;

/// What `croft lab` does.
#[derive(Args, Clone, Debug)]
pub struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum LabCommand {
    /// Start the lab and leave it running; prints the KUBECONFIG to use
    Up(UpArgs),
    /// Stop the lab and remove what it wrote
    Down,
    /// Say whether the lab runs, what runs in it, and where its logs are
    Status,
    /// Show two tenants getting machines of their own and giving them back, then stop everything
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
    /// Used by `up` itself: end when standard input ends before it said to stay
    #[arg(long, hide = true, requires = "foreground")]
    leashed: bool,
}

/// Runs `croft lab`.
///
/// # Errors
/// When something doesn't start, with the end of the log that says why.
pub fn run(args: &LabArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the async runtime")?;
    let code = runtime.block_on(async {
        match &args.command {
            LabCommand::Up(UpArgs { foreground: true, bare, leashed }) => {
                keeper::keep(*bare, *leashed, out).await
            }
            LabCommand::Up(UpArgs { foreground: false, bare, leashed: _ }) => keeper::up(*bare, out).await,
            LabCommand::Down => keeper::down(out).await,
            LabCommand::Status => keeper::status(out),
            LabCommand::Demo => demo::run(out).await,
        }
    });
    // A thread may be reading a standard input that nobody writes to; the exit doesn't wait for it.
    runtime.shutdown_background();
    Ok(code?)
}

/// The control plane, with a line per step.
async fn start_plane(options: Options, progress: &mut Progress<'_>) -> anyhow::Result<ControlPlane> {
    progress.line("starting etcd, API server, controller manager, scheduler, and KWOK for the kubelets")?;
    let plane = ControlPlane::start(options).await?;
    progress.line(&format!("control plane is up: {}", plane.url()))?;
    Ok(plane)
}

/// Croft on it, with a line per step.
async fn start_croft(plane: &ControlPlane, progress: &mut Progress<'_>) -> anyhow::Result<Croft> {
    let mut croft = Croft::install(plane, CroftOptions::find()?).await?;
    progress.line("installed custom resources, rights and webhook configurations from manifests/install")?;
    for part in Part::ALL {
        croft.resume(plane, part).await?;
        let what = match part {
            Part::Cloud => format!("ec2-sim is up: http://{}", croft.address(part)?),
            Part::Webhook => "croft-webhook is up, with a certificate of its own making".to_owned(),
            Part::Controller => "croft-controller is up".to_owned(),
        };
        progress.line(&what)?;
    }
    Ok(croft)
}
