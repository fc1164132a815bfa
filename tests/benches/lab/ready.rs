//! 500 pods of one Deployment: time from its creation to all Running.

use std::{
    fmt::{self, Display},
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use croft_cli::Output;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cluster::{self, Load, MeasuredCluster},
    median,
    processes::Usage,
    reference::{PodConstraints, Reference},
    stopwatch::{Count, Stopwatch},
};

const PODS: usize = 500;
const LOAD: Load = Load { replicas: PODS, cpu: "1", memory: "1536Mi" };
const ROUNDS: usize = 3;

/// The figures.
#[derive(Debug)]
pub(crate) struct Figures {
    ratio: f64,
    /// To the control plane without Croft.
    ratio_reference: f64,
    seconds: f64,
    cost_gap: f64,
}

impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ratio, ratio_reference, seconds, cost_gap } = self;
        write!(
            f,
            "ready500_ratio={ratio:.2} ready500_ratio_reference={ratio_reference:.2} ready500_s={seconds:.2} \
             cost_gap={cost_gap:.4}"
        )
    }
}

pub(crate) async fn run() -> anyhow::Result<Figures> {
    let cluster = MeasuredCluster::usual(1);
    println!(
        "\n{PODS} pods of 1 cpu and 1.5 GiB, one Deployment, from its creation to all Running, {ROUNDS} rounds"
    );
    let bound = bound(&cluster)?;
    let mut reference = Reference::start(&cluster).await?;
    let (mut stack, mut audit) = cluster.start().await?;
    let client = stack.plane.admin().await?;
    let mut watch = Stopwatch::start(client.clone());
    let (mut with, mut without, mut bare, mut costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        audit.take()?;
        let before = Usage::of(&stack)?;
        let begun = Instant::now();
        cluster.deploy(&client, LOAD).await?;
        let bound_at = watch.until(|count| count.bound == PODS).await?;
        let seconds = watch.until(|count| count.running == PODS).await?.duration_since(begun).as_secs_f64();
        let used = Usage::of(&stack)?.since(&before);
        let requests = audit.take()?;
        let claims = cluster::claims(&client).await?;
        let cost = cluster::cost(&claims)?;
        println!(
            "round {round}: {seconds:.2} s to Running ({:.2} s to bound) onto {} new nodes ({}), ${cost:.3}/h",
            bound_at.duration_since(begun).as_secs_f64(),
            claims.len(),
            cluster::kinds(&claims),
        );
        println!("  CPU seconds: {used}\n  requests of the controller: {requests}");
        with.push(seconds);
        costs.push(cost);
        let constraints = PodConstraints::of_tenants(&cluster, &client).await?;

        cluster.withdraw(&client).await?;
        watch.until(|count| count.pods == 0).await?;
        let before = Usage::of(&stack)?;
        let begun = Instant::now();
        cluster.deploy(&client, LOAD).await?;
        let seconds = watch.until(|count| count.running == PODS).await?.duration_since(begun).as_secs_f64();
        println!(
            "         {seconds:.2} s onto the same nodes, once they are there\n  CPU seconds: {}",
            Usage::of(&stack)?.since(&before)
        );
        without.push(seconds);
        let now = cluster::claims(&client).await?;
        anyhow::ensure!(now.len() == claims.len(), "{} nodes were {}", claims.len(), now.len());

        cluster.withdraw(&client).await?;
        watch.until(|count| count.pods == 0).await?;
        reference.copy_nodes(&client).await?;
        let is_done = |count: Count| count.running == PODS;
        bare.push(reference.measure(&cluster, LOAD, &constraints, is_done).await?);
        if round < ROUNDS {
            cluster::clear(&client).await?;
        }
    }
    stack.check()?;
    let cost = costs.iter().copied().fold(0.0, f64::max);
    println!("cost at most ${cost:.3}/h, no set of instances costs less than ${bound:.3}/h");
    let ratio_to = |others: &[f64]| {
        let ratios: Vec<f64> = with.iter().zip(others).map(|(with, other)| with / other).collect();
        median(&ratios)
    };
    Ok(Figures {
        ratio: ratio_to(&without),
        ratio_reference: ratio_to(&bare),
        seconds: median(&with),
        cost_gap: cost / bound - 1.0,
    })
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lower bound of the cost for these pods, by `croft simulate`.
fn bound(cluster: &MeasuredCluster) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("cluster.yaml");
    let deployments: Vec<String> = cluster.deployments(LOAD).iter().map(Value::to_string).collect();
    std::fs::write(&file, format!("{}\n---\n{}", cluster.manifest(), deployments.join("\n---\n")))?;
    let sink = Sink::default();
    let mut out = Output::to(Box::new(sink.clone()), Box::new(io::stderr()));
    let mut arguments: Vec<std::ffi::OsString> = vec!["croft".into(), "simulate".into(), "-f".into()];
    arguments.extend([file.into(), "-o".into(), "json".into()]);
    let code = croft_cli::run_with(arguments, &mut out);
    anyhow::ensure!(code == 0, "croft simulate exits with {code}");
    let bytes = sink.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let plan: Value = serde_json::from_slice(&bytes).context("failed to read what croft simulate says")?;
    plan.get("lowerBoundPerHour").and_then(Value::as_f64).context("croft simulate gives no bound")
}
