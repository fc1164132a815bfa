//! Thousands of nodes with ten pods each: the time to fill them, resources of the controller in a steady state, and the time
//! from its restart to its first decision.

use std::{
    collections::BTreeSet,
    fmt::{self, Display},
    pin::pin,
    time::Duration,
};

use anyhow::Context as _;
use croft_api::NodeClaim;
use croft_testkit::{
    Component, Part,
    wait::{Seen, until},
};
use croft_tests::stack::{Stack, is_ready};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, ResourceExt as _,
    api::PostParams,
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::{
    cluster::{self, Load, MeasuredCluster, name},
    processes::{Usage, cpu_seconds, flags, rss_megabytes},
    stopwatch::Stopwatch,
};

const TENANTS: usize = 20;
/// Ten of them fill the node's 3.92 cpu.
const PODS_ON_EACH: usize = 10;
const CPU: &str = "390m";
const MEMORY: &str = "512Mi";
/// Beside it only an empty node has room.
const CPU_OF_THE_NEXT: &str = "3";
/// For each node, until all pods are bound; several times what two cores need.
const BOUND_WITHIN_EACH: Duration = Duration::from_millis(400);
/// Time after which the effects of the last pods are over.
const SETTLE: Duration = Duration::from_secs(90);
/// Duration of the measurement.
const LOOK: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(900);
/// From a restart to the first NodeClaim.
const RESTART_WITHIN: Duration = Duration::from_secs(180);
/// The time that the controller has to end and to release its Lease.
const GRACE: Duration = Duration::from_secs(30);
/// Goals that are printed beside the figures.
const GOALS: &str = "400 MB, 0.1 cores, 10 s from a restart to the first NodeClaim";

/// One size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    nodes: usize,
    /// Behind the names of its figures.
    suffix: &'static str,
}

pub(crate) const USUAL: Size = Size { nodes: 2_000, suffix: "" };
pub(crate) const LARGE: Size = Size { nodes: 5_000, suffix: "_5000" };

/// The figures.
#[derive(Debug)]
pub(crate) struct Figures {
    suffix: &'static str,
    /// From the Deployments to all pods bound.
    steady_s: f64,
    /// CPU of the controller for each pod until then.
    cpu_ms_per_pod: f64,
    rss_mb: f64,
    peak_rss_mb: f64,
    idle_cores: f64,
    requests_per_node: f64,
    /// With those for pods, events and the Lease.
    all_requests_per_node: f64,
    /// From the start of a controller whose predecessor released the Lease to the first NodeClaim.
    restart_s: f64,
    /// The same where the predecessor was killed: its Lease has to expire.
    restart_killed_s: f64,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = [
            ("steady_s", self.steady_s, 1),
            ("cpu_ms_per_pod", self.cpu_ms_per_pod, 2),
            ("rss_mb", self.rss_mb, 0),
            ("peak_rss_mb", self.peak_rss_mb, 0),
            ("idle_cores", self.idle_cores, 3),
            ("requests_per_node", self.requests_per_node, 2),
            ("all_requests_per_node", self.all_requests_per_node, 2),
            ("restart_s", self.restart_s, 2),
            ("restart_killed_s", self.restart_killed_s, 2),
        ];
        let words = figures.map(|(name, value, digits)| format!("{name}{}={value:.digits$}", self.suffix));
        f.write_str(&words.join(" "))
    }
}

/// The size with the number of nodes that CROFT_BENCH_NODES says, which makes the benchmark shorter, and its figures not
/// comparable.
fn nodes_of(size: Size) -> anyhow::Result<usize> {
    match std::env::var("CROFT_BENCH_NODES") {
        Ok(text) => text.parse().context("failed to read CROFT_BENCH_NODES"),
        Err(_) => Ok(size.nodes),
    }
}

pub(crate) async fn run(size: Size) -> anyhow::Result<Figures> {
    let wanted = nodes_of(size)?;
    let pods = wanted * PODS_ON_EACH;
    let load = Load { replicas: pods / TENANTS, cpu: CPU, memory: MEMORY };
    let requirements = json!([
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.xlarge"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
    ]);
    // The defaults.
    let cluster = MeasuredCluster { tenants: TENANTS, requirements, disruption: json!({}) };
    let within = BOUND_WITHIN_EACH * u32::try_from(wanted)?;
    println!("\n{wanted} nodes and {pods} pods, bound within {} s at most; goals: {GOALS}", within.as_secs());
    let (mut stack, mut audit) = cluster.start().await?;
    let etcd = stack.plane.process(Component::Etcd).map_or(0, croft_testkit::Process::pid);
    println!("etcd: {}", flags(etcd)?);
    let client = stack.plane.admin().await?;
    let mut watch = Stopwatch::start(client.clone());
    audit.take()?;
    let (before, used) = (Usage::of(&stack)?, cpu_seconds(controller(&stack)?)?);
    let begun = Instant::now();
    cluster.deploy(&client, load).await?;
    let bound = watch.until_within(within, |count| count.bound == pods).await?;
    let steady_s = bound.duration_since(begun).as_secs_f64();
    let cpu_ms_per_pod = (cpu_seconds(controller(&stack)?)? - used) * 1e3 / pods as f64;
    watch.until(|count| count.running == pods).await?;
    until_claims_are_ready(&client).await?;
    let nodes = cluster::nodes(&client).await?.len();
    let requests = audit.take()?;
    println!(
        "{steady_s:.1} s to all bound, {nodes} nodes; CPU seconds: {}",
        Usage::of(&stack)?.since(&before)
    );
    println!("  requests of the controller: {requests}");
    // Some more if the computer is so busy that pods lose their nodes: the load is what counts.
    anyhow::ensure!(nodes >= wanted, "{nodes} nodes are fewer than {wanted}");
    let per_node = |count: u64| count as f64 / nodes as f64;
    let (requests_per_node, all_requests_per_node) =
        (per_node(requests.for_instances()), per_node(requests.count(|_| true)));

    tokio::time::sleep(SETTLE).await;
    let pid = controller(&stack)?;
    audit.take()?;
    let used = cpu_seconds(pid)?;
    tokio::time::sleep(LOOK).await;
    let idle_cores = (cpu_seconds(pid)? - used) / LOOK.as_secs_f64();
    let idle_requests = audit.take()?;
    let (rss_mb, peak_rss_mb) = rss_megabytes(pid)?;
    println!(
        "at rest, for {} s: {idle_cores:.3} cores, {rss_mb:.0} MB ({peak_rss_mb:.0} MB at most so far)",
        LOOK.as_secs()
    );
    println!("  requests of the controller: {idle_requests}");
    let lists = idle_requests.count(|name| name.starts_with("list"));
    anyhow::ensure!(lists == 0, "the controller lists at rest: {idle_requests}");

    stack.croft.stop(Part::Controller, GRACE).await?;
    let restart_s = restart(&mut stack, &client, "after-a-stop").await?;
    stack.croft.kill(Part::Controller)?;
    let restart_killed_s = restart(&mut stack, &client, "after-a-kill").await?;
    println!(
        "{restart_s:.2} s from a start to the first NodeClaim, {restart_killed_s:.2} s where the Lease had to expire"
    );
    stack.check()?;
    Ok(Figures {
        suffix: size.suffix,
        steady_s,
        cpu_ms_per_pod,
        rss_mb,
        peak_rss_mb,
        idle_cores,
        requests_per_node,
        all_requests_per_node,
        restart_s,
        restart_killed_s,
    })
}

/// The controller's process.
fn controller(stack: &Stack) -> anyhow::Result<u32> {
    let process = stack.croft.process(Part::Controller).context("the controller doesn't run")?;
    Ok(process.pid())
}

async fn until_claims_are_ready(client: &Client) -> anyhow::Result<()> {
    until("every claim to be ready", PATIENCE, async || {
        let claims = cluster::claims(client).await?;
        let ready = claims.iter().filter(|claim| is_ready(claim)).count();
        let seen = format!("{ready} of {}", claims.len());
        anyhow::Ok(Seen::from_option((ready == claims.len()).then_some(()), seen))
    })
    .await?;
    Ok(())
}

/// Starts the controller, which doesn't run, with a pod that waits for a node: the seconds until its NodeClaim is created.
async fn restart(stack: &mut Stack, client: &Client, pod: &str) -> anyhow::Result<f64> {
    let api: Api<NodeClaim> = Api::all(client.clone());
    let mut claims = pin!(watcher::watcher(api, watcher::Config::default()).default_backoff());
    let mut known = BTreeSet::new();
    while let Some(event) = claims.next().await {
        match event? {
            watcher::Event::InitApply(claim) => drop(known.insert(claim.name_any())),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &name(0));
    let waiting: Pod = serde_json::from_value(json!({
        "metadata": {"name": pod},
        "spec": {"automountServiceAccountToken": false, "containers": [{
            "name": "app", "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": CPU_OF_THE_NEXT, "memory": "1Gi"}},
        }]},
    }))?;
    pods.create(&PostParams::default(), &waiting).await?;
    let begun = Instant::now();
    stack.croft.launch(&stack.plane, Part::Controller).await?;
    let created = async {
        while let Some(event) = claims.next().await {
            if let watcher::Event::Apply(claim) = event?
                && !known.contains(&claim.name_any())
            {
                return anyhow::Ok(begun.elapsed().as_secs_f64());
            }
        }
        anyhow::bail!("the watch of NodeClaims ended")
    };
    let seconds = timeout(RESTART_WITHIN, created).await.context("no NodeClaim was created in time")??;
    stack.croft.ready(Part::Controller).await?;
    Ok(seconds)
}
