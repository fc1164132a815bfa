//! `croft lab up --real-node`, as a user runs it.

use std::{path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::lab::{Shown, croft, nothing_is_left, text};

/// Starts the lab, uses it by the kubeconfig that it prints, and stops it, also after a failure.
///
/// # Errors
/// The step that failed, with what the command said.
pub async fn check() -> anyhow::Result<()> {
    let state =
        tempfile::Builder::new().prefix("croft-lab-state-").tempdir().context("failed to make a folder")?;
    let lab = |arguments: &[&str]| said(croft(state.path())?.arg("lab").args(arguments));
    let used = lab(&["up", "--real-node"]).and_then(|printed| use_it(&printed));
    let down = lab(&["down"]);
    let kubeconfig = used?;
    down?;
    nothing_is_left(state.path()).await?;
    ensure!(!Path::new(&kubeconfig).exists(), "`croft lab down` left {kubeconfig}");
    let after = lab(&["down"])?;
    ensure!(after.contains("No lab is running."), "after `croft lab down`, another said: {after}");
    Ok(())
}

/// Returns the kubeconfig's path.
fn use_it(printed: &str) -> anyhow::Result<String> {
    let shown = Shown::read(printed)?;
    let ready = ["wait", "node/node-1", "node/node-2", "--for=condition=Ready", "--timeout=60s"];
    said(&mut shown.kubectl(&ready))?;
    let available = ["wait", "deployment", "--all", "--for=condition=Available", "--timeout=60s"];
    said(shown.kubectl(&available).arg("--namespace=croft-system"))?;
    Ok(shown.kubeconfig)
}

fn said(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("failed to run {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed ({}): {}", output.status, text(&output));
    Ok(text(&output))
}
