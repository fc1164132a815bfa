//! `croft lab` leaves only the intended processes running.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use croft_testkit::{
    CroftOptions,
    wait::{Seen, until},
};

const SOON: Duration = Duration::from_secs(60);

fn croft(state: &Path) -> Command {
    let mut command = Command::new(CroftOptions::find().unwrap().binaries.join("croft"));
    command.env("XDG_STATE_HOME", state).env("TMPDIR", state).stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Processes whose command line names a path under `folder`.
fn processes_of(folder: &Path) -> Vec<String> {
    let list = Command::new("ps").args(["-axww", "-o", "pid=,stat=,args="]).output().unwrap();
    let folder = folder.display().to_string();
    text(&list).lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect()
}

async fn nothing_is_left(state: &Path) {
    until("the end of every process", SOON, async || {
        let left = processes_of(state);
        Ok::<_, String>(Seen::from_option(left.is_empty().then_some(()), left.join("; ")))
    })
    .await
    .unwrap();
}

/// Its own folder, so that the user's lab is not affected.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("croft-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn up_leaves_a_lab_running_and_down_ends_it() {
    let state = folder("up");
    let status = croft(&state).args(["lab", "status"]).output().unwrap();
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));

    let up = croft(&state).args(["lab", "up", "--bare"]).output().unwrap();
    assert!(up.status.success(), "{}", text(&up));
    let shown = text(&up);
    let kubeconfig = shown.lines().find_map(|line| line.split_once("export KUBECONFIG=")).unwrap().1;
    let kubectl = shown.lines().find_map(|line| line.strip_prefix("kubectl:")).unwrap().trim();
    let ready = Command::new(kubectl)
        .args(["get", "--raw", "/readyz"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap();
    assert_eq!(text(&ready), "ok");

    let again = croft(&state).args(["lab", "up", "--bare"]).output().unwrap();
    assert!(again.status.success() && text(&again).contains("runs already"), "{}", text(&again));
    assert!(croft(&state).args(["lab", "status"]).status().unwrap().success());

    let down = croft(&state).args(["lab", "down"]).output().unwrap();
    assert!(down.status.success(), "{}", text(&down));
    nothing_is_left(&state).await;
    assert!(!Path::new(kubeconfig).exists());
    std::fs::remove_dir_all(&state).unwrap();
}

#[tokio::test]
async fn interrupted_demo_leaves_nothing() {
    // At the first line, and once everything is up.
    for (index, moment) in ["starting etcd", "applied workloads.yaml"].iter().enumerate() {
        let state = folder(&format!("demo-{index}"));
        let mut demo = croft(&state)
            .args(["lab", "demo"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains(moment)), "{moment}");
        assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
        assert!(lines.any(|line| line.contains("Nothing is left running")));
        assert_eq!(demo.wait().unwrap().code(), Some(130));
        nothing_is_left(&state).await;
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "{}", state.display());
        std::fs::remove_dir_all(&state).unwrap();
    }
}
