//! Both sides of small clusters.

use std::collections::BTreeSet;

use croft_scheduler::Price;
use serde_json::{Value, json};

use super::world::{compared, daemon_set, node, pod, row, tenant, web_node};
use crate::comparison::{Desired, Launcher, LeftOut};

fn none() -> Value {
    json!({})
}

const fn cents(cents: i64) -> Price {
    Price::from_micros(cents * 10_000)
}

#[test]
fn cluster_without_an_object_of_croft_is_compared_group_by_group() {
    let spot = json!({"karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "spot"});
    let comparison = compared(&[
        web_node("w1", "f.large"),
        web_node("w2", "f.large"),
        node("k1", "f.large", &spot),
        node("cp", "f.large", &json!({"node-role.kubernetes.io/control-plane": ""})),
        pod("shop", "a", Some("w1"), &none()),
        pod("shop", "b", Some("w2"), &none()),
        pod("bank", "c", Some("k1"), &none()),
        pod("kube-system", "etcd", Some("cp"), &none()),
    ]);
    assert_eq!(comparison.desired, Desired::Derived);
    assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);
    let web = row(&comparison, "node group web");
    assert_eq!((web.now.nodes, web.now.pods, web.now.cost.sum), (2, 2, cents(80)));
    assert_eq!((web.planned.nodes, web.planned.pods, web.planned.cost.sum), (1, 2, cents(10)));
    assert_eq!(web.launchers, BTreeSet::from([Launcher::ManagedNodeGroup]));
    assert_eq!(web.difference, Some(-700_000));
    // Only what the group has is planned: the family f, and spot alone.
    let default = row(&comparison, "NodePool default");
    assert_eq!((default.now.cost.sum, default.planned.cost.sum), (cents(12), cents(12)));
    for row in &comparison.pools {
        assert!(row.lower_bound_per_hour.unwrap() <= row.planned.cost.sum, "{row:?}");
    }
    assert_eq!((comparison.now.cost.sum, comparison.planned.cost.sum), (cents(92), cents(22)));
    assert!(comparison.lower_bound_per_hour.unwrap() <= cents(22));
    assert!(comparison.moves.is_empty() && !comparison.leaves_pods_out());
    assert_eq!(comparison.uncounted.nodes.get(&LeftOut::ControlPlane), Some(&1));
    assert_eq!(comparison.uncounted.pods_on_them, 1);
}

#[test]
fn managed_spot_nodes_cost_what_spot_costs_and_unsaid_ones_count_as_on_demand() {
    let spot = json!({"eks.amazonaws.com/nodegroup": "spot", "eks.amazonaws.com/capacityType": "SPOT"});
    let comparison = compared(&[node("s1", "f.large", &spot), node("o1", "f.large", &none())]);
    assert_eq!(row(&comparison, "node group spot").now.cost.sum, cents(12));
    assert_eq!(row(&comparison, "other nodes").now.cost.sum, cents(40));
    assert_eq!(comparison.nodes_of_unsaid_capacity_type, 1);
}

#[test]
fn unknown_price_is_counted_and_leaves_the_difference_unknown() {
    let comparison = compared(&[
        web_node("w1", "f.large"),
        node("o1", "odd", &none()),
        pod("shop", "a", Some("w1"), &none()),
        pod("shop", "b", Some("o1"), &none()),
    ]);
    assert_eq!((comparison.now.cost.sum, comparison.now.cost.unknown), (cents(40), 1));
    assert_eq!(comparison.difference, None);
    assert_eq!(row(&comparison, "node group web").difference, Some(-300_000));
    assert_eq!(row(&comparison, "other nodes").difference, None);
    let [wait] = comparison.waits.as_slice() else { panic!("{:?}", comparison.waits) };
    assert_eq!(
        (wait.pods.as_slice(), wait.from.as_deref()),
        (["shop/b".to_owned()].as_slice(), Some("other nodes"))
    );
    assert!(wait.why.starts_with("other nodes: "), "{}", wait.why);
}

#[test]
fn pods_of_a_tenant_move_to_its_pool_and_others_stay_in_their_group() {
    let mut objects = tenant(&json!({"template": {"spec": {
        "nodeClassRef": {"name": "default"},
        "requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g"]}]}}}));
    objects.extend([
        web_node("w1", "f.large"),
        web_node("w2", "f.large"),
        pod("shop", "a", Some("w1"), &none()),
        pod("other", "b", Some("w2"), &none()),
        pod("other", "c", None, &none()),
        pod("other", "d", None, &json!({"nodeSelector": {"node-pool": "shop"}})),
    ]);
    let comparison = compared(&objects);
    assert_eq!(comparison.desired, Desired::Both);
    let shop = row(&comparison, "shop");
    assert!(shop.declared && shop.launchers.is_empty());
    assert_eq!((shop.now.nodes, shop.planned.nodes, shop.planned.cost.sum), (0, 1, cents(20)));
    let web = row(&comparison, "node group web");
    assert_eq!((web.planned.nodes, web.planned.pods, web.planned.cost.sum), (1, 2, cents(10)));
    assert_eq!(comparison.waiting_now, 1, "the plan has a place for c");
    let [moved] = comparison.moves.as_slice() else { panic!("{:?}", comparison.moves) };
    assert_eq!(moved.pods, ["shop/a"]);
    assert_eq!((moved.from.as_deref(), moved.to.as_deref()), (Some("node group web"), Some("shop")));
    assert_eq!(moved.why, "Tenant shop has the namespace shop");
    let [refused] = comparison.refused.as_slice() else { panic!("{:?}", comparison.refused) };
    assert_eq!(refused.pods, ["other/d"]);
    assert!(comparison.leaves_pods_out());
}

#[test]
fn bound_of_templates_with_weights_holds_in_their_order_only() {
    let template = |name: &str, weight: i32, family: &str| {
        json!({"name": name, "weight": weight, "spec": {"nodeClassRef": {"name": "default"},
            "requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [family]}]}})
    };
    let planned = |weight: i32| {
        let mut objects =
            tenant(&json!({"templates": [template("dear", weight, "g"), template("cheap", 0, "f")]}));
        objects.extend([web_node("w1", "f.large"), pod("shop", "a", Some("w1"), &none())]);
        compared(&objects)
    };
    let weighted = planned(10);
    assert_eq!(row(&weighted, "shop").planned.cost.sum, cents(20), "weight comes before price");
    assert!(weighted.bound_given_weights && !planned(0).bound_given_weights);
}

#[test]
fn closed_zones_and_schedules_hold_in_the_plan() {
    let waiting = |pool: &Value, config: &Value| {
        let mut objects = tenant(pool);
        objects.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
            "metadata": {"name": "default"}, "spec": config}));
        objects.extend([web_node("w1", "f.large"), pod("shop", "a", Some("w1"), &none())]);
        let comparison = compared(&objects);
        let pods = comparison.waits.iter().map(|group| group.pods.len()).sum::<usize>();
        (pods, comparison.planned.nodes, comparison.warnings)
    };
    let template = json!({"template": {"spec": {"nodeClassRef": {"name": "default"}}}});
    let open = waiting(&template, &none());
    assert_eq!((open.0, open.1), (0, 1));
    let closed = json!({"zones": [{"name": "z1", "state": "NoLaunches", "reason": "incident"}]});
    let (pods, nodes, warnings) = waiting(&template, &closed);
    assert_eq!((pods, nodes), (1, 0), "nothing is launched in z1");
    assert!(warnings.iter().any(|warning| warning.contains("zone z1")), "{warnings:?}");
    let mut off = template;
    off["schedules"] = json!([{"schedule": "0 * * * *", "duration": "2h", "replicas": 0}]);
    let (pods, nodes, warnings) = waiting(&off, &none());
    assert_eq!((pods, nodes), (1, 0), "the schedule always holds");
    assert!(warnings.iter().any(|warning| warning.contains("spec.schedules[0]")), "{warnings:?}");
}

#[test]
fn nodes_with_the_label_of_a_pool_are_compared_with_that_pool() {
    let mut objects = tenant(&json!({"template": {"spec": {"nodeClassRef": {"name": "default"}}}}));
    let labels = json!({"karpenter.sh/nodepool": "shop-karpenter", "node-pool": "shop"});
    objects.extend([node("k1", "f.large", &labels), pod("shop", "a", Some("k1"), &none())]);
    let comparison = compared(&objects);
    let [shop] = comparison.pools.as_slice() else { panic!("{:?}", comparison.pools) };
    assert_eq!(shop.launchers, BTreeSet::from([Launcher::Karpenter]));
    assert_eq!((shop.now.cost.sum, shop.planned.cost.sum), (cents(40), cents(10)));
    assert_eq!(comparison.desired, Desired::Declared);
    assert!(comparison.moves.is_empty(), "the pods stay in their pool");
}

#[test]
fn nodes_of_a_pool_that_croft_does_not_provision_stay_on_both_sides() {
    let mut objects = tenant(&json!({"provisioner": "None"}));
    objects.extend([
        node("n1", "f.large", &json!({"node-pool": "shop"})),
        web_node("w1", "f.large"),
        pod("shop", "a", Some("n1"), &none()),
        pod("shop", "b", Some("w1"), &none()),
    ]);
    let comparison = compared(&objects);
    let shop = row(&comparison, "shop");
    assert_eq!((shop.now.pods, shop.planned.pods), (1, 2), "b has room there");
    assert_eq!((shop.planned.cost.sum, shop.lower_bound_per_hour), (cents(40), Some(cents(40))));
    assert_eq!(comparison.moves.len(), 1);
    assert_eq!(row(&comparison, "node group web").planned.nodes, 0);
}

#[test]
fn daemon_sets_take_room_on_planned_nodes_and_their_pods_do_not_count() {
    let cluster = |sets: &[Value]| {
        let mut agent = pod("logging", "agent-1", Some("w1"), &none());
        agent["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
        let mut objects = vec![
            web_node("w1", "f.large"),
            pod("shop", "a", Some("w1"), &none()),
            pod("shop", "b", Some("w1"), &none()),
            agent,
        ];
        objects.extend_from_slice(sets);
        compared(&objects)
    };
    let without = cluster(&[]);
    assert_eq!((without.planned.nodes, without.planned.pods), (1, 2));
    assert_eq!(without.uncounted.pods_of_unknown_daemon_sets, 1);
    let with = cluster(&[daemon_set("logging", "agent")]);
    assert_eq!((with.planned.nodes, with.planned.pods, with.planned.cost.sum), (2, 2, cents(20)));
    assert_eq!(with.uncounted.pods_of_unknown_daemon_sets, 0);
}

#[test]
fn derived_pool_has_the_labels_and_taints_that_its_nodes_share() {
    let tainted = |name: &str, own: &str| {
        let labels = json!({"eks.amazonaws.com/nodegroup": "batch", "team": "a", "own": own});
        let mut node = node(name, "f.large", &labels);
        node["spec"] = json!({"taints": [
            {"key": "batch", "value": "yes", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]});
        node
    };
    let tolerating = |selector: Value| json!({"nodeSelector": selector, "tolerations": [{"key": "batch", "operator": "Exists"}]});
    let comparison = compared(&[
        tainted("b1", "x"),
        tainted("b2", "y"),
        pod("shop", "by-team", Some("b1"), &tolerating(json!({"team": "a"}))),
        pod("shop", "by-group", None, &tolerating(json!({"eks.amazonaws.com/nodegroup": "batch"}))),
        pod("shop", "by-own", Some("b1"), &tolerating(json!({"own": "x"}))),
        pod("shop", "intolerant", None, &none()),
    ]);
    assert_eq!(row(&comparison, "node group batch").planned.pods, 2);
    let waiting: BTreeSet<&str> =
        comparison.waits.iter().flat_map(|group| &group.pods).map(String::as_str).collect();
    assert_eq!(waiting, BTreeSet::from(["shop/by-own", "shop/intolerant"]));
}
