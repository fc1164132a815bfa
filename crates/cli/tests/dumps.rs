//! `croft simulate` plans the files that the scheduler's benchmark dumps, for small workloads, as the scheduler itself does.
#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test fails by panicking; the workloads are the benchmark's, which uses more of them"
)]

#[path = "../../scheduler/benches/scheduler/dump.rs"]
mod dump;
#[path = "../../scheduler/benches/scheduler/workloads.rs"]
mod workloads;

use std::{process::Command, sync::Arc};

use croft_scheduler::{Cluster, InstanceType, Options, Plan, Pool, solve};
use dump::Input;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::Value;

fn plan(pools: &[Pool], nodes: &[Node], pods: &[Pod]) -> Plan {
    let mut cluster = Cluster::new();
    pools.iter().for_each(|pool| cluster.upsert_pool(pool.clone()).unwrap());
    nodes.iter().for_each(|node| cluster.upsert_node(node).unwrap());
    pods.iter().for_each(|pod| cluster.upsert_pod(pod).unwrap());
    solve(&cluster, &Options::default(), &|| false)
}

/// The parts of a plan that must be equal. Names of instances may differ.
fn essence(document: &Value) -> Vec<String> {
    let mut nodes: Vec<String> = document["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| {
            let mut pods: Vec<&str> =
                n["pods"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
            pods.sort_unstable();
            let options = &n["instanceTypeOptions"];
            format!(
                "{} {} {} {} {} {} {pods:?} {options}",
                n["existing"], n["pool"], n["instanceType"], n["zone"], n["capacityType"], n["price"]
            )
        })
        .collect();
    nodes.sort_unstable();
    nodes.push(format!("{} {}", document["costPerHour"], document["lowerBoundPerHour"]));
    nodes.push(document["unschedulable"].as_array().unwrap().len().to_string());
    nodes
}

fn same(name: &str, kinds: &[InstanceType], pools: &[Pool], nodes: &[Node], pods: &[Pod]) {
    let folder = tempfile::tempdir().unwrap();
    let input = Input { kinds, pools, nodes, pods };
    let (catalog, cluster) = (folder.path().join("catalog.json"), folder.path().join("cluster.json"));
    std::fs::write(&catalog, dump::catalog(kinds).to_string()).unwrap();
    std::fs::write(&cluster, dump::cluster(&input).to_string()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_croft"))
        .args(["simulate", "-o", "json", "-f"])
        .arg(&cluster)
        .arg("--catalog")
        .arg(&catalog)
        .env_clear()
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {errors}");
    let simulated: Value = serde_json::from_slice(&output.stdout).unwrap();
    let planned = plan(pools, nodes, pods);
    assert!(!planned.instances.is_empty(), "{name}: nothing to compare");
    assert_eq!(essence(&simulated), essence(&dump::plan(&planned)), "{name}");
}

#[test]
fn workloads_from_files_give_the_same_plans() {
    let simple: Arc<[InstanceType]> = workloads::catalog_a().into();
    let builtin = croft_cloud::builtin_catalog();
    let any = workloads::any_capacity;
    let one =
        |kinds: &Arc<[InstanceType]>, requirements| [workloads::pool("all", Arc::clone(kinds), requirements)];
    same("a", &simple, &one(&simple, any()), &[], &workloads::pods_a(120));
    same("b", &simple, &one(&simple, any()), &[], &workloads::pods_b(60));
    for mix in 0..3 {
        let pods = workloads::pods_c(mix, 60);
        same(&format!("c{mix}"), &builtin, &one(&builtin, workloads::compute()), &[], &pods);
    }
    let nodes: Vec<Node> = (0..30).map(|n| workloads::node_d(6, n)).collect();
    let running = (0..30).flat_map(|n| (0..10).map(move |p| workloads::running_d(6, n, p)));
    let pods: Vec<Pod> = running.chain(workloads::pods_d(6, 40)).collect();
    same("d", &simple, &workloads::pools_d(6, &simple), &nodes, &pods);
}
