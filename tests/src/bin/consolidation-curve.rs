//! Cost of a cluster while Croft consolidates it: 30 Deployments of 40 pods are scaled to 16, on instances of 1 to 16
//! processors with nearly linear prices, with the real scheduler and real evictions. `make bench-disruption` runs it.
//! The last line is a list of `key=value`.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::Price;
use croft_testkit::{ControlPlane, Croft, CroftOptions, Options, Part};
use croft_tests::{
    manifests::{class, deployment, joined, on_demand, tenant},
    stack::{Stack, claims, nodes, pods},
};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use serde_json::json;

const DEPLOYMENTS: usize = 30;
const BEFORE: usize = 40;
const AFTER: usize = 16;
/// Number of Deployments by size: together 441.6 processors and 1,281 GiB after scaling.
const MILLICPUS: [(u32, usize); 6] = [(250, 6), (500, 6), (900, 4), (1000, 6), (1500, 5), (2000, 3)];
const MEBIBYTES: [(u32, usize); 6] = [(512, 8), (1024, 5), (2048, 5), (3100, 3), (4096, 5), (8192, 4)];
/// Cost of those resources if instances were divisible and ran nothing else.
const RESOURCES_ALONE: &str = "12.42";
/// Between two polls.
const LOOK: Duration = Duration::from_millis(500);
/// The run ends when nothing has changed for this long, or after this long in any case.
const QUIET: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(900);
const START_WITHIN: Duration = Duration::from_secs(600);

fn platform() -> String {
    let disruption = json!({"consolidateAfter": "10s", "minSavings": "0", "budgets": [{"nodes": "100%"}]});
    let tenant = tenant("tenant-a", "pool-a", &on_demand(&[], disruption));
    joined([class("default")].iter().chain(&tenant))
}

/// Types of 1, 2, 4, 8 and 16 processors with 2, 4 or 8 GiB each, $0.025 per processor and $0.001 per 1e9 bytes, in the
/// format of the built-in catalogue.
fn catalog() -> anyhow::Result<String> {
    let mut text = String::new();
    for each in [2u64, 4, 8] {
        for cpus in [1u64, 2, 4, 8, 16] {
            let mebibytes = cpus * each * 1024;
            let micros = cpus * 25_000 + (mebibytes << 20) / 1_000_000;
            writeln!(
                text,
                "l{each}.{cpus}x amd64 {cpus} {mebibytes} nitro intel 3000 4750 750 3 15 1 0 0 27 hos - - abc {micros}"
            )?;
        }
    }
    Ok(text)
}

/// Each size as often as listed, in the same order on every run.
fn deal(sizes: &[(u32, usize)], stride: usize) -> Vec<u32> {
    let all: Vec<u32> = sizes.iter().flat_map(|(size, count)| std::iter::repeat_n(*size, *count)).collect();
    let numbers = 0..all.len();
    numbers.filter_map(|n| all.get(n * stride % all.len()).copied()).collect()
}

fn deployments() -> String {
    // 7 and 11 are coprime to 30, so each size occurs as often as it is listed.
    let sizes = deal(&MILLICPUS, 7).into_iter().zip(deal(&MEBIBYTES, 11)).enumerate();
    let each = |(n, (cpu, memory))| {
        deployment("tenant-a", &format!("d{n:02}"), BEFORE, &format!("{cpu}m"), &format!("{memory}Mi"))
    };
    joined(&sizes.map(each).collect::<Vec<_>>())
}

/// Cost and number of launched instances.
async fn cost(client: &Client) -> anyhow::Result<(Price, usize)> {
    let all = claims(client, "pool-a").await?;
    let price = |text: &str| Price::from_dollars(text.parse().ok()?);
    let prices: Vec<Price> =
        all.iter().filter_map(|c| price(c.status.as_ref()?.price_per_hour.as_deref()?)).collect();
    Ok((prices.iter().copied().sum(), prices.len()))
}

fn runs(pod: &&Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running")
}

async fn wait_for(client: &Client, count: usize, begun: Instant) -> anyhow::Result<()> {
    loop {
        let all = pods(client, "tenant-a").await?;
        if all.len() == count && all.iter().filter(runs).count() == count {
            return Ok(());
        }
        anyhow::ensure!(SystemClock.monotonic() - begun < START_WITHIN, "{count} pods don't come to run");
        tokio::time::sleep(LOOK).await;
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    croft_runtime::process::install_crypto();
    // The controllers' default of 20 requests a second would dominate the measurement.
    let plane = ControlPlane::start(Options::default().requests_per_second(500)).await?;
    let catalog = plane.write("catalog.txt", &catalog()?)?;
    let options = CroftOptions::find()?.flag(Part::Cloud, format!("--catalog={}", catalog.display()));
    let croft = Croft::start(&plane, options).await?;
    let mut stack = Stack { croft, plane };
    let client = stack.plane.admin().await?;
    let begun = SystemClock.monotonic();
    stack.plane.apply(&platform()).await?;
    stack.plane.apply(&deployments()).await?;
    wait_for(&client, DEPLOYMENTS * BEFORE, begun).await?;
    let (full, instances) = cost(&client).await?;
    println!(
        "lab: {} pods on {instances} instances after {:.0} s, ${full}/h",
        DEPLOYMENTS * BEFORE,
        (SystemClock.monotonic() - begun).as_secs_f64()
    );
    let replicas = format!("--replicas={AFTER}");
    stack.plane.kubectl(["scale", "-n", "tenant-a", "deployment", "--all", &replicas]).await?;
    let begun = SystemClock.monotonic();
    let (mut last, mut changed) = (full, Duration::ZERO);
    loop {
        tokio::time::sleep(LOOK).await;
        let passed = SystemClock.monotonic() - begun;
        let (now, instances) = cost(&client).await?;
        if now != last {
            println!("lab: {:>5.1} s: ${now}/h, {instances} instances", passed.as_secs_f64());
            (last, changed) = (now, passed);
        }
        stack.check()?;
        if passed.saturating_sub(changed) > QUIET || passed > LONGEST {
            break;
        }
    }
    let all = pods(&client, "tenant-a").await?;
    let up = all.iter().filter(runs).count();
    let there = stack.instances().await?.len();
    let (held, known) = (claims(&client, "pool-a").await?.len(), nodes(&client).await?.len());
    println!(
        "lab: {up} of {} pods run on {there} instances ({held} claims, {known} nodes); the resources alone would cost \
         ${RESOURCES_ALONE}/h",
        DEPLOYMENTS * AFTER
    );
    let violations =
        DEPLOYMENTS * AFTER - up.min(DEPLOYMENTS * AFTER) + there.abs_diff(held) + held.abs_diff(known);
    println!("lab_s={:.0} lab_cost={:.2} violations={violations}", changed.as_secs_f64(), last.dollars());
    anyhow::ensure!(violations == 0, "pods, claims, nodes and instances don't agree at the end");
    Ok(())
}
