use croft_manifest::{LoadOptions, parse};
use croft_scheduler::Catalog;
use serde_json::{Value, json};

use super::*;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_795_572_000 + seconds).unwrap()
}

/// `small` is $0.10 an hour and takes one of these pods; `large` is $0.40 and takes seven.
fn types() -> Arc<[InstanceType]> {
    let text = include_str!("../../../cli/tests/cases/_shared/catalog.json");
    serde_json::from_str::<Catalog>(text).unwrap().instance_types.into()
}

fn node(name: &str, instance_type: &str) -> [Value; 2] {
    let (cpu, memory, price) = match instance_type {
        "small" => ("1900m", "7680Mi", "0.1"),
        _ => ("7900m", "32256Mi", "0.4"),
    };
    let labels = json!({
        "node-pool": "shop-main", "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": "z1", "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    });
    let taint = json!({"key": "node-pool", "value": "shop-main", "effect": "NoSchedule"});
    let amounts = json!({"cpu": cpu, "memory": memory, "pods": "20"});
    [
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": format!("aws:///z1/i-{name}"), "taints": [taint]},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
        }),
        json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim", "metadata": {"name": format!("claim-{name}")},
            "spec": {"pool": "shop-main", "nodeClassRef": {"name": "default"}, "instanceTypes": [instance_type],
                "zones": ["z1"], "capacityType": "on-demand", "taints": [taint]},
            "status": {"nodeName": name, "providerId": format!("aws:///z1/i-{name}"), "instanceType": instance_type,
                "zone": "z1", "capacityType": "on-demand", "pricePerHour": price},
        }),
    ]
}

fn pod(name: &str, node: Option<&str>, created: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": time(created).to_string(), "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true}]},
        "spec": {"nodeName": node, "nodeSelector": {"node-pool": "shop-main"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "shop-main", "effect": "NoSchedule"}],
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" },
            "startTime": node.map(|_| time(created).to_string())},
    })
}

/// The cluster `seconds` after the begin.
fn snapshot(seconds: i64, disruption: &Value, objects: impl IntoIterator<Item = Value>) -> Input {
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "shop"},
            "spec": {"namespaces": ["shop"], "pools": ["shop-main"]}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "shop-main"},
            "spec": {"key": "node-pool", "disruption": disruption, "template": {"spec": {"nodeClassRef": {"name": "default"}}}}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"role": "node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
                "subnetSelectorTerms": [{"tags": {"a": "b"}}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}}),
    ];
    items.extend(objects);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    let mut input = parse("record", &list, &LoadOptions::default()).unwrap();
    input.recorded_at = Some(time(seconds));
    input
}

fn at_once() -> Value {
    json!({"consolidateAfter": "30s", "preference": "Cheapest", "budgets": [{"nodes": "100%"}], "minSavings": "0"})
}

fn begin(mut first: Input) -> Replay {
    keep_demand(&mut first);
    Replay::begin(&first.clone(), first, types(), Options::default()).unwrap()
}

fn advance(replay: &mut Replay, mut next: Input) {
    keep_demand(&mut next);
    replay.advance(next, &Some).unwrap();
}

fn cost(replay: &Replay) -> i64 {
    replay.totals().all().cost().micros()
}

#[test]
fn a_cluster_at_rest_costs_what_was_recorded() {
    let objects = || node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
    let first = snapshot(0, &at_once(), objects());
    let mut recorded = Totals::begin(&first);
    recorded.add(&first, &types(), SignedDuration::from_hours(7));
    let mut replay = begin(first);
    advance(&mut replay, snapshot(3 * HOUR, &at_once(), objects()));
    replay.run_until(time(7 * HOUR)).unwrap();
    assert_eq!(cost(&replay), 700_000);
    assert_eq!(replay.totals().pools, recorded.pools);
    assert_eq!((replay.totals().launched, replay.totals().removed, replay.evicted()), (0, 0, 0));
}

#[test]
fn nodes_of_a_pool_are_gone_while_its_schedule_says_so() {
    // The replay begins at 02:00.
    let schedules = json!([{"schedule": "0 3 * * *", "duration": "2h", "replicas": 0}]);
    let at = |seconds: i64| {
        let busy = node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
        let mut input = snapshot(seconds, &at_once(), busy);
        let schedules: Vec<croft_api::schedule::Schedule> =
            serde_json::from_value(schedules.clone()).unwrap();
        input.pools.for_each_mut(|pool| pool.spec.schedules.clone_from(&schedules));
        input
    };
    let mut replay = begin(at(0));
    advance(&mut replay, at(2 * HOUR));
    replay.run_until(time(4 * HOUR)).unwrap();
    assert_eq!(cost(&replay), 200_000, "an hour before and an hour after");
    assert_eq!((replay.evicted(), replay.totals().removed, replay.totals().launched), (1, 1, 1));
    assert_eq!(replay.pending_hours(), 2.0);
}

#[test]
fn a_node_without_pods_stays_for_the_time_of_consolidate_after() {
    for (wait, paid_hours) in [("30s", 1), ("2h", 3)] {
        let mut disruption = at_once();
        disruption["consolidateAfter"] = json!(wait);
        let busy = node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -9 * HOUR)]);
        let mut replay = begin(snapshot(0, &disruption, busy));
        // The recorded cluster keeps the node; the replay decides for itself.
        advance(&mut replay, snapshot(HOUR, &disruption, node("n1", "small")));
        replay.run_until(time(9 * HOUR)).unwrap();
        let waited = if wait == "30s" { 833 } else { 0 };
        assert_eq!(cost(&replay), paid_hours * 100_000 + waited, "{wait}");
        assert_eq!((replay.totals().removed, replay.evicted()), (1, 0), "{wait}");
    }
}

#[test]
fn new_pods_get_nodes_of_this_cluster_wherever_they_ran_in_the_recorded_one() {
    let mut replay = begin(snapshot(0, &at_once(), []));
    // It was recorded on a node that this cluster never had.
    let objects = node("n7", "large").into_iter().chain([pod("web-1", Some("n7"), HOUR)]);
    advance(&mut replay, snapshot(HOUR, &at_once(), objects));
    replay.run_until(time(2 * HOUR)).unwrap();
    assert_eq!((cost(&replay), replay.totals().launched), (100_000, 1), "a small node for an hour");
    assert_eq!(replay.pending_hours(), 0.0);
}

#[test]
fn a_pod_is_another_one_if_its_name_was_created_again() {
    let with = |created: i64| node("n1", "small").into_iter().chain([pod("web-0", Some("n1"), created)]);
    let mut disruption = at_once();
    disruption["consolidateAfter"] = json!("3h");
    let mut replay = begin(snapshot(0, &disruption, with(-9 * HOUR)));
    advance(&mut replay, snapshot(HOUR, &disruption, with(HOUR)));
    assert_eq!(replay.changed.get("n1"), Some(&time(HOUR)));
    advance(&mut replay, snapshot(2 * HOUR, &disruption, with(HOUR)));
    assert_eq!(replay.changed.get("n1"), Some(&time(HOUR)), "nothing came or went since");
}

#[test]
fn pods_that_consolidation_moves_are_counted_and_budgets_hold() {
    let objects = || {
        let nodes = ["n1", "n2"].into_iter().flat_map(|name| node(name, "large"));
        nodes.chain([pod("web-1", Some("n1"), -HOUR), pod("web-2", Some("n2"), -HOUR)])
    };
    let mut replay = begin(snapshot(0, &at_once(), objects()));
    replay.run_until(time(HOUR)).unwrap();
    assert!(replay.evicted() > 0 && cost(&replay) < 800_000, "{} {}", replay.evicted(), cost(&replay));

    let mut never = at_once();
    never["budgets"] = json!([{"nodes": "0"}]);
    let mut replay = begin(snapshot(0, &never, objects()));
    replay.run_until(time(HOUR)).unwrap();
    assert_eq!((replay.evicted(), cost(&replay)), (0, 800_000));
}

#[test]
fn a_node_that_booted_in_the_first_snapshot_takes_pods_and_is_removed_like_any_other() {
    let mut boots = node("n1", "small");
    boots[0]["status"]["conditions"][0]["status"] = json!("False");
    boots[0]["spec"]["taints"]
        .as_array_mut()
        .unwrap()
        .push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
    let mut replay = begin(snapshot(0, &at_once(), boots.into_iter().chain([pod("web-1", None, 0)])));
    assert_eq!(replay.totals().launched, 0);
    advance(&mut replay, snapshot(HOUR, &at_once(), []));
    replay.run_until(time(3 * HOUR)).unwrap();
    assert_eq!(cost(&replay), 100_833);
}

#[test]
fn pods_that_admission_refuses_are_pending_and_not_lost() {
    let mut replay = begin(snapshot(0, &at_once(), []));
    let next = snapshot(HOUR, &at_once(), [pod("web-1", Some("n7"), HOUR)]);
    replay.advance(next, &|_| None).unwrap();
    replay.run_until(time(3 * HOUR)).unwrap();
    assert_eq!((replay.pending_hours(), cost(&replay)), (2.0, 0));
}

#[test]
fn a_pool_that_croft_provisions_no_more_has_no_nodes_here() {
    let objects = || node("n1", "small").into_iter().chain([pod("web-1", Some("n1"), -HOUR)]);
    let mut replay = begin(snapshot(0, &at_once(), objects()));
    let mut next = snapshot(HOUR, &at_once(), []);
    let mut pool = next.pools.get("", "shop-main").unwrap().clone();
    pool.object.spec.provisioner = Provisioner::None;
    next.pools.put(pool.object, pool.origin);
    advance(&mut replay, next);
    replay.run_until(time(3 * HOUR)).unwrap();
    assert_eq!(cost(&replay), 100_000);
}

#[test]
fn pods_with_a_priority_class_that_is_not_recorded_get_a_node() {
    let mut urgent = pod("web-1", Some("n7"), HOUR);
    urgent["spec"]["priorityClassName"] = json!("urgent");
    urgent["spec"]["priority"] = json!(1000);
    let mut replay = begin(snapshot(0, &at_once(), []));
    advance(&mut replay, snapshot(HOUR, &at_once(), [urgent]));
    replay.run_until(time(2 * HOUR)).unwrap();
    assert_eq!((cost(&replay), replay.pending_hours()), (100_000, 0.0));
}

#[test]
fn pods_that_fit_nowhere_are_counted_by_the_hour() {
    let mut big = pod("web-1", None, 0);
    big["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("64");
    let mut replay = begin(snapshot(0, &at_once(), [big]));
    replay.run_until(time(3 * HOUR)).unwrap();
    assert_eq!(replay.pending_hours(), 3.0);
}
