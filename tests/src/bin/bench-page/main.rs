//! The page with 50 tenants, 1,000 nodes and 10,000 pods, in headless Chromium: `make bench-page`. The API server is real; nodes and
//! pods are written to it without controllers, of which a quarter belong to one tenant. The last line is a list of `key=value`.
//!
//! - `first_view_ms`: from the start of the navigation to the frame with the overview, signing in included; the median of five.
//! - `event_ms`: from before a node's status is written to the page's change of that node; the longest of ten.
//! - `drain_ms`: from before the taint of a node's removal is written to the page's change of that node; the longest of ten.
//! - `longest_task_ms`: the longest task of the browser's main thread while views are scrolled and nodes change; 0 below 50.
//! - `kb`: the page's files, compressed.
//! - `ledger_mb`, `log_mb_day`: as `record` says.
//! - `model_1000_ms`, `model_10000_ms`: to build the page's model, as `model` says.
//!
//! `bench-page model` measures the model alone, without a control plane and without a browser.

mod fill;
mod model;
mod record;
mod view;

use croft_testkit::{Browser, Component, ControlPlane, Croft, CroftOptions, Options, Part};
use croft_tests::page_reader::{AUDIENCE, OPERATOR};

use crate::view::Change;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model =
        format!("model_1000_ms={:.1} model_10000_ms={:.1}", model::build(1_000)?, model::build(10_000)?);
    if std::env::args().nth(1).as_deref() == Some("model") {
        println!("bench-page: {model}");
        return Ok(());
    }
    croft_runtime::process::install_crypto();
    let (ledger, log) = (record::ledger_megabytes(), record::log_megabytes_a_day());
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Scheduler)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await?;
    let mut croft = Croft::install(&plane, CroftOptions::find()?.page()).await?;
    // Nothing keeps what they read up to date here.
    for kind in ["validatingadmissionpolicybindings", "mutatingadmissionpolicybindings"] {
        plane.kubectl(["delete", kind, "--all"]).await?;
    }
    let client = plane.admin().await?;
    fill::fill(&client, croft.namespace()).await?;
    croft.resume(&plane, Part::Page).await?;
    let token = plane.token_for(OPERATOR.0, OPERATOR.1, Some(AUDIENCE)).await?;
    let origin = format!("https://{}", croft.address(Part::Page)?);
    let mut browser = Browser::start()?;
    let first_view = view::first_view(&mut browser, &origin, &token).await?;
    let event = view::longest_change(&mut browser, &origin, &token, &client, Change::NotReady).await?;
    let drain = view::longest_change(&mut browser, &origin, &token, &client, Change::Draining).await?;
    let longest = view::longest_task(&mut browser, &origin, &token, &client).await?;
    browser.end().await?;
    let kb = view::kilobytes().await?;
    println!(
        "bench-page: first_view_ms={first_view:.0} event_ms={event} drain_ms={drain} longest_task_ms={longest:.0} kb={kb:.1} \
         ledger_mb={ledger:.1} log_mb_day={log:.1} {model}"
    );
    Ok(())
}
