//! `croft lab` leaves only the intended processes running.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use croft_testkit::Browser;
use croft_tests::lab::{self, Shown, text};
use serde_json::{Value, json};

fn croft(state: &Path) -> Command {
    lab::croft(state).unwrap()
}

async fn nothing_is_left(state: &Path) {
    lab::nothing_is_left(state).await.unwrap();
}

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
    let shown = Shown::read(&text(&up)).unwrap();
    let ready = shown.kubectl(&["get", "--raw", "/readyz"]).output().unwrap();
    assert_eq!(text(&ready), "ok");

    let again = croft(&state).args(["lab", "up", "--bare"]).output().unwrap();
    assert!(again.status.success() && text(&again).contains("runs already"), "{}", text(&again));
    assert!(croft(&state).args(["lab", "status"]).status().unwrap().success());

    let down = croft(&state).args(["lab", "down"]).output().unwrap();
    assert!(down.status.success(), "{}", text(&down));
    nothing_is_left(&state).await;
    assert!(!Path::new(&shown.kubeconfig).exists());
    std::fs::remove_dir_all(&state).unwrap();
}

/// The address that the demo printed signs in, and shows its tenants and a node of each.
async fn page_shows_both_tenants(address: &str) {
    let (origin, _) = address.split_once("/#").unwrap();
    let mut browser = Browser::start().unwrap();
    let mut ask = async |mut command: Value| {
        command["session"] = json!("demo");
        browser.ask(&command).await.unwrap()
    };
    ask(json!({"do": "session", "origin": origin, "scheme": "light"})).await;
    ask(json!({"do": "goto", "url": address})).await;
    for tenant in ["tenant-a", "tenant-b"] {
        ask(json!({"do": "appears", "selector": "table a", "text": tenant})).await;
    }
    for pool in ["pool-a", "pool-b"] {
        ask(json!({"do": "goto", "url": format!("{origin}/#/pools/{pool}")})).await;
        ask(json!({"do": "appears", "selector": ".block", "text": ""})).await;
    }
    let found = ask(json!({"do": "errors"})).await;
    assert_eq!(found["errors"], json!([]));
    browser.end().await.unwrap();
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
        let mut page = None;
        let is_there = lines.any(|line| {
            page = page.take().or_else(|| {
                line.split_whitespace().find(|word| word.contains("/#token=")).map(str::to_owned)
            });
            line.contains(moment)
        });
        assert!(is_there, "{moment}");
        if index == 1 {
            page_shows_both_tenants(&page.expect("the demo prints the page's address")).await;
        }
        assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
        assert!(lines.any(|line| line.contains("Nothing is left running")));
        assert_eq!(demo.wait().unwrap().code(), Some(130));
        nothing_is_left(&state).await;
        assert_eq!(std::fs::read_dir(&state).unwrap().count(), 0, "{}", state.display());
        std::fs::remove_dir_all(&state).unwrap();
    }
}
