//! Limits of the whole cluster, beside those of pools and Tenants.

use std::collections::BTreeMap;

use croft_scheduler::{
    CapacityType, Cluster, InstanceType, LimitOwner, Offering, Plan, Pool, Price, Quantity, REPLICAS,
    ReachedLimit, Requirement, TenantLimits,
};
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::json;

use crate::build::{ZONE, cluster, kinds, node, plan, pod, pool, requirement, why};

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
        own.contains("the limits of the cluster (nodes 2) leave no room for another node")
            && own.contains("the nodes of all pools have 1 nodes already"),
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
fn reached_limit_has_its_owner_and_the_amounts_that_are_short() {
    let reached = |cluster: &Cluster| {
        let plan = plan(cluster);
        plan.unschedulable[0].reasons.iter().find_map(|reason| reason.limit.clone()).unwrap()
    };
    let short = |owner: LimitOwner, of: &str| ReachedLimit { owner, resources: vec![of.to_owned()] };
    let own = Pool { limits: limits(&[("cpu", "1"), ("memory", "1000Gi")]), ..pool("a", kinds()) };
    let of_pool = cluster(vec![own], &[of("a", "pod-a", "3")]);
    assert_eq!(reached(&of_pool), short(LimitOwner::Pool("a".to_owned()), "cpu"));

    let mut other = cluster(vec![pool("a", kinds())], &[of("a", "pod-a", "3")]);
    other.upsert_tenant_limits(TenantLimits {
        tenant: "t".to_owned(),
        pools: vec!["a".to_owned()],
        limits: limits(&[("nodes", "0"), ("cpu", "1000")]),
    });
    assert_eq!(reached(&other), short(LimitOwner::Tenant("t".to_owned()), "nodes"));
    other.remove_tenant_limits("t");
    other.set_limits(limits(&[("costPerHour", "0.01"), ("nodes", "9")]));
    assert_eq!(reached(&other), short(LimitOwner::Cluster, "costPerHour"));

    let fixed = Pool { replicas: Some(0), launches: false, ..pool("a", kinds()) };
    let none = cluster(vec![fixed], &[of("a", "pod-a", "3")]);
    assert_eq!(reached(&none), short(LimitOwner::Pool("a".to_owned()), REPLICAS));

    let template = "steady".to_owned();
    let of_template = Pool { template_replicas: Some(0), launches: false, template, ..pool("a", kinds()) };
    let none = cluster(vec![of_template], &[of("a", "pod-a", "3")]);
    let owner = LimitOwner::Template { pool: "a".to_owned(), name: "steady".to_owned() };
    assert_eq!(reached(&none), short(owner, REPLICAS));
}

#[test]
fn a_cluster_limit_that_a_plan_keeps_by_itself_changes_nothing() {
    let cluster = two_pools();
    let mut limited = cluster.clone();
    limited.set_limits(limits(&[("nodes", "50"), ("costPerHour", "25")]));
    let (free, within) = (plan(&cluster), plan(&limited));
    let shown = |plan: &Plan| -> Vec<String> {
        plan.instances
            .iter()
            .map(|instance| format!("{} {} {}", instance.name, instance.instance_type, instance.zone))
            .collect()
    };
    assert_eq!(shown(&free), shown(&within));
    assert_eq!((free.cost, free.bound, free.steps), (within.cost, within.bound, within.steps));
}

/// The usual types, of which these have no known price.
fn unpriced(names: &[&str]) -> Vec<InstanceType> {
    let mut kinds = kinds();
    let of = kinds.iter_mut().filter(|kind| names.contains(&kind.name.as_str()));
    of.flat_map(|kind| &mut kind.offerings).for_each(|offering| offering.price = None);
    kinds
}

#[test]
fn unknown_price_is_below_no_limit_in_dollars() {
    for (names, cpu, limit, expected) in [
        (&["m.16"][..], "12", "1000000", None),
        (&["m.4"], "3", "1", Some("m.8")),
        (&["m.4"], "3", "0.39", None),
        (&["m.4"], "3", "0", None),
    ] {
        for of_cluster in [false, true] {
            let mut pool = pool("a", unpriced(names));
            if !of_cluster {
                pool.limits = limits(&[("costPerHour", limit)]);
            }
            let mut cluster = cluster(vec![pool], &[of("a", "pod-a", cpu)]);
            if of_cluster {
                cluster.set_limits(limits(&[("costPerHour", limit)]));
            }
            let plan = plan(&cluster);
            let launched = plan.instances.first().map(|instance| instance.instance_type.as_str());
            assert_eq!(launched, expected, "{names:?} under {limit} $");
            let options = plan.instances.iter().flat_map(|instance| &instance.options);
            assert_eq!(options.filter(|kind| names.contains(&kind.as_str())).count(), 0);
        }
    }
    let pool = Pool { limits: limits(&[("costPerHour", "1000000")]), ..pool("a", unpriced(&["m.16"])) };
    let why = why(&plan(&cluster(vec![pool], &[of("a", "pod-a", "12")])));
    let expected = "a PoolLimit: the limits of a (costPerHour 1000000.00) leave no room for another node; its nodes have nothing already; \
                    the catalogue has no price of what would hold the pod (m.16), and an unknown price is below no costPerHour";
    assert_eq!(why, [expected]);
}

#[test]
fn nodes_of_unknown_price_leave_nothing_of_a_limit_in_dollars() {
    let labels = |kind: &str, zone: &str, capacity: &str| {
        json!({"node-pool": "a", "node.kubernetes.io/instance-type": kind, "topology.kubernetes.io/zone": zone,
            "karpenter.sh/capacity-type": capacity})
    };
    for (kind, zone, capacity, limit, launched) in [
        ("m.4", "zone-a", "on-demand", "0.4", 1),
        ("m.4", "zone-a", "on-demand", "0.39", 0),
        // Its offering is gone: the type's others tell.
        ("m.4", "zone-z", "on-demand", "0.4", 1),
        ("m.4", "zone-a", "reserved", "0.4", 1),
        ("m.4", "zone-a", "reserved", "0.39", 0),
        ("other", "zone-a", "on-demand", "1000", 0),
        ("m.16", "zone-a", "on-demand", "1000", 0),
    ] {
        let pool = Pool { limits: limits(&[("costPerHour", limit)]), ..pool("a", unpriced(&["m.16"])) };
        let mut cluster = cluster(vec![pool], &[of("a", "pod-a", "3")]);
        cluster.upsert_node(&node("n", "1", "4Gi", labels(kind, zone, capacity))).unwrap();
        let plan = plan(&cluster);
        assert_eq!(plan.instances.len(), launched, "{kind} in {zone}, {capacity}, under {limit} $");
        let told = plan.unschedulable.iter().flat_map(|left| left.reasons.iter());
        let told: Vec<bool> = told.map(|r| r.detail.contains("no price of 1 of the nodes")).collect();
        let is_unknown = ["other", "m.16"].contains(&kind);
        assert!(told.iter().all(|told| *told == is_unknown), "{:?}", plan.unschedulable);
    }
}

#[test]
fn plans_count_the_instances_that_are_left_of_an_offering() {
    let mut kinds = kinds();
    for kind in kinds.iter_mut().filter(|kind| kind.name == "m.4") {
        kind.offerings.push(Offering {
            zone: "zone-a".to_owned(),
            capacity_type: CapacityType::Reserved,
            price: Some(Price::ZERO),
            available: true,
            estimated: false,
            available_count: Some(2),
        });
    }
    let reserved = |plan: &Plan| {
        let reserved =
            plan.instances.iter().filter(|instance| instance.capacity_type == CapacityType::Reserved);
        reserved.count()
    };
    // Two pools share what is left.
    let pods: Vec<Pod> = (0..6).map(|n| of(["a", "b"][n % 2], &format!("pod-{n}"), "3")).collect();
    let paid = |name: &str, kinds: &[InstanceType], capacity: &[&str]| Pool {
        requirements: vec![requirement("karpenter.sh/capacity-type", capacity)],
        ..pool(name, kinds.to_vec())
    };
    let either = ["reserved", "on-demand"];
    let mut cluster = cluster(vec![paid("a", &kinds, &either), paid("b", &kinds, &either)], &pods);
    let first = plan(&cluster);
    assert_eq!((reserved(&first), first.unschedulable.len()), (2, 0));
    let dear = first.instances.iter().filter(|instance| instance.capacity_type == CapacityType::OnDemand);
    assert!(
        dear.clone().count() > 0 && dear.flat_map(|instance| &instance.options).any(|kind| kind != "m.4")
    );

    // Nothing is left, and nothing else is allowed.
    cluster.upsert_pool(paid("a", &kinds, &["reserved"])).unwrap();
    let second = plan(&cluster);
    assert_eq!(reserved(&second), 2);
    let reasons: Vec<&str> =
        second.unschedulable.iter().map(|left| left.reasons[0].reason.as_str()).collect();
    assert_eq!(reasons, ["NoCapacity"]);
    for offering in kinds.iter_mut().flat_map(|kind| &mut kind.offerings) {
        offering.available_count = offering.available_count.map(|_| 0);
    }
    cluster.upsert_pool(paid("a", &kinds, &either)).unwrap();
    cluster.upsert_pool(paid("b", &kinds, &either)).unwrap();
    assert_eq!(reserved(&plan(&cluster)), 0);
}

#[test]
fn a_limit_with_room_is_no_reason() {
    let spread = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"nodeSelector": {"node-pool": "a"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}}}]}});
    let pods: Vec<Pod> = (0..3).map(|n| pod(&format!("pod-{n}"), "1", "1Gi", spread.clone())).collect();
    let two_zones = Requirement { min_values: Some(2), ..requirement(ZONE, &["zone-a", "zone-b", "zone-c"]) };
    let pool = Pool { requirements: vec![two_zones], ..pool("a", kinds()) };
    let mut cluster = cluster(vec![pool], &pods);
    cluster.upsert_tenant_limits(TenantLimits {
        tenant: "t".to_owned(),
        pools: vec!["a".to_owned()],
        limits: limits(&[("nodes", "200"), ("costPerHour", "500")]),
    });
    let plan = plan(&cluster);
    assert_eq!(plan.unschedulable.len(), 3);
    let expected = "a MinValues: a wants a choice of 2 different topology.kubernetes.io/zone; 1 hold the pod in one \
                    topology.kubernetes.io/zone, which is what its topology rules leave the pod";
    assert_eq!(why(&plan), [expected]);
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
        let placed: usize = plan.instances.iter().map(|instance| instance.pods.len()).sum();
        prop_assert_eq!(placed + plan.unschedulable.len(), pods.len());
        let named = plan.unschedulable.iter().all(|left| left.reasons.iter().any(|r| r.reason.is_limit()));
        prop_assert!(named, "{:?}", plan.unschedulable);
    }
}
