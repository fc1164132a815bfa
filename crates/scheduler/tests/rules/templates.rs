//! A pool with several templates: which one a pod's node is launched by, and which limits count.

use std::{collections::BTreeSet, sync::Arc};

use croft_scheduler::{Cluster, ComingNode, InstanceType, Options, Plan, Pool, Price, solve};
use serde_json::json;

use super::build::{self, coming, kinds, plan, pod, pool, requirement, taint, why};

/// The types of `kinds`, for spot alone at this share of the price.
fn spot(kinds: Vec<InstanceType>, share: f64) -> Vec<InstanceType> {
    let cheaper = |mut kind: InstanceType| {
        for offering in &mut kind.offerings {
            offering.capacity_type = croft_scheduler::CapacityType::Spot;
            offering.price = offering.price.and_then(|price| Price::from_dollars(price.dollars() * share));
        }
        kind
    };
    kinds.into_iter().map(cheaper).collect()
}

fn template(name: &str, weight: i32, kinds: Vec<InstanceType>) -> Pool {
    Pool { template: name.to_owned(), weight, ..pool("p", kinds) }
}

fn on_spot(weight: i32) -> Pool {
    let requirements = vec![requirement("karpenter.sh/capacity-type", &["spot"])];
    Pool { requirements, ..template("spot", weight, spot(kinds(), 0.3)) }
}

fn nodes(most: &str) -> std::collections::BTreeMap<String, croft_scheduler::Quantity> {
    [("nodes".to_owned(), most.parse().unwrap())].into()
}

/// A plan for so many pods of three processors, of which a node of four holds one.
fn planned(templates: Vec<Pool>, pods: usize, there: &[ComingNode]) -> Plan {
    let mut cluster = Cluster::new();
    cluster.upsert_templates(templates).unwrap();
    there.iter().for_each(|node| cluster.upsert_coming(node.clone()));
    for number in 0..pods {
        let own = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": build::HOST, "labelSelector": {"matchLabels": {"app": "x"}}}]}}},
            "metadata": {"labels": {"app": "x"}}});
        cluster.upsert_pod(&pod(&format!("x-{number}"), "3", "1Gi", own)).unwrap();
    }
    plan(&cluster)
}

fn templates_of(plan: &Plan) -> Vec<&str> {
    plan.instances.iter().map(|instance| instance.template.as_str()).collect()
}

#[test]
fn a_heavier_template_comes_before_a_cheaper_one() {
    let plan = planned(vec![template("steady", 10, kinds()), on_spot(0)], 2, &[]);
    assert_eq!(templates_of(&plan), ["steady", "steady"]);
    let [first, ..] = plan.instances.as_slice() else { panic!("{plan:?}") };
    assert_eq!((first.name.as_str(), first.pool.as_str()), ("p-steady-1", "p"));
    assert_eq!(first.labels.get("croft.dev/template").map(String::as_str), Some("steady"));
}

#[test]
fn of_equal_templates_the_cheapest_is_used() {
    let plan = planned(vec![template("steady", 10, kinds()), on_spot(10)], 2, &[]);
    assert_eq!(templates_of(&plan), ["spot", "spot"]);
}

#[test]
fn the_next_template_is_used_in_the_same_plan_where_the_first_is_full_or_has_no_capacity() {
    let full = Pool { template_limits: nodes("1"), ..on_spot(10) };
    let plan = planned(vec![full, template("steady", 0, kinds())], 3, &[]);
    assert_eq!(templates_of(&plan), ["spot", "steady", "steady"]);

    let mut gone = spot(kinds(), 0.3);
    gone.iter_mut().flat_map(|kind| &mut kind.offerings).for_each(|offering| offering.available = false);
    let gone = Pool { instance_types: Arc::from(gone), ..on_spot(10) };
    let plan = planned(vec![gone, template("steady", 0, kinds())], 2, &[]);
    assert_eq!(templates_of(&plan), ["steady", "steady"]);
}

#[test]
fn a_pod_goes_to_the_template_that_its_selector_and_tolerations_allow() {
    let mut arm = kinds();
    arm.iter_mut().for_each(|kind| kind.arch = "arm64".to_owned());
    let arm = template("arm", 0, arm);
    let builder = Pool { taints: vec![taint("builder", "true")], ..template("builder", 50, kinds()) };
    let mut cluster = Cluster::new();
    cluster.upsert_templates(vec![template("x86", 10, kinds()), arm, builder]).unwrap();
    let pods = [
        pod("any", "1", "1Gi", json!({})),
        pod("arm", "1", "1Gi", json!({"spec": {"nodeSelector": {"kubernetes.io/arch": "arm64"}}})),
        pod(
            "builder",
            "1",
            "1Gi",
            json!({"spec": {"tolerations": [{"key": "builder", "operator": "Exists"}]}}),
        ),
        pod("named", "1", "1Gi", json!({"spec": {"nodeSelector": {"croft.dev/template": "arm"}}})),
    ];
    pods.iter().for_each(|pod| cluster.upsert_pod(pod).unwrap());
    let plan = plan(&cluster);
    let template_of = |name: &str| {
        let has =
            |instance: &&croft_scheduler::PlannedInstance| instance.pods.iter().any(|p| &*p.name == name);
        plan.instances.iter().find(has).map(|instance| instance.template.as_str())
    };
    assert_eq!(template_of("any"), Some("x86"));
    assert_eq!(template_of("arm"), Some("arm"));
    assert_eq!(template_of("builder"), Some("builder"));
    assert_eq!(template_of("named"), Some("arm"));
}

#[test]
fn bound_is_that_of_the_plans_order_of_weights_and_is_met_where_a_limit_binds() {
    let spot = Pool { template_limits: nodes("2"), ..on_spot(10) };
    let plan = planned(vec![spot, template("steady", 0, kinds())], 4, &[]);
    assert_eq!(templates_of(&plan), ["spot", "spot", "steady", "steady"]);
    assert!(plan.bound_given_weights);
    assert!(plan.bound <= plan.cost && plan.gap() < 0.001, "{} {}", plan.bound, plan.cost);
    // The dearer one comes first: what that costs is no gap.
    let plan = planned(vec![template("steady", 10, kinds()), on_spot(0)], 4, &[]);
    assert_eq!(templates_of(&plan), ["steady"; 4]);
    assert!(plan.bound_given_weights && plan.gap() < 0.001, "{} {}", plan.bound, plan.cost);
    let alike = planned(vec![on_spot(0), template("steady", 0, kinds())], 2, &[]);
    assert!(!alike.bound_given_weights);
}

#[test]
fn limits_of_the_pool_count_the_nodes_of_all_templates_and_those_of_none() {
    let limited = |template: Pool| Pool { limits: nodes("4"), ..template };
    let there = [
        coming("a", "4", "16Gi", json!({"croft.dev/template": "steady"})),
        coming("b", "4", "16Gi", json!({"croft.dev/template": "renamed"})),
        coming("c", "4", "16Gi", json!({})),
    ];
    let occupied: Vec<ComingNode> = there
        .into_iter()
        .map(|node| ComingNode { allocatable: build::resources(&[("cpu", "0"), ("pods", "0")]), ..node })
        .collect();
    let templates = vec![limited(on_spot(10)), limited(template("steady", 0, kinds()))];
    let plan = planned(templates, 2, &occupied);
    assert_eq!(templates_of(&plan), ["spot"]);
    let why = why(&plan);
    assert!(why.iter().all(|why| why.starts_with("p PoolLimit: template ")), "{why:?}");
    assert!(why.iter().all(|why| why.contains("its nodes have 3 nodes already")), "{why:?}");
}

#[test]
fn limits_of_a_template_count_its_own_nodes() {
    let full = |node: ComingNode| ComingNode {
        allocatable: build::resources(&[("cpu", "0"), ("pods", "0")]),
        ..node
    };
    let there = [
        full(coming("a", "4", "16Gi", json!({"croft.dev/template": "steady"}))),
        full(coming("b", "4", "16Gi", json!({"croft.dev/template": "spot"}))),
    ];
    let spot = Pool { template_limits: nodes("2"), ..on_spot(10) };
    let steady = Pool { template_limits: nodes("1"), ..template("steady", 0, kinds()) };
    let plan = planned(vec![spot, steady], 3, &there);
    assert_eq!(templates_of(&plan), ["spot"]);
    assert_eq!(plan.unschedulable.len(), 2);
    let why = why(&plan);
    assert_eq!(
        why,
        [
            "p PoolLimit: template spot: its limits (nodes 2) leave no room for another node; its nodes have 1 nodes already",
            "p PoolLimit: template steady: its limits (nodes 1) leave no room for another node; its nodes have 1 nodes already",
        ]
    );
}

#[test]
fn templates_that_go_leave_nothing_behind() {
    let mut cluster = Cluster::new();
    cluster.upsert_templates(vec![on_spot(10), template("steady", 0, kinds())]).unwrap();
    cluster.upsert_templates(vec![template("steady", 0, kinds())]).unwrap();
    cluster.upsert_pod(&pod("x", "1", "1Gi", json!({}))).unwrap();
    assert_eq!(templates_of(&plan(&cluster)), ["steady"]);
    cluster.remove_pool("p");
    assert_eq!(plan(&cluster).unschedulable.len(), 1);
}

#[test]
fn a_plan_launches_by_the_templates_that_its_options_name() {
    let mut cluster = Cluster::new();
    cluster.upsert_templates(vec![on_spot(10), template("steady", 0, kinds())]).unwrap();
    cluster.upsert_pod(&pod("x", "1", "1Gi", json!({}))).unwrap();
    let names =
        |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    for (pool, calls, expected) in [
        ("p", vec![], vec!["spot"]),
        ("p", vec![names(&["steady"])], vec!["steady"]),
        ("p", vec![names(&["steady", "spot"]), names(&["steady"])], vec!["steady"]),
        ("p", vec![names(&[])], vec![]),
        ("another", vec![names(&[])], vec!["spot"]),
    ] {
        let mut options = Options::default();
        calls.iter().for_each(|templates| options.templates.restrict(pool, templates));
        let plan = solve(&cluster, &options, &|| false);
        assert_eq!(templates_of(&plan), expected, "{pool} {calls:?}");
        assert!(plan.unschedulable.is_empty() || expected.is_empty());
    }
}

#[test]
fn a_template_of_a_fixed_size_launches_nothing_and_says_so() {
    let steady = Pool { launches: false, template_replicas: Some(2), ..template("steady", 10, kinds()) };
    assert_eq!(templates_of(&planned(vec![steady.clone(), on_spot(0)], 1, &[])), ["spot"]);
    let why = why(&planned(vec![steady], 1, &[]));
    let detail = "template steady: it has a fixed size (replicas: 2), and none of its nodes has room";
    assert_eq!(why, [format!("p PoolLimit: {detail}")]);
}
