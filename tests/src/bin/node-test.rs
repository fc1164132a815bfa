//! `make node-test`: Croft's own Deployments on two real nodes, in namespaces of their own, as root.

use std::{
    path::PathBuf,
    process::{ExitCode, Stdio},
};

use anyhow::Context as _;
use clap::Parser;
use croft_testkit::nodes::{Inside, Namespaces, Parts};
use croft_tests::node::{inside, lab};
use tokio::signal::unix::{SignalKind, signal};

/// Set by a user who accepts that the test doesn't run.
const SKIP: &str = "SKIP_NODE";

/// Runs Croft's webhook and controller from their images on two real nodes.
#[derive(Parser)]
struct Args {
    /// Run in the present namespaces, with this cgroup
    #[arg(long, hide = true, requires = "folder")]
    inside: Option<String>,
    /// Folder of the inner half's files
    #[arg(long, hide = true)]
    folder: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    croft_runtime::process::install_crypto();
    let parts = Parts::find()?;
    match Args::parse() {
        Args { inside: Some(cgroups), folder: Some(folder) } => {
            inside::run(&parts, &Inside { cgroups, folder }).await
        }
        _ => outside(&parts).await,
    }
}

/// Runs the test in namespaces of its own, and removes everything that it made.
async fn outside(parts: &Parts) -> anyhow::Result<ExitCode> {
    let missing = parts.missing();
    if !missing.is_empty() {
        let accepted = std::env::var(SKIP).is_ok_and(|value| value == "1");
        let what = missing.join("; ");
        println!("node-test: skipped: {what}{}", if accepted { "" } else { "; SKIP_NODE=1 accepts this" });
        return Ok(if accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let folder =
        tempfile::Builder::new().prefix("croft-node-").tempdir().context("failed to make a folder")?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut namespaces = Namespaces::start::<&str>([], folder.path().to_owned(), true, Stdio::inherit())?;
    let status = tokio::select! {
        status = namespaces.wait() => Some(status?),
        _ = tokio::signal::ctrl_c() => None,
        _ = terminated.recv() => None,
    };
    namespaces.end().await?;
    if !status.is_some_and(|status| status.success()) {
        return Ok(ExitCode::FAILURE);
    }
    lab::check().await.context("`croft lab up --real-node`")?;
    println!("node-test: `croft lab up --real-node` started, was used and stopped");
    Ok(ExitCode::SUCCESS)
}
