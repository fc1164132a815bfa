//! The inner loops: `cargo bench -p croft-scheduler --bench inner`.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark ends when its input is wrong; it uses some of the workloads"
)]

#[path = "scheduler/workloads.rs"]
mod workloads;

use std::sync::Arc;

use croft_scheduler::{Cluster, InstanceType, Options, Quantity, solve};
use divan::{Bencher, black_box};
use k8s_openapi::api::core::v1::Pod;

fn main() {
    divan::main();
}

fn cluster(pods: &[Pod]) -> Cluster {
    let kinds: Arc<[InstanceType]> = workloads::catalog_a().into();
    let mut cluster = Cluster::new();
    cluster.upsert_pool(workloads::pool("p", kinds, workloads::any_capacity())).unwrap();
    pods.iter().for_each(|pod| cluster.upsert_pod(pod).unwrap());
    cluster
}

/// Reading what every pod has.
#[divan::bench(args = ["250m", "1536Mi", "1.5", "64Gi"])]
fn quantity(text: &str) -> Quantity {
    black_box(text).parse().unwrap()
}

/// Compiling pods into numbers, spreads and affinities included.
#[divan::bench]
fn upsert_1000_pods(bencher: Bencher<'_, '_>) {
    let pods = workloads::pods_a(1_000);
    bencher.with_inputs(|| cluster(&[])).bench_values(|mut cluster| {
        pods.iter().for_each(|pod| cluster.upsert_pod(pod).unwrap());
        cluster
    });
}

/// A pod that changes: out of the state and in again.
#[divan::bench]
fn upsert_again(bencher: Bencher<'_, '_>) {
    let pods = workloads::pods_a(1_000);
    let mut cluster = cluster(&pods);
    bencher.bench_local(|| cluster.upsert_pod(&pods[500]).unwrap());
}

/// Classes, domains by counting and plain first-fit-decreasing.
#[divan::bench]
fn first_fit_of_1000(bencher: Bencher<'_, '_>) {
    let cluster = cluster(&workloads::pods_a(1_000));
    let options = Options { effort: 0, ..Options::default() };
    bencher.bench(|| solve(&cluster, &options, &|| false));
}

/// Column generation and repair: pods without rules.
#[divan::bench(args = [1, 8])]
fn search_for_300(bencher: Bencher<'_, '_>, effort: u32) {
    let cluster = cluster(&workloads::pods_c(1, 300));
    let options = Options { effort, ..Options::default() };
    bencher.bench(|| solve(&cluster, &options, &|| false));
}
