//! `croft lab up --real-node`, as a user runs it.

use std::{path::Path, process::Output};

use anyhow::{Context as _, ensure};
use croft_testkit::{Assets, nodes::Parts};
use tokio::process::Command;

/// Starts the lab, uses it by the kubeconfig that it prints, and stops it, also after a failure.
///
/// # Errors
/// The step that failed, with what the command said.
pub async fn check(parts: &Parts) -> anyhow::Result<()> {
    let home =
        tempfile::Builder::new().prefix("croft-lab-home-").tempdir().context("failed to make a folder")?;
    let used = match croft(parts, home.path(), &["lab", "up", "--real-node"]).await {
        Ok(said) => use_it(&said).await,
        Err(error) => Err(error),
    };
    let down = croft(parts, home.path(), &["lab", "down"]).await;
    let kubeconfig = used?;
    down?;
    ensure!(!Path::new(&kubeconfig).exists(), "`croft lab down` left {kubeconfig}");
    let after = croft(parts, home.path(), &["lab", "down"]).await?;
    ensure!(after.contains("No lab is running."), "after `croft lab down`, another said: {after}");
    Ok(())
}

/// Returns the kubeconfig's path.
async fn use_it(said: &str) -> anyhow::Result<String> {
    let kubeconfig =
        said.lines().find_map(|line| Some(line.split_once("export KUBECONFIG=")?.1.trim().to_owned()));
    let kubeconfig = kubeconfig.with_context(|| format!("`croft lab up` named no kubeconfig: {said}"))?;
    let kubectl = Assets::from_env()?.binary("kubectl")?;
    for arguments in [
        ["wait", "node/node-1", "node/node-2", "--for=condition=Ready", "--timeout=60s"].as_slice(),
        &[
            "wait",
            "deployment",
            "--all",
            "--namespace=croft-system",
            "--for=condition=Available",
            "--timeout=60s",
        ],
    ] {
        let mut command = Command::new(&kubectl);
        command.args(arguments).env("KUBECONFIG", &kubeconfig);
        said_by(command.output().await.context("failed to run kubectl")?, &arguments.join(" "))?;
    }
    Ok(kubeconfig)
}

async fn croft(parts: &Parts, home: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(parts.binaries.join("croft"));
    command.args(arguments).env("XDG_STATE_HOME", home);
    said_by(command.output().await.context("failed to run croft")?, &arguments.join(" "))
}

fn said_by(output: Output, command: &str) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "`{command}` failed ({}): {said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}
