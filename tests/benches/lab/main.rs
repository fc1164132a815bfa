//! Croft on the real control plane, in figures: `make bench-lab`.
//!
//! - From 500 pods to all Running on instances that Croft launches, compared with the same apply onto existing nodes.
//! - From 5,000 pods of 20 tenants to all bound, compared with the same.
//! - A new pod of one tenant while thousands of another wait, and how many instances are launched for it.
//! - Resources of the controller with 2,000 nodes and 20,000 pods, its requests to the API server, and the time from its
//!   restart to its first decision; `steady5000` is the same with 5,000 nodes and 50,000 pods, and runs only if it is named.
//!
//! Instances boot in no time (ec2-sim), so the measured time is that of Kubernetes and Croft. Two references: the same apply
//! in the same cluster, onto the nodes that are there then, with webhook and controller running; and the same apply on a
//! second control plane without Croft, onto copies of the nodes. Both control planes are there all the time, and the runs
//! alternate, so that other load affects all. The last line is for programs.

mod args;
mod audit;
mod bind;
mod cluster;
mod neighbour;
mod processes;
mod ready;
mod reference;
mod steady;
mod stopwatch;

use std::process::ExitCode;

use args::{Args, Part};
use clap::Parser as _;

fn main() -> ExitCode {
    croft_runtime::process::install_crypto();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("failed to start the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(bench(&Args::parse().parts)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the named parts, or all.
async fn bench(parts: &[Part]) -> anyhow::Result<()> {
    let wanted = |part: Part| parts.is_empty() || parts.contains(&part);
    println!("{}", cluster::SETTING);
    let (mut figures, mut extra_instances) = (Vec::new(), 0);
    if wanted(Part::Ready) {
        figures.push(ready::run().await?.to_string());
    }
    if wanted(Part::Bind) {
        figures.push(bind::run().await?.to_string());
    }
    if wanted(Part::Neighbour) {
        let neighbour = neighbour::run().await?;
        extra_instances = neighbour.extra_instances;
        figures.push(neighbour.to_string());
    }
    if wanted(Part::Steady) {
        figures.push(steady::run(steady::USUAL).await?.to_string());
    }
    if parts.contains(&Part::Steady5000) {
        figures.push(steady::run(steady::LARGE).await?.to_string());
    }
    println!("\nbench-lab: {}", figures.join(" "));
    anyhow::ensure!(
        extra_instances == 0,
        "{extra_instances} instances were launched beyond the first of a pod"
    );
    Ok(())
}

/// The median, or the upper of the two middle figures.
fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
