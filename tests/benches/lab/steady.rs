//! 2,000 nodes and 20,000 pods: resources of the controller in a steady state.

use std::{
    fmt::{self, Display},
    time::Duration,
};

use anyhow::Context as _;
use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::stack::is_ready;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    cluster::{self, Load, MeasuredCluster},
    processes::{Usage, cpu_seconds, rss_megabytes},
    stopwatch::Stopwatch,
};

const TENANTS: usize = 20;
const NODES: usize = 2_000;
/// Ten of them fill the node's 3.92 cpu.
const PODS_ON_EACH: usize = 10;
const CPU: &str = "390m";
const MEMORY: &str = "512Mi";
/// Time after which the effects of the last pods are over.
const SETTLE: Duration = Duration::from_secs(90);
/// Duration of the measurement.
const LOOK: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(900);

/// The figures.
#[derive(Debug)]
pub(crate) struct Figures {
    rss_mb: f64,
    peak_rss_mb: f64,
    idle_cores: f64,
    requests_per_node: f64,
    /// With those for pods, events and the Lease.
    all_requests_per_node: f64,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rss_mb, peak_rss_mb, idle_cores, requests_per_node, all_requests_per_node } = self;
        write!(
            f,
            "rss_mb={rss_mb:.0} peak_rss_mb={peak_rss_mb:.0} idle_cores={idle_cores:.3} \
             requests_per_node={requests_per_node:.2} all_requests_per_node={all_requests_per_node:.2}"
        )
    }
}

/// Number of nodes. CROFT_BENCH_NODES makes the benchmark shorter, and its figures not comparable.
fn nodes() -> anyhow::Result<usize> {
    match std::env::var("CROFT_BENCH_NODES") {
        Ok(text) => text.parse().context("failed to read CROFT_BENCH_NODES"),
        Err(_) => Ok(NODES),
    }
}

pub(crate) async fn run() -> anyhow::Result<Figures> {
    let wanted = nodes()?;
    let pods = wanted * PODS_ON_EACH;
    let load = Load { replicas: pods / TENANTS, cpu: CPU, memory: MEMORY };
    let requirements = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]);
    // The defaults.
    let cluster = MeasuredCluster { tenants: TENANTS, requirements, disruption: json!({}) };
    println!("\n{wanted} nodes and {pods} pods");
    let (mut stack, mut audit) = cluster.start().await?;
    let client = stack.plane.admin().await?;
    let mut watch = Stopwatch::start(client.clone());
    audit.take()?;
    let before = Usage::of(&stack)?;
    let begun = Instant::now();
    cluster.deploy(&client, load).await?;
    let bound = watch.until(|count| count.bound == pods).await?.duration_since(begun).as_secs_f64();
    watch.until(|count| count.running == pods).await?;
    until("every claim to be ready", PATIENCE, async || {
        let claims = cluster::claims(&client).await?;
        let ready = claims.iter().filter(|claim| is_ready(claim)).count();
        anyhow::Ok(Seen::from_option(
            (ready == claims.len()).then_some(()),
            format!("{ready} of {}", claims.len()),
        ))
    })
    .await?;
    let nodes = cluster::nodes(&client).await?.len();
    let requests = audit.take()?;
    println!("{bound:.1} s to all bound, {nodes} nodes; CPU seconds: {}", Usage::of(&stack)?.since(&before));
    println!("  requests of the controller: {requests}");
    // Some more if the computer is so busy that pods lose their nodes: the load is what counts.
    anyhow::ensure!(nodes >= wanted, "{nodes} nodes are fewer than {wanted}");
    let per_node = |count: u64| count as f64 / nodes as f64;
    let (requests_per_node, all_requests_per_node) =
        (per_node(requests.for_instances()), per_node(requests.count(|_| true)));

    tokio::time::sleep(SETTLE).await;
    let pid = stack.croft.process(Part::Controller).map_or(0, croft_testkit::Process::pid);
    audit.take()?;
    let used = cpu_seconds(pid)?;
    tokio::time::sleep(LOOK).await;
    let idle = (cpu_seconds(pid)? - used) / LOOK.as_secs_f64();
    let idle_requests = audit.take()?;
    let (rss, most) = rss_megabytes(pid)?;
    println!("at rest, for {} s: {idle:.3} cores, {rss:.0} MB ({most:.0} MB at most so far)", LOOK.as_secs());
    println!("  requests of the controller: {idle_requests}");
    let lists = idle_requests.count(|name| name.starts_with("list"));
    anyhow::ensure!(lists == 0, "the controller lists at rest: {idle_requests}");
    stack.check()?;
    Ok(Figures { rss_mb: rss, peak_rss_mb: most, idle_cores: idle, requests_per_node, all_requests_per_node })
}
