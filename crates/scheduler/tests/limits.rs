//! Limits of the whole cluster, beside those of pools and Tenants.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod build;

use std::collections::BTreeMap;

use build::{cluster, kinds, node, plan, pod, pool, why};
use croft_scheduler::{Cluster, Plan, Pool, Quantity, TenantLimits};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;

fn limits(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    pairs.iter().map(|(name, amount)| ((*name).to_owned(), amount.parse().unwrap())).collect()
}

/// A pod that only `pool` takes.
fn of(pool: &str, name: &str, cpu: &str) -> Pod {
    pod(name, cpu, "1Gi", json!({"spec": {"nodeSelector": {"node-pool": pool}}}))
}

/// Two pools, and a pod of 3 cores for each; no instance holds both.
fn two_pools() -> Cluster {
    cluster(vec![pool("a", kinds()), pool("b", kinds())], &[of("a", "pod-a", "3"), of("b", "pod-b", "3")])
}

fn cpus(plan: &Plan) -> i64 {
    plan.instances.iter().map(|instance| instance.capacity.get("cpu") / 1000).sum()
}

#[test]
fn cluster_limits_count_the_nodes_of_all_pools_together() {
    for (limit, launched) in [
        (("nodes", "2"), 2),
        (("nodes", "1"), 1),
        (("nodes", "0"), 0),
        (("cpu", "8"), 2),
        (("cpu", "7"), 1),
        (("memory", "31Gi"), 1),
        // Each costs 0.2.
        (("costPerHour", "0.4"), 2),
        (("costPerHour", "0.39"), 1),
        // No node has one.
        (("nvidia.com/gpu", "0"), 2),
    ] {
        let mut cluster = two_pools();
        cluster.set_limits(limits(&[limit]));
        let plan = plan(&cluster);
        assert_eq!(plan.instances.len(), launched, "{limit:?}: {:?}", plan.unschedulable);
        assert_eq!(plan.unschedulable.len(), 2 - launched, "{limit:?}");
    }
}

#[test]
fn cluster_limits_count_nodes_that_are_there_and_the_reason_names_them() {
    let mut cluster = two_pools();
    let there = node("n", "4", "16Gi", json!({"node-pool": "b"}));
    cluster.upsert_node(&there).unwrap();
    cluster.set_limits(limits(&[("nodes", "2"), ("cpu", "100")]));
    cluster.upsert_pod(&of("b", "more", "3")).unwrap();
    let first = plan(&cluster);
    assert_eq!(first.instances.len(), 1, "one of the two pods of b goes onto the node");
    assert!(first.instances[0].options.iter().all(|kind| kind == "m.4"), "{:?}", first.instances[0].options);
    let why = why(&first);
    let own = why.iter().find(|why| why.contains("ClusterLimit")).unwrap_or_else(|| panic!("{why:?}"));
    assert!(
        own.contains("the limits of the cluster (cpu 100, nodes 2) leave no room for another node")
            && own.contains("the nodes of all pools have cpu 4 cores, 1 nodes already"),
        "{own}"
    );
    // A raised limit helps.
    cluster.set_limits(limits(&[("nodes", "3")]));
    assert!(plan(&cluster).unschedulable.is_empty());
    cluster.set_limits(BTreeMap::new());
    assert!(plan(&cluster).unschedulable.is_empty());
}

#[test]
fn the_reason_names_the_limit_that_is_used_up() {
    let roomy = Pool { limits: limits(&[("cpu", "1000")]), ..pool("a", kinds()) };
    let mut cluster = cluster(vec![roomy], &[of("a", "pod-a", "3")]);
    cluster.upsert_tenant_limits(TenantLimits {
        tenant: "t".to_owned(),
        pools: vec!["a".to_owned()],
        limits: limits(&[("nodes", "0")]),
    });
    assert!(why(&plan(&cluster))[0].contains("TenantLimit"), "{:?}", why(&plan(&cluster)));
    cluster.remove_tenant_limits("t");
    cluster.set_limits(limits(&[("nodes", "0")]));
    assert!(why(&plan(&cluster))[0].contains("ClusterLimit"), "{:?}", why(&plan(&cluster)));
}

#[test]
fn a_cluster_limit_that_a_plan_keeps_by_itself_changes_nothing() {
    let cluster = two_pools();
    let mut limited = cluster.clone();
    limited.set_limits(limits(&[("nodes", "50"), ("costPerHour", "25")]));
    let (free, within) = (plan(&cluster), plan(&limited));
    let shown = |plan: &Plan| -> Vec<String> {
        plan.instances.iter().map(|m| format!("{} {} {}", m.name, m.instance_type, m.zone)).collect()
    };
    assert_eq!(shown(&free), shown(&within));
    assert_eq!((free.cost, free.bound, free.steps), (within.cost, within.bound, within.steps));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_overruns_a_cluster_limit(
        pods in proptest::collection::vec((0usize..3, 1u32..9), 1..30),
        nodes in 0i64..8,
        cpu in 0i64..64,
    ) {
        let names = ["a", "b", "c"];
        let pods: Vec<Pod> = pods
            .iter()
            .enumerate()
            .map(|(n, (pool, cpu))| of(names[*pool], &format!("pod-{n}"), &cpu.to_string()))
            .collect();
        let mut cluster = cluster(names.map(|name| pool(name, kinds())).to_vec(), &pods);
        cluster.set_limits(limits(&[("nodes", &nodes.to_string()), ("cpu", &cpu.to_string())]));
        let plan = plan(&cluster);
        prop_assert!(i64::try_from(plan.instances.len()).unwrap() <= nodes);
        prop_assert!(cpus(&plan) <= cpu);
        let placed: usize = plan.instances.iter().map(|m| m.pods.len()).sum();
        prop_assert_eq!(placed + plan.unschedulable.len(), pods.len());
        let named = plan.unschedulable.iter().all(|left| left.reasons.iter().any(|r| r.reason.is_limit()));
        prop_assert!(named, "{:?}", plan.unschedulable);
    }
}
