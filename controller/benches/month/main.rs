//! A month of a cluster's life: 50 tenants whose load follows the hours of the day, the controller's engine, executor
//! and loop on virtual time, and ec2-sim's world behind them. What was paid is compared with what a cluster without
//! friction would have cost. A pod that waits for a node is charged, so that a late launch is no saving. A model of
//! today's usual policy plays the same month: see [`usual`].
//!
//! `make bench-disruption` runs it. Its last line is a list of `key=value`.
//!
//! `--help` lists what can be set.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a benchmark: it measures time, and ends when its input is wrong"
)]

mod args;
mod bill;
mod curve;
mod demand;
mod first_fit;
mod load;
mod meter;
mod play;
mod usual;
mod watchdog;

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use args::Args;
use clap::Parser as _;
use croft_scheduler::{CapacityType, InstanceType};
use demand::Demand;
use load::Load;
use play::{Figures, Point, Policy, play};

/// The controller's.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

fn main() -> ExitCode {
    let begun = Instant::now();
    let args = Args::parse();
    let Args { days, size, tenants, seed, .. } = args;
    if std::env::var("CROFT_SIM_LOG").is_ok() {
        let _ = croft_runtime::telemetry::init("debug", croft_runtime::telemetry::LogFormat::Text);
    }
    println!("month: {tenants} tenants of size {size}, {days} days, seed {seed}");
    let demand = Demand::new(Load::new(tenants, size, seed), types(), days);
    let violations = if args.curve || args.preferences {
        let points = if args.curve { curve::points() } else { curve::preferences() };
        let violations = curve::print(&demand, seed, &points);
        println!("curve_s={:.0} violations={violations}", begun.elapsed().as_secs_f64());
        violations
    } else {
        print_month(&demand, args, begun)
    };
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays the month under both policies and prints the line for programs. Returns the violations.
fn print_month(demand: &Demand, args: Args, begun: Instant) -> usize {
    let default = Point::of(args.preference.unwrap_or_default());
    let point = Point {
        preference: default.preference,
        min_savings: args.min_savings.unwrap_or(default.min_savings),
        consolidate_after: args.consolidate_after.unwrap_or(default.consolidate_after),
        age_percent: args.age.unwrap_or(default.age_percent),
        eviction_cost: args.eviction_cost.unwrap_or(default.eviction_cost),
        rest: args.rest.map(Duration::from_secs),
    };
    let seed = args.seed;
    let croft = play(demand, seed, &Policy::Croft(point), true);
    let month_s = begun.elapsed().as_secs_f64();
    let usual = play(demand, seed, &Policy::Usual, true);
    let Figures { gap, gap_paid, evictions_pod_day, waited_s, launches_node_day, .. } = croft;
    let violations = croft.violations + usual.violations;
    println!(
        "month_gap={gap:.4} month_gap_paid={gap_paid:.4} evictions_pod_day={evictions_pod_day:.3} \
         waited_s={waited_s:.1} launches_node_day={launches_node_day:.2} status_writes_claim={:.2} calls_eviction={:.2} \
         usual_gap={:.4} usual_gap_paid={:.4} usual_evictions_pod_day={:.3} usual_waited_s={:.1} \
         usual_launches_node_day={:.2} month_s={month_s:.0} violations={violations}",
        croft.status_writes_claim,
        croft.calls_eviction,
        usual.gap,
        usual.gap_paid,
        usual.evictions_pod_day,
        usual.waited_s,
        usual.launches_node_day,
    );
    violations
}

/// Instance types of three families, as a tenant would leave them to choose from: on-demand, x86, c, m and r of
/// later generations than the second.
fn types() -> Arc<[InstanceType]> {
    let suits = |t: &&InstanceType| {
        let label = |key: &str| t.labels.get(key).map_or("", String::as_str);
        t.arch == "amd64"
            && ["c", "m", "r"].contains(&label("karpenter.k8s.aws/instance-category"))
            && label("karpenter.k8s.aws/instance-generation").parse::<u32>().is_ok_and(|g| g > 2)
    };
    let mut types: Vec<InstanceType> = croft_cloud::builtin_catalog().iter().filter(suits).cloned().collect();
    for kind in &mut types {
        kind.offerings.retain(|o| {
            o.capacity_type == CapacityType::OnDemand && o.price.is_some() && ZONES.contains(&o.zone.as_str())
        });
    }
    types.retain(|t| !t.offerings.is_empty());
    types.into()
}
