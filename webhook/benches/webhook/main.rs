//! The cost of admission: `make bench-webhook`.
//!
//! Three questions, each answered next to its reference, in one run on one computer:
//!
//! - How much of a server's capacity do evaluations take? Croft's server against the same server that reads the
//!   body and answers a constant review of the same size (the floor), over kept HTTP/1.1 connections with TLS 1.3.
//! - How long does it make a pod creation through the real API server? Against no policy at all, and against the
//!   equivalent MutatingAdmissionPolicy; and in Policy mode, where Croft's own policies pin the pod and the webhook isn't
//!   asked. The kinds take turns, one pod each, so that other load on the computer affects all of them alike. Each
//!   ValidatingAdmissionPolicy is measured alone, too.
//! - What does it need with 1,000 tenants, 10,000 namespaces and 5,000 nodes?
//!
//! The last line is a list of `key=value`. A denial, an answer without a patch and a refused connection are errors, and the
//! program fails if there was one.

mod args;
mod cluster;
mod each_policy;
mod floor;
mod latency;
mod load;

use std::{env, fmt::Write as _, process::ExitCode, time::Duration};

use anyhow::Context as _;
use clap::Parser as _;
use croft_policy::Mutation;
use croft_testkit::reviewer::Trust;

use crate::{
    args::{Args, Part},
    cluster::{Cluster, Webhook},
    floor::Floor,
    load::{CONNECTIONS, Figures, Target, run},
};

/// Pods of each kind for the latency, unless `CROFT_BENCH_PODS` says another number.
const PODS: usize = 400;
/// Of them, as many are created with each policy alone.
const SHARE_ALONE: usize = 4;

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
        // The program starts itself as the floor.
        Some("floor") => runtime.block_on(floor::serve(args.next().unwrap_or_default())),
        _ => runtime.block_on(bench(&Args::parse().parts)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Duration of each load.
fn seconds() -> anyhow::Result<Duration> {
    let text = env::var("CROFT_BENCH_SECONDS").unwrap_or_else(|_| "3".to_owned());
    Ok(Duration::from_secs(text.parse().context("failed to read CROFT_BENCH_SECONDS")?))
}

/// Number of pods of each kind for the latency.
fn pods() -> anyhow::Result<usize> {
    let text = env::var("CROFT_BENCH_PODS").unwrap_or_else(|_| PODS.to_string());
    text.parse().context("failed to read CROFT_BENCH_PODS")
}

/// Runs the named parts, or all of them.
async fn bench(parts: &[Part]) -> anyhow::Result<()> {
    let wanted = |part: Part| parts.is_empty() || parts.contains(&part);
    let each = seconds()?;
    let review = latency::captured_review()?;
    let mut cluster = Cluster::start().await?;
    let mut line = "bench-webhook:".to_owned();
    let mut errors = 0;
    let webhook = cluster.webhook(1).await?;
    if wanted(Part::Capacity) {
        let (floor, croft) = capacity(&cluster, &webhook, &review, each, &mut errors).await?;
        write!(
            line,
            " floor_rps={:.0} floor_ratio={:.2} cpu_us={:.2} floor_cpu_us={:.2} p99_ms_2_tenants={:.2}",
            floor.per_second,
            croft.per_second / floor.per_second,
            croft.cpu_micros,
            floor.cpu_micros,
            croft.p99_ms
        )?;
    }
    if wanted(Part::Latency) {
        line.push_str(&added(&mut cluster, &mut errors).await?);
    }
    webhook.stop().await?;
    if wanted(Part::Size) {
        let Size { rss_mb, ready_ms, p99_ms, cpu_micros } =
            at_size(&mut cluster, &review, each, &mut errors).await?;
        write!(
            line,
            " rss_mb={rss_mb:.0} p99_ms={p99_ms:.2} cpu_us_size={cpu_micros:.2} ready_ms={ready_ms}"
        )?;
    }
    cluster.stop()?;
    println!("\n{line} errors={errors}");
    anyhow::ensure!(errors == 0, "{errors} answers are errors: the figures are void");
    Ok(())
}

/// The resources of a webhook in a large cluster.
struct Size {
    rss_mb: f64,
    ready_ms: u128,
    /// At the most connections.
    p99_ms: f64,
    /// CPU of a review, at the most connections.
    cpu_micros: f64,
}

/// With two tenants: the figures of the reference and of Croft, at the most connections.
async fn capacity(
    cluster: &Cluster,
    webhook: &Webhook,
    review: &[u8],
    each: Duration,
    errors: &mut usize,
) -> anyhow::Result<(Figures, Figures)> {
    let trust = Trust::new(&cluster.bundle().await?, "127.0.0.1")?;
    let answer = load::one(webhook.address, &trust, review).await?;
    let ours = Target { name: "croft", address: webhook.address, pid: webhook.pid, trust };
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
        // They take turns, so that other load on the computer affects both alike.
        let mut rounds = (Vec::new(), Vec::new());
        for _ in 0..3 {
            rounds.0.push(run(&floor_target, review, connections, each).await?);
            rounds.1.push(run(&ours, review, connections, each).await?);
        }
        let (floor, croft) = (Figures::median(&rounds.0), Figures::median(&rounds.1));
        println!("{}\n{}", floor.line("floor", connections), croft.line("croft, 2 tenants", connections));
        *errors += floor.errors + croft.errors;
        at_64 = Some((floor, croft));
    }
    at_64.context("nothing was measured")
}

/// Through the API server.
async fn added(cluster: &mut Cluster, errors: &mut usize) -> anyhow::Result<String> {
    let pods = pods()?;
    println!("\npod creation through the API server, median of {pods} each, taking turns");
    cluster.without_policies().await?;
    let two = latency::mutation(cluster, pods).await?;
    println!("{two}");
    cluster.policies(Mutation::Webhook).await?;
    let both = latency::both(cluster, pods).await?;
    println!("with the generated policies: {both}");
    let each = each_policy::measure(cluster, (pods / SHARE_ALONE).max(1)).await?;
    println!("{each}");
    cluster.policies(Mutation::Policy).await?;
    let policy = latency::policy_mode(cluster, pods).await?;
    println!("Policy mode: {policy}");
    cluster.without_policies().await?;
    cluster.tenants(200).await?;
    let many = latency::mutation(cluster, pods).await?;
    println!("200 tenants: {many}");
    cluster.policies(Mutation::Policy).await?;
    let policy_many = latency::policy_mode(cluster, pods).await?;
    println!("200 tenants, Policy mode: {policy_many}");
    cluster.without_policies().await?;
    *errors += two.errors + both.errors + each.errors + policy.errors + many.errors + policy_many.errors;
    Ok(format!(
        " added_ms={:.2} map_added_ms={:.2} both_added_ms={:.2} policy_added_ms={:.2} added_ms_200_tenants={:.2} \
         policy_added_ms_200_tenants={:.2}{}",
        two.added_by_croft(),
        two.added_by_policy(),
        both.added_by_croft(),
        policy.added(),
        many.added_by_croft(),
        policy_many.added(),
        each.figures()?,
    ))
}

/// With 1,000 tenants, 10,000 namespaces and 5,000 nodes.
async fn at_size(
    cluster: &mut Cluster,
    review: &[u8],
    each: Duration,
    errors: &mut usize,
) -> anyhow::Result<Size> {
    cluster.grow(1_000, 10_000, 5_000).await?;
    let webhook = cluster.webhook(2).await?;
    let ready_ms = webhook.ready.as_millis();
    println!("\n1,000 tenants, 10,000 namespaces, 5,000 nodes: ready after {ready_ms} ms");
    let resting = load::rss_megabytes(webhook.pid)?;
    let trust = Trust::new(&cluster.bundle().await?, "127.0.0.1")?;
    let ours = Target { name: "croft", address: webhook.address, pid: webhook.pid, trust };
    println!("{}", Figures::HEAD);
    let (mut p99_ms, mut cpu_micros) = (f64::NAN, f64::NAN);
    for connections in CONNECTIONS {
        let figures = run(&ours, review, connections, each).await?;
        *errors += figures.errors;
        println!("{}", figures.line("croft, whole size", connections));
        (p99_ms, cpu_micros) = (figures.p99_ms, figures.cpu_micros);
    }
    let loaded = load::rss_megabytes(webhook.pid)?;
    println!("RSS {resting:.1} MB at rest, {loaded:.1} MB after the load");
    webhook.stop().await?;
    Ok(Size { rss_mb: loaded.max(resting), ready_ms, p99_ms, cpu_micros })
}
