//! Prices that are computed by hand.

use croft_scheduler::Price;

use super::world::{Extra, World, request, shown, types};
use crate::advice::{Focus, advise, find::find};

const AMD64: &str = "nodeSelector: {node-pool: main, kubernetes.io/arch: amd64}";

/// A pod of half a CPU that keeps to amd64 by its pool.
fn amd64() -> World {
    World::new(
        "disruption: {preference: Cheapest, minSavings: '0'},",
        "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [small, large]}]",
    )
}

#[test]
fn budget_on_the_only_pod_of_a_large_node_costs_the_difference_to_a_small_one() {
    let world = amd64()
        .node("n1", "large", "z1", "")
        .pod("web", 0, "n1", &Extra::default())
        .budget("web", "minAvailable: 100%");
    let advice = world.advice();
    assert_eq!(shown(&advice), [("PodDisruptionBudget", "PodDisruptionBudget shop/web", "0.30".to_owned())]);
    let price = &advice.prices[0];
    assert_eq!(
        (price.tenants.as_slice(), price.namespace.as_deref()),
        (["shop".to_owned()].as_slice(), Some("shop"))
    );
    assert_eq!(price.constraint, "minAvailable 100% of its 1 pod allows no eviction");
    assert_eq!(price.change, "run 2 pods with spec.minAvailable 1, or set spec.minAvailable from 100% to 0");
    assert_eq!((advice.cost, advice.together), (Price::from_micros(400_000), Price::from_micros(300_000)));
}

#[test]
fn budget_whose_pods_are_unhealthy_for_a_while_has_no_price() {
    let status = "\nstatus: {expectedPods: 2, desiredHealthy: 1, currentHealthy: 1, disruptionsAllowed: 0}";
    let mut world = amd64()
        .node("n1", "large", "z1", "")
        .pod("web", 0, "n1", &Extra::default())
        .budget("web", "maxUnavailable: 1");
    world.0.push_str(status.trim_start());
    let advice = world.advice();
    assert_eq!((advice.prices.len(), advice.constraints), (0, 0));
}

#[test]
fn spread_that_forces_a_second_zone_costs_a_node() {
    let spread = "topologySpreadConstraints: [{maxSkew: 1, minDomains: 2, whenUnsatisfiable: DoNotSchedule,
    topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}]";
    let pod = || Extra { spec: spread, ..Extra::default() };
    let world = amd64()
        .node("n1", "small", "z1", "")
        .node("n2", "small", "z2", "")
        .pod("web", 0, "n1", &pod())
        .pod("web", 1, "n2", &pod());
    let advice = world.advice();
    assert_eq!(shown(&advice), [("TopologySpread", "StatefulSet shop/web", "0.10".to_owned())]);
    assert_eq!(
        advice.prices[0].change,
        "set whenUnsatisfiable to ScheduleAnyway in spec.template.spec.topologySpreadConstraints[0], and leave out minDomains"
    );
}

#[test]
fn anti_affinity_that_forces_three_nodes_costs_two_of_them() {
    let apart = "affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
    {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}";
    let pod = || Extra { spec: apart, ..Extra::default() };
    let world = (1..=3).fold(amd64(), |world, n| {
        let node = format!("n{n}");
        world.node(&node, "small", "z1", "").pod("web", n, &node, &pod())
    });
    assert_eq!(shown(&world.advice()), [("PodAntiAffinity", "StatefulSet shop/web", "0.20".to_owned())]);
}

#[test]
fn pending_pods_of_a_deployment_are_priced_as_if_they_ran() {
    let world = amd64().with(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: i, resources: {requests: {cpu: 500m}}}]
      affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
        {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}",
    );
    let advice = world.advice();
    assert_eq!(shown(&advice), [("PodAntiAffinity", "Deployment shop/web", "0.20".to_owned())]);
    assert_eq!(advice.cost, Price::from_micros(300_000));
}

#[test]
fn do_not_disrupt_costs_what_a_smaller_node_would_save() {
    let annotation = "croft.dev/do-not-disrupt: 'true'";
    let of_pod = amd64().node("n1", "large", "z1", "").pod(
        "web",
        0,
        "n1",
        &Extra { annotations: annotation, ..Extra::default() },
    );
    let advice = of_pod.advice();
    assert_eq!(shown(&advice), [("DoNotDisrupt", "StatefulSet shop/web", "0.30".to_owned())]);
    assert_eq!(
        advice.prices[0].change,
        "remove croft.dev/do-not-disrupt from spec.template.metadata.annotations"
    );
    let of_node = amd64().node("n1", "large", "z1", annotation).pod("web", 0, "n1", &Extra::default());
    assert_eq!(shown(&of_node.advice()), [("DoNotDisrupt", "Node n1", "0.30".to_owned())]);
}

#[test]
fn selected_architecture_costs_the_difference_to_the_cheaper_one() {
    let pod = || Extra { spec: AMD64, ..Extra::default() };
    let world = World::free().node("n1", "small", "z1", "").pod("web", 0, "n1", &pod());
    let advice = world.advice();
    assert_eq!(shown(&advice), [("Architecture", "StatefulSet shop/web", "0.06".to_owned())]);
    assert_eq!(advice.prices[0].constraint, "its pods select kubernetes.io/arch amd64");
    assert_eq!(
        advice.prices[0].change,
        "leave kubernetes.io/arch out of spec.template.spec.nodeSelector, if the images run on other architectures"
    );
}

#[test]
fn required_architecture_of_a_pool_costs_the_difference_to_the_cheaper_one() {
    let world = World::new(
        "disruption: {preference: Cheapest, minSavings: '0'},",
        "requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}]",
    )
    .node("n1", "small", "z1", "")
    .pod("web", 0, "n1", &Extra::default());
    let advice = world.advice();
    assert_eq!(shown(&advice), [("Architecture", "TenantPool main", "0.06".to_owned())]);
    assert_eq!(advice.prices[0].constraint, "requirement kubernetes.io/arch In amd64");
}

#[test]
fn selected_zone_costs_a_node_beside_one_with_room() {
    let zone = "nodeSelector: {node-pool: main, topology.kubernetes.io/zone: z2}";
    let world = amd64()
        .node("n1", "small", "z1", "")
        .node("n2", "small", "z2", "")
        .pod(
            "api",
            0,
            "n1",
            &Extra {
                spec: "nodeSelector: {node-pool: main, topology.kubernetes.io/zone: z1}",
                ..Extra::default()
            },
        )
        .pod("web", 0, "n2", &Extra { spec: zone, ..Extra::default() });
    let expected = |name| ("Zone", name, "0.10".to_owned());
    let advice = world.advice();
    assert_eq!(shown(&advice), [expected("StatefulSet shop/api"), expected("StatefulSet shop/web")]);
    // Either is enough: prices don't add up.
    assert_eq!(advice.together, Price::from_micros(100_000));
}

#[test]
fn savings_that_a_pool_asks_for_above_a_command_cost_what_the_command_would_save() {
    for (setting, kind, change) in [
        ("minSavings: '0.20'", "MinSavings", "set spec.disruption.minSavings from 0.20 to 0"),
        (
            "minSavings: '0', evictionCost: '2'",
            "EvictionCost",
            "set spec.disruption.evictionCost from 2 to 0.008",
        ),
    ] {
        let world = World::new(
            &format!("disruption: {{preference: Cheapest, {setting}}},"),
            "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [small]}]",
        )
        .node("n1", "small", "z1", "")
        .node("n2", "small", "z1", "")
        .pod("web", 0, "n1", &Extra::default())
        .pod("web", 1, "n2", &Extra::default());
        let advice = world.advice();
        assert_eq!(shown(&advice), [(kind, "TenantPool main", "0.10".to_owned())], "{setting}");
        assert_eq!(advice.prices[0].change, change);
    }
}

#[test]
fn settings_that_keep_every_node_with_pods_have_the_price_of_consolidation() {
    for (setting, kind) in [
        ("consolidationPolicy: WhenEmpty", "ConsolidationPolicy"),
        ("consolidateAfter: Never", "ConsolidateAfter"),
        ("budgets: [{nodes: '0'}]", "DisruptionBudget"),
    ] {
        let world = World::new(
            &format!("disruption: {{preference: Cheapest, minSavings: '0', {setting}}},"),
            "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [small, large]}]",
        )
        .node("n1", "large", "z1", "")
        .pod("web", 0, "n1", &Extra::default());
        assert_eq!(shown(&world.advice()), [(kind, "TenantPool main", "0.30".to_owned())], "{setting}");
    }
}

/// A node of the template `large` with half a CPU of pods, in a pool of that template and of `small`; with these fields of each.
fn templates(large: &str, small: &str) -> World {
    let mut world = amd64().node("n1", "large", "z1", "").pod("web", 0, "n1", &Extra::default());
    let one = |name: &str, fields: &str| {
        let kind = format!("{{key: node.kubernetes.io/instance-type, operator: In, values: [{name}]}}");
        format!("{{name: {name}, {fields} spec: {{nodeClassRef: {{name: c}}, requirements: [{kind}]}}}}")
    };
    let start = world.0.find("template: {spec").unwrap();
    let end = start + world.0[start..].find('\n').unwrap();
    let templates = format!("templates: [{}, {}]}}", one("large", large), one("small", small));
    world.0.replace_range(start..end, &templates);
    world.0 =
        world.0.replace("    node-pool: main\n", "    node-pool: main\n    croft.dev/template: large\n");
    world
}

#[test]
fn weight_of_a_template_costs_the_difference_to_a_cheaper_one() {
    let advice = templates("weight: 10,", "").advice();
    assert_eq!(shown(&advice), [("Weight", "TenantPool main", "0.30".to_owned())]);
    assert_eq!(
        advice.prices[0].constraint,
        "weights of templates, which come before price: large 10, small 0"
    );
    let alike = templates("", "").advice();
    assert!(shown(&alike).is_empty(), "the cheaper one is used already");
}

#[test]
fn limit_of_a_template_costs_the_difference_to_the_one_that_is_used_instead() {
    let advice = templates("", "weight: 10, limits: {nodes: 0},").advice();
    assert_eq!(shown(&advice), [("Limit", "TenantPool main", "0.30".to_owned())]);
    assert_eq!(advice.prices[0].change, "raise spec.templates[small].limits.nodes above 0");
}

#[test]
fn limit_without_room_for_a_replacement_costs_what_the_replacement_would_save() {
    let world = World::new(
        "disruption: {preference: Cheapest, minSavings: '0'}, limits: {nodes: 1},",
        "requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [small, large]}]",
    )
    .node("n1", "large", "z1", "")
    .pod("web", 0, "n1", &Extra::default());
    let advice = world.advice();
    assert_eq!(shown(&advice), [("Limit", "TenantPool main", "0.30".to_owned())]);
    assert_eq!(advice.prices[0].change, "raise spec.limits.nodes above 1");
}

#[test]
fn two_constraints_on_one_node_have_a_price_together_only() {
    let world = amd64()
        .node("n1", "large", "z1", "croft.dev/do-not-disrupt: 'true'")
        .pod("web", 0, "n1", &Extra::default())
        .budget("web", "maxUnavailable: 0");
    let advice = world.advice();
    assert_eq!(shown(&advice), []);
    assert_eq!((advice.together, advice.constraints), (Price::from_micros(300_000), 2));
}

#[test]
fn waste_that_consolidation_removes_anyway_has_no_price() {
    // The spread costs nothing: both pods are in one zone that has room.
    let spread = "topologySpreadConstraints: [{maxSkew: 5, whenUnsatisfiable: DoNotSchedule,
    topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}]";
    let world = amd64()
        .node("n1", "large", "z1", "")
        .node("n2", "large", "z1", "")
        .pod("web", 0, "n1", &Extra { spec: spread, ..Extra::default() })
        .pod("web", 1, "n2", &Extra { spec: spread, ..Extra::default() });
    let advice = world.advice();
    assert_eq!((advice.prices.len(), advice.constraints), (0, 1));
    assert_eq!(advice.cost, Price::from_micros(800_000));
}

#[test]
fn constraints_beyond_the_number_of_counterfactuals_are_counted_as_not_tried() {
    let world = amd64().node("n1", "large", "z1", "croft.dev/do-not-disrupt: 'true'").pod(
        "web",
        0,
        "n1",
        &Extra { spec: AMD64, ..Extra::default() },
    );
    let few = |most| {
        let request = crate::advice::Request { most, ..request(Focus::All) };
        let advice = advise(&world.input(), &types(), &request, &mut || {}).unwrap();
        (advice.prices.len(), advice.not_tried)
    };
    assert_eq!((few(0), few(1), few(2), few(3)), ((0, 2), (0, 2), (1, 1), (1, 0)));
}

#[test]
fn focus_prices_only_what_its_object_has() {
    let annotation = "croft.dev/do-not-disrupt: 'true'";
    let world = amd64()
        .node("n1", "large", "z1", "")
        .node("n2", "large", "z1", annotation)
        .pod("web", 0, "n1", &Extra { annotations: annotation, cpu: "7", ..Extra::default() })
        .pod("api", 0, "n2", &Extra { cpu: "1500m", ..Extra::default() });
    assert_eq!(
        shown(&world.advice_on(Focus::Node("n2".to_owned()))),
        [("DoNotDisrupt", "Node n2", "0.30".to_owned())]
    );
    let of = |name: &str| Focus::Pod { namespace: "shop".to_owned(), name: name.to_owned() };
    let constraints = |name| world.advice_on(of(name)).constraints;
    assert_eq!((constraints("web-0"), constraints("api-0")), (1, 0));
}

#[test]
fn tenant_and_namespace_narrow_the_constraints() {
    let world = amd64()
        .node("n1", "large", "z1", "")
        .pod("web", 0, "n1", &Extra::default())
        .budget("web", "maxUnavailable: 0");
    let count = |tenant: Option<&str>, namespace: Option<&str>| {
        let (tenant, namespace) = (tenant.map(str::to_owned), namespace.map(str::to_owned));
        let request = crate::advice::Request { tenant, namespace, ..request(Focus::All) };
        advise(&world.input(), &types(), &request, &mut || {}).unwrap().prices.len()
    };
    assert_eq!((count(Some("shop"), Some("shop")), count(Some("bank"), None)), (1, 0));
    assert_eq!((count(None, Some("shop")), count(None, Some("bank"))), (1, 0));
}

#[test]
fn constraint_of_a_namespace_that_is_not_visible_is_neither_shown_nor_counted() {
    let world = amd64()
        .node("n1", "large", "z1", "")
        .pod("web", 0, "n1", &Extra::default())
        .budget("web", "maxUnavailable: 0");
    let price = |namespace: &str| {
        let visible = Some([namespace.to_owned()].into());
        let request = crate::advice::Request { visible, ..request(Focus::Node("n1".to_owned())) };
        advise(&world.input(), &types(), &request, &mut || {}).unwrap()
    };
    let (shop, bank) = (price("shop"), price("bank"));
    assert_eq!((shop.prices.len(), bank.prices.len()), (1, 0));
    assert!(bank.constraints < shop.constraints && bank.together == Price::ZERO, "{bank:?}");
}

#[test]
fn cheaper_cluster_that_the_constraint_allows_as_well_is_no_price_of_it() {
    let annotation = "croft.dev/do-not-disrupt: 'true'";
    let pod = || Extra { annotations: annotation, ..Extra::default() };
    let world = |node: &str| {
        amd64().node("n1", "small", "z1", annotation).node("n2", "small", "z1", "").pod(
            "web",
            0,
            node,
            &pod(),
        )
    };
    let (with, moved) = (world("n1").input(), world("n2").input());
    let mut removed = moved.clone();
    removed.nodes.retain(|node| node.metadata.name.as_deref() != Some("n1"));
    let found = find(&with, &with, &types(), request(Focus::All).now, &Focus::All).unwrap();
    let explains = |without| -> Vec<(&str, bool)> {
        found.iter().map(|one| (one.words.object.as_str(), one.may_explain(&with, without))).collect()
    };
    let (pods, node) = ("StatefulSet shop/web", "Node n1");
    assert_eq!(explains(&with), [(pods, false), (node, false)]);
    assert_eq!(explains(&moved), [(pods, true), (node, false)]);
    assert_eq!(explains(&removed), [(pods, true), (node, true)]);
}
