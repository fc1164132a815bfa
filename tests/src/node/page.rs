//! `croft page`, as a user runs it: only on a real node can a port be forwarded to the page's pod.

use std::{env, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use croft_testkit::{
    Assets, ControlPlane,
    nodes::{self, Parts},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::page_reader::PageReader;

const WITHIN: Duration = Duration::from_secs(60);

/// Reads the page through the port that the command forwards, with the token that it prints and without one.
///
/// # Errors
/// The step that failed.
pub async fn check(plane: &ControlPlane, parts: &Parts) -> anyhow::Result<()> {
    let kubectl = Assets::from_env()?.binary("kubectl")?;
    let folder = kubectl.parent().context("kubectl is in no folder")?;
    let system = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([folder.to_owned()].into_iter().chain(env::split_paths(&system)));
    let mut page = Command::new(parts.binaries.join("croft"))
        .arg("page")
        .env("KUBECONFIG", plane.admin_kubeconfig())
        .env("PATH", path.context("failed to join PATH")?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to run croft page")?;
    let mut lines = BufReader::new(page.stdout.take().context("croft page has no output")?).lines();
    let first =
        timeout(WITHIN, lines.next_line()).await.context("croft page printed no address in time")??;
    let first = first.context("croft page ended")?;
    let (address, token) =
        first.split_once("/#token=").with_context(|| format!("{first:?} is no address that signs in"))?;
    let reader = PageReader::at(address)?;
    let refused = reader.get("/api/v1/overview").await?;
    ensure!(refused.status == 401, "without a token the page answered {refused:?}");
    let answer = reader.with_token(token).get("/api/v1/overview").await?;
    let tenants = answer.json().pointer("/tenants").and_then(Value::as_array).map_or(0, Vec::len);
    ensure!(answer.status == 200 && tenants == 2, "the page answered {answer:?}");
    let id = page.id().context("croft page ended")?;
    nodes::run("kill", &["-INT", &id.to_string()]).await?;
    let status = timeout(WITHIN, page.wait()).await.context("croft page didn't end after Ctrl-C")??;
    ensure!(status.success(), "croft page ended with {status}");
    Ok(())
}
