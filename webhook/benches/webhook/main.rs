//! What admission costs: `make bench-webhook`.
//!
//! Three questions, each answered next to what it must be compared with, in one run on one machine:
//!
//! - How much of a server's capacity does judging take? Croft's server against the same server that reads the
//!   body and answers a constant review of the same size (the floor), over kept HTTP/1.1 connections with TLS 1.3.
//! - How long does it make a pod creation through the real API server? Against no policy at all, and against the
//!   equivalent MutatingAdmissionPolicy. The kinds take turns, one pod each, so that whatever else the machine does
//!   falls on all of them alike.
//! - What does it need with 1,000 tenants, 10,000 namespaces and 5,000 nodes?
//!
//! The last line is for machines.

mod cluster;
mod floor;
mod latency;
mod load;

use std::{env, process::ExitCode, time::Duration};

use anyhow::Context as _;
use croft_testkit::reviewer::Trust;

use crate::{
    cluster::Cluster,
    floor::Floor,
    load::{CONNECTIONS, Figures, Target, run},
};

/// Pods of each kind for the latency.
const PODS: usize = 400;

fn main() -> ExitCode {
    croft_runtime::process::install_crypto();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("failed to start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut args = env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("floor") => runtime.block_on(floor::serve(args.next().unwrap_or_default())),
        // `cargo bench` gives `--bench`.
        _ => runtime.block_on(bench()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// How long each load lasts.
fn seconds() -> anyhow::Result<Duration> {
    let text = env::var("CROFT_BENCH_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Ok(Duration::from_secs(text.parse().context("failed to read CROFT_BENCH_SECONDS")?))
}

async fn bench() -> anyhow::Result<()> {
    let each = seconds()?;
    let mut errors = 0;
    let mut cluster = Cluster::start().await?;

    // Two tenants.
    let webhook = cluster.webhook(1).await?;
    let review = latency::captured_review()?;
    let trust = Trust::new(&cluster.bundle().await?, "127.0.0.1")?;
    let answer = load::one(webhook.address, &trust, &review).await?;
    let ours = Target { name: "croft", address: webhook.address, pid: webhook.pid, trust: trust.clone() };
    let floor = Floor::start(&answer).await?;
    let floor_target =
        Target { name: "floor", address: floor.address, pid: floor.pid, trust: floor.trust.clone() };
    println!(
        "mutating review of {} bytes, answer of {} bytes, HTTP/1.1, TLS 1.3",
        review.len(),
        answer.len()
    );
    println!("{}", Figures::HEAD);
    let mut at_64 = None;
    for connections in CONNECTIONS {
        // They take turns, so that neither has the machine's better moments.
        let mut rounds = (Vec::new(), Vec::new());
        for _ in 0..3 {
            rounds.0.push(run(&floor_target, &review, connections, each).await?);
            rounds.1.push(run(&ours, &review, connections, each).await?);
        }
        let (floor, croft) = (Figures::median(&rounds.0), Figures::median(&rounds.1));
        println!("{}\n{}", floor.line("floor", connections), croft.line("croft, 2 tenants", connections));
        errors += floor.errors + croft.errors;
        at_64 = Some((floor, croft));
    }
    let (floor_figures, croft_figures) = at_64.context("nothing was measured")?;
    drop(floor);

    // Through the API server.
    println!("\npod creation through the API server, median of {PODS} each, taking turns");
    let two = latency::mutation(&cluster, PODS).await?;
    println!("{two}");
    cluster.policies(true).await?;
    let both = latency::both(&cluster, PODS).await?;
    println!("with the generated policies: {both}");
    cluster.policies(false).await?;
    cluster.tenants(200).await?;
    let many = latency::mutation(&cluster, PODS).await?;
    println!("200 tenants: {many}");
    errors += two.errors + both.errors + many.errors;

    // The whole size.
    webhook.stop().await?;
    cluster.grow(1_000, 10_000, 5_000).await?;
    let webhook = cluster.webhook(2).await?;
    println!("\n1,000 tenants, 10,000 namespaces, 5,000 nodes: ready after {} ms", webhook.ready.as_millis());
    let resting = load::rss_megabytes(webhook.pid)?;
    let trust = Trust::new(&cluster.bundle().await?, "127.0.0.1")?;
    let ours = Target { name: "croft", address: webhook.address, pid: webhook.pid, trust };
    println!("{}", Figures::HEAD);
    for connections in CONNECTIONS {
        let figures = run(&ours, &review, connections, each).await?;
        errors += figures.errors;
        println!("{}", figures.line("croft, whole size", connections));
    }
    let loaded = load::rss_megabytes(webhook.pid)?;
    println!("RSS {resting:.1} MB at rest, {loaded:.1} MB after the load");
    let ready = webhook.ready.as_millis();
    webhook.stop().await?;
    cluster.stop()?;

    println!(
        "bench-webhook: floor_rps={:.0} floor_ratio={:.2} added_ms={:.2} map_added_ms={:.2} both_added_ms={:.2} \
         added_ms_200_tenants={:.2} rss_mb={:.0} p99_ms={:.2} ready_ms={ready} errors={errors}",
        floor_figures.per_second,
        croft_figures.per_second / floor_figures.per_second,
        two.added_by_croft(),
        two.added_by_policy(),
        both.added_by_croft(),
        many.added_by_croft(),
        loaded.max(resting),
        croft_figures.p99_ms,
    );
    Ok(())
}
