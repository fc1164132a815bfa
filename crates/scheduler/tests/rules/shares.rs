//! A pool with shares: which kinds of nodes a plan launches, and why a pod waits.

use std::{collections::BTreeMap, sync::Arc};

use croft_scheduler::{
    CapacityType, Cluster, ComingNode, InstanceType, Options, Plan, Pool, Price, Share, ShareBound, ShareOf,
    solve,
};
use serde_json::json;

use super::build::{self, coming, plan, pod, pool, requirement, why};

fn at_most(of: ShareOf, percent: u32) -> Share {
    Share { of, bound: ShareBound::MaxPercent(percent) }
}

fn first(of: ShareOf, nodes: u32) -> Share {
    Share { of, bound: ShareBound::MinNodes(nodes) }
}

const fn of_type(capacity_type: CapacityType) -> ShareOf {
    ShareOf::CapacityType(capacity_type)
}

fn of_template(name: &str) -> ShareOf {
    ShareOf::Template(name.to_owned())
}

/// On spot for a third of the price.
fn both() -> Vec<InstanceType> {
    build::both(|price| Price::from_micros(price.micros() / 3))
}

fn on(template: &str, weight: i32, capacity_types: &[&str], shares: &[Share]) -> Pool {
    let requirements = vec![requirement("karpenter.sh/capacity-type", capacity_types)];
    let shares = shares.to_vec();
    Pool { template: template.to_owned(), weight, requirements, shares, ..pool("p", both()) }
}

/// Spot first, then on-demand, as two templates.
fn spot_first(shares: &[Share]) -> Vec<Pool> {
    vec![on("spot", 10, &["spot"], shares), on("steady", 0, &["on-demand"], shares)]
}

/// So many pods of three processors, of which a node of four holds one.
fn large(cluster: &mut Cluster, pods: usize, more: &serde_json::Value) {
    for number in 0..pods {
        let mut own = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": build::HOST, "labelSelector": {"matchLabels": {"app": "x"}}}]}}},
            "metadata": {"labels": {"app": "x"}}});
        build::merge(&mut own, more);
        cluster.upsert_pod(&pod(&format!("x-{number}"), "3", "1Gi", own)).unwrap();
    }
}

fn planned(templates: Vec<Pool>, pods: usize, there: &[ComingNode]) -> Plan {
    let mut cluster = Cluster::new();
    cluster.upsert_templates(templates).unwrap();
    there.iter().for_each(|node| cluster.upsert_coming(node.clone()));
    large(&mut cluster, pods, &json!({}));
    plan(&cluster)
}

/// Instances by capacity type.
fn launched(plan: &Plan) -> BTreeMap<&str, usize> {
    plan.instances.iter().fold(BTreeMap::new(), |mut sum, instance| {
        *sum.entry(instance.capacity_type.as_str()).or_default() += 1;
        sum
    })
}

/// A node without room.
fn full(name: &str, cpu: &str, capacity_type: CapacityType, template: &str) -> ComingNode {
    ComingNode {
        capacity_type,
        allocatable: build::resources(&[("cpu", "0"), ("pods", "0")]),
        capacity: build::resources(&[("cpu", cpu)]),
        ..coming(name, cpu, "16Gi", json!({"croft.dev/template": template}))
    }
}

#[test]
fn spot_is_launched_up_to_its_share_and_the_rest_on_demand() {
    let spot = at_most(of_type(CapacityType::Spot), 70);
    // As templates of two weights, and as two offerings of one template.
    let single = vec![on("", 0, &["spot", "on-demand"], std::slice::from_ref(&spot))];
    for templates in [spot_first(std::slice::from_ref(&spot)), single] {
        let plan = planned(templates, 10, &[]);
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        assert_eq!(launched(&plan), [("on-demand", 3), ("spot", 7)].into(), "{:?}", plan.instances);
    }
    let plan = planned(spot_first(&[at_most(of_template("spot"), 50)]), 4, &[]);
    assert_eq!(launched(&plan), [("on-demand", 2), ("spot", 2)].into());
}

#[test]
fn share_that_does_not_bind_leaves_the_plan_as_it_is() {
    let steady = at_most(of_type(CapacityType::OnDemand), 40);
    let (with, without) = (planned(spot_first(&[steady]), 6, &[]), planned(spot_first(&[]), 6, &[]));
    assert_eq!((launched(&with), with.steps), (launched(&without), without.steps));
    let options = |plan: &Plan| plan.instances.iter().map(|one| one.options.clone()).collect::<Vec<_>>();
    assert_eq!(options(&planned(spot_first(&[]), 1, &[])), options(&without)[..1]);
}

#[test]
fn nodes_that_are_there_count_and_those_that_leave_do_not() {
    let shares = [at_most(of_type(CapacityType::Spot), 50)];
    let steady = full("steady", "8", CapacityType::OnDemand, "steady");
    let plan_of = |leaving: &[&str]| {
        let mut cluster = Cluster::new();
        cluster.upsert_templates(spot_first(&shares)).unwrap();
        cluster.upsert_coming(steady.clone());
        large(&mut cluster, 2, &json!({}));
        let leaving = leaving.iter().map(|name| (*name).to_owned()).collect();
        solve(&cluster, &Options { leaving, ..Options::default() }, &|| false)
    };
    assert_eq!(launched(&plan_of(&[])), [("spot", 2)].into());
    assert_eq!(launched(&plan_of(&["steady"])), [("on-demand", 1), ("spot", 1)].into());
    // A pool that is outside its share launches the others until it is within again.
    let there =
        [full("a", "16", CapacityType::Spot, "spot"), full("b", "4", CapacityType::OnDemand, "steady")];
    assert_eq!(launched(&planned(spot_first(&shares), 2, &there)), [("on-demand", 2)].into());
}

#[test]
fn first_nodes_of_a_pool_are_of_the_kind_that_must_be() {
    for of in [of_type(CapacityType::OnDemand), of_template("steady")] {
        let shares = [first(of, 2)];
        for (pods, wanted) in [
            (1, [("on-demand", 1), ("spot", 0)]),
            (2, [("on-demand", 2), ("spot", 0)]),
            (5, [("on-demand", 2), ("spot", 3)]),
        ] {
            let mut wanted: BTreeMap<&str, usize> = wanted.into();
            wanted.retain(|_, count| *count > 0);
            assert_eq!(launched(&planned(spot_first(&shares), pods, &[])), wanted, "{pods} pods");
        }
        let there = [
            full("a", "4", CapacityType::OnDemand, "steady"),
            full("b", "4", CapacityType::OnDemand, "steady"),
        ];
        assert_eq!(launched(&planned(spot_first(&shares), 2, &there)), [("spot", 2)].into());
    }
}

#[test]
fn pod_that_runs_on_the_bounded_kind_alone_waits_and_is_told_why() {
    let only_spot = json!({"spec": {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}});
    let why_with = |share: Share| {
        let mut cluster = Cluster::new();
        cluster.upsert_templates(spot_first(&[share])).unwrap();
        cluster.upsert_coming(full("a", "4", CapacityType::OnDemand, "steady"));
        cluster.upsert_coming(full("b", "4", CapacityType::Spot, "spot"));
        large(&mut cluster, 1, &only_spot);
        why(&plan(&cluster)).swap_remove(0)
    };
    assert_eq!(
        why_with(at_most(of_type(CapacityType::Spot), 50)),
        "p PoolShare: template spot: at most 50 % of pool p's vCPU may be spot: its nodes have 8 cores now, of which 4 cores are spot, and another \
         such node would be too many; let the pod run on other nodes as well, or raise max in spec.shares"
    );
    assert_eq!(
        why_with(first(of_template("steady"), 2)),
        "p PoolShare: template spot: the first 2 nodes of pool p must be of template steady: 1 of its nodes are, and the pod needs \
         another kind; let it run on nodes that are of template steady as well, or lower minNodes in spec.shares"
    );
}

#[test]
fn pods_that_run_on_the_bounded_kind_alone_come_before_larger_ones_that_need_not() {
    let spot = at_most(of_type(CapacityType::Spot), 40);
    let single = vec![on("", 0, &["spot", "on-demand"], std::slice::from_ref(&spot))];
    let alike = |of: ShareOf| {
        let mut templates = spot_first(&[at_most(of, 40)]);
        templates.iter_mut().for_each(|template| template.weight = 0);
        templates
    };
    let alike = [alike(of_type(CapacityType::Spot)), alike(of_template("spot"))];
    for templates in [spot_first(std::slice::from_ref(&spot)), single].into_iter().chain(alike) {
        let mut cluster = Cluster::new();
        cluster.upsert_templates(templates).unwrap();
        large(&mut cluster, 2, &json!({}));
        for name in ["small-0", "small-1"] {
            let more = json!({"spec": {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}});
            cluster.upsert_pod(&pod(name, "2", "1Gi", more)).unwrap();
        }
        let plan = plan(&cluster);
        assert!(plan.unschedulable.is_empty(), "{:?}", plan.unschedulable);
        assert_eq!(launched(&plan)["on-demand"], 2, "{:?}", plan.instances);
    }
}

#[test]
fn pods_without_another_kind_get_the_nodes_that_the_others_allow_however_many_wait() {
    let only_spot = json!({"spec": {"nodeSelector": {"karpenter.sh/capacity-type": "spot"}}});
    for (percent, wanted) in [(50, 2), (70, 4)] {
        let mut cluster = Cluster::new();
        cluster.upsert_templates(spot_first(&[at_most(of_type(CapacityType::Spot), percent)])).unwrap();
        cluster.upsert_coming(full("a", "8", CapacityType::OnDemand, "steady"));
        large(&mut cluster, 40, &only_spot);
        let plan = plan(&cluster);
        assert_eq!(launched(&plan), [("spot", wanted)].into());
        assert_eq!(plan.unschedulable.len(), 40 - wanted);
        assert!(why(&plan).iter().any(|reason| reason.starts_with("p PoolShare: ")), "{:?}", why(&plan));
    }
}

#[test]
fn bound_is_not_above_the_cost_where_a_share_moves_pods_to_cheaper_nodes() {
    // The dearer template comes first, and may be half of the pool.
    let shares = [at_most(of_template("steady"), 50)];
    let steady_first = || vec![on("steady", 10, &["on-demand"], &shares), on("spot", 0, &["spot"], &shares)];
    let plan = planned(steady_first(), 4, &[]);
    assert_eq!(launched(&plan), [("on-demand", 2), ("spot", 2)].into());
    assert!(
        plan.bound_given_weights && plan.bound > Price::ZERO && plan.bound <= plan.cost,
        "{}",
        plan.bound
    );
    // Both as offerings of one template.
    let spot = [at_most(of_type(CapacityType::Spot), 50)];
    let plan = planned(vec![on("", 0, &["spot", "on-demand"], &spot)], 4, &[]);
    assert_eq!(launched(&plan), [("on-demand", 2), ("spot", 2)].into());
    assert!(
        !plan.bound_given_weights && plan.bound > Price::ZERO && plan.bound <= plan.cost,
        "{}",
        plan.bound
    );
}

#[test]
fn alternatives_of_a_node_keep_the_share_whichever_is_launched() {
    let mut kinds = both();
    for (name, cpu) in [("small", "2"), ("large", "8")] {
        // At the price of four processors.
        let mut other = kinds.iter().find(|kind| kind.name == "m.4").unwrap().clone();
        other.name = name.to_owned();
        other.capacity = build::resources(&[("cpu", cpu), ("memory", "16Gi"), ("pods", "110")]);
        kinds.push(other);
    }
    let shares = [at_most(of_type(CapacityType::Spot), 50)];
    let templates: Vec<Pool> = spot_first(&shares)
        .into_iter()
        .map(|template| Pool { instance_types: Arc::from(kinds.clone()), ..template })
        .collect();
    let cpu = |name: &str| kinds.iter().find(|kind| kind.name == name).unwrap().capacity.get("cpu");
    let plan = planned(templates, 4, &[]);
    assert_eq!(plan.instances.len(), 4);
    for instance in &plan.instances {
        let planned = cpu(&instance.instance_type);
        for option in &instance.options {
            let is_kept = match instance.capacity_type {
                CapacityType::Spot => cpu(option) <= planned,
                _ => cpu(option) >= planned,
            };
            assert!(is_kept, "{option} in place of {}", instance.instance_type);
        }
    }
}
