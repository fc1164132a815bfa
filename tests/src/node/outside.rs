//! The outer half: what must be there, and the namespaces that the test runs in.

use std::{env, path::Path, process::ExitCode};

use anyhow::Context as _;
use croft_testkit::Reaper;
use tokio::signal::unix::{SignalKind, signal};

use crate::node::{Parts, cgroups::Cgroups};

/// Programs of the system that the test starts, with their Debian packages.
const NEEDED: [(&str, &str); 6] = [
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("runc", "runc"),
    ("iptables", "iptables"),
];
/// Set by a user who accepts that the test doesn't run.
const SKIP: &str = "SKIP_NODE";

/// Runs the test in namespaces of its own, by this program with `arguments`, and removes everything that it made.
///
/// # Errors
/// If the namespaces or cgroups can't be made.
pub async fn run(parts: &Parts, arguments: &[String]) -> anyhow::Result<ExitCode> {
    let missing = missing(parts);
    if !missing.is_empty() {
        let accepted = env::var(SKIP).is_ok_and(|value| value == "1");
        let what = missing.join("; ");
        println!("node-test: skipped: {what}{}", if accepted { "" } else { "; SKIP_NODE=1 accepts this" });
        return Ok(if accepted { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let cgroups = Cgroups::create()?;
    let this = env::current_exe().context("failed to find out where this program is")?;
    let folder =
        tempfile::Builder::new().prefix("croft-node-").tempdir().context("failed to make a folder")?;
    let reaper = Reaper::start()?;
    reaper.remove(folder.path())?;
    // The new process is the first of its process namespace: everything in there ends with it. --kill-child ends it with
    // unshare, and the reaper ends unshare with this process.
    let mut command = tokio::process::Command::new("unshare");
    command
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "--propagation",
            "private",
        ])
        .arg(this)
        .args(arguments)
        .arg(format!("--inside={}", cgroups.name()))
        .arg(format!("--folder={}", folder.path().display()))
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().context("failed to start unshare")?;
    let id = child.id().context("unshare has no process id")?;
    reaper.watch(id)?;
    let mut terminated = signal(SignalKind::terminate())?;
    let status = tokio::select! {
        status = child.wait() => Some(status.context("failed to wait for unshare")?),
        _ = tokio::signal::ctrl_c() => None,
        _ = terminated.recv() => None,
    };
    if status.is_none() {
        child.kill().await.context("failed to end unshare")?;
    }
    reaper.forget(id)?;
    Ok(if status.is_some_and(|status| status.success()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prerequisites that are missing, each with its remedy.
fn missing(parts: &Parts) -> Vec<String> {
    let mut missing = Vec::new();
    if !is_root() {
        missing.push("not root: run `sudo -E make node-test`".to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    for (program, package) in NEEDED {
        if !env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
            missing.push(format!("{program} isn't installed (package {package})"));
        }
    }
    for (program, folder, how) in [
        ("kubelet", &parts.programs, "run node/build.sh"),
        ("croft-webhook.tar", &parts.images, "run `make images`"),
        ("croft-controller.tar", &parts.images, "run `make images`"),
        ("pause.tar", &parts.images, "run `make node-test`, which makes it"),
        ("ec2-sim", &parts.binaries, "run `cargo build --workspace --bins`"),
    ] {
        if !folder.join(program).is_file() {
            missing.push(format!("{program} isn't in {}: {how}", folder.display()));
        }
    }
    missing
}

fn is_root() -> bool {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)).is_some_and(|effective| effective == "0")
}
