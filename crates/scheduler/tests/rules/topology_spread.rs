//! Topology spread constraints.

use std::collections::BTreeMap;

use croft_scheduler::{Cluster, ComingNode, InstanceType, Options, Plan, Requirement, solve};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::{
    app,
    build::{self, HOST, ZONE, cluster, kind, kinds, merge, node, plan, pod, pool},
    many, near, spread, with_labels, zones,
};

#[test]
fn schedule_anyway_spread_leaves_no_pod_pending() {
    let wish = spread(json!({"whenUnsatisfiable": "ScheduleAnyway"}));
    // There is only one zone.
    let mut narrow = pool("p", kinds());
    narrow.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let plan1 = plan(&cluster(vec![narrow], &many(6, "1", &wish)));
    assert_eq!((zones(&plan1), plan1.unschedulable.len()), (BTreeMap::from([("zone-a", 6)]), 0));
    // If the zones cost the same, the spread is followed.
    let plan2 = plan(&cluster(vec![pool("p", vec![kind("m.1", "1", "4Gi", 0.05)])], &many(6, "1", &wish)));
    assert_eq!(zones(&plan2), BTreeMap::from([("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]));
}

#[test]
fn fewer_domains_than_min_domains_count_as_an_empty_one() {
    for (min_domains, placed) in [(1, 5), (3, 5), (4, 3)] {
        let pods = many(5, "1", &spread(json!({"minDomains": min_domains})));
        let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
        assert_eq!(zones(&plan).values().sum::<usize>(), placed, "minDomains {min_domains}");
    }
}

#[test]
fn match_label_keys_spread_versions_separately() {
    let with = |version: &str, keys: Value| {
        let mut it = spread(json!({"matchLabelKeys": keys}));
        it["metadata"]["labels"]["version"] = json!(version);
        it
    };
    // Two pods of version 1 run in zone a. With matchLabelKeys, version 2 counts only its own pods.
    for (keys, in_a) in [(json!(["version"]), true), (json!([]), false)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        c.upsert_node(&node("n", "1", "4Gi", json!({ZONE: "zone-a"}))).unwrap();
        for i in 0..2 {
            let mut old = with("1", json!([]));
            old["spec"] = json!({"nodeName": "n"});
            c.upsert_pod(&pod(&format!("old{i}"), "500m", "1Gi", old)).unwrap();
        }
        for i in 0..3 {
            c.upsert_pod(&pod(&format!("new{i}"), "1", "1Gi", with("2", keys.clone()))).unwrap();
        }
        let plan = plan(&c);
        assert_eq!(zones(&plan).contains_key("zone-a"), in_a, "{keys}: {:?}", zones(&plan));
        assert_eq!(plan.unschedulable.len(), 0);
    }
}

#[test]
fn honoured_taints_exclude_domains_from_a_spread() {
    // Zone d has only a tainted node: with Honor it is no domain; otherwise it stays empty, and the skew blocks all pods.
    for (policy, placed) in [("Honor", 6), ("Ignore", 3)] {
        let mut c =
            cluster(vec![pool("p", kinds())], &many(6, "1", &spread(json!({"nodeTaintsPolicy": policy}))));
        let mut far = node("n", "1", "4Gi", json!({ZONE: "zone-d"}));
        build::add_taint(&mut far);
        c.upsert_node(&far).unwrap();
        assert_eq!(zones(&plan(&c)).values().sum::<usize>(), placed, "{policy}");
    }
}

#[test]
fn spread_that_ignores_node_affinity_counts_only_zones_that_are_opened() {
    let confined = || {
        let mut it = spread(json!({"nodeAffinityPolicy": "Ignore"}));
        it["spec"]["nodeSelector"] = json!({ZONE: "zone-a"});
        it
    };
    // These pods can open only zone a; zones that are never opened don't count.
    let alone = plan(&cluster(vec![pool("p", kinds())], &many(4, "1", &confined())));
    assert_eq!(zones(&alone), BTreeMap::from([("zone-a", 4)]));
    // A pod of another pool opens zone b, which stays empty for these pods, so the skew allows one in zone a.
    let mut pods = many(4, "1", &confined());
    for one in &mut pods {
        one.spec
            .as_mut()
            .unwrap()
            .node_selector
            .as_mut()
            .unwrap()
            .insert("node-pool".to_owned(), "p".to_owned());
    }
    let other = json!({"spec": {"nodeSelector": {ZONE: "zone-b", "node-pool": "q"}}});
    pods.push(pod("other", "1", "1Gi", other));
    let both = plan(&cluster(vec![pool("p", kinds()), pool("q", kinds())], &pods));
    assert_eq!(zones(&both), BTreeMap::from([("zone-a", 1), ("zone-b", 1)]), "{:?}", both.unschedulable);
}

/// Requires more than two processors, and a spread over zones with other pods of its app.
fn large_with_even_zones(max_skew: i32) -> Value {
    let mut it = spread(json!({"maxSkew": max_skew}));
    it["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["2"]}]}]}}});
    it
}

/// A full node of four processors in zone a, with a pod that has the anti-affinity `guards`.
fn with_full_node(pool: croft_scheduler::Pool, guards: Value) -> Cluster {
    let mut c = cluster(vec![pool], &[]);
    c.upsert_node(&node("n", "4", "16Gi", json!({ZONE: "zone-a", "size": "4", "node-pool": "p"}))).unwrap();
    let full = json!({"spec": {"nodeName": "n", "affinity": {"podAntiAffinity": guards}}});
    c.upsert_pod(&pod("full", "4", "1Gi", full)).unwrap();
    c
}

/// Asserts that the pods named `even...` can be bound in every order: their zones have at most `max_skew` pods of the app
/// more than any zone, on nodes with more than two processors; zone a has such a node.
fn assert_even(plan: &Plan, max_skew: usize) {
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let mut zones: BTreeMap<&str, (usize, bool)> = BTreeMap::from([("zone-a", (0, false))]);
    for instance in
        plan.instances.iter().filter(|instance| instance.labels["size"].parse::<u32>().unwrap() > 2)
    {
        let zone = zones.entry(&instance.zone).or_default();
        zone.0 += instance.pods.len();
        zone.1 |= instance.pods.iter().any(|p| p.name.starts_with("even"));
    }
    let least = zones.values().map(|(count, _)| *count).min().unwrap_or(0);
    assert!(zones.values().all(|(count, even)| !even || count - least <= max_skew), "{zones:?}");
}

#[test]
fn spread_and_affinity_hold_for_every_binding_order() {
    // Zone a excludes the app. Types with two processors are expensive, so that plain pods prefer nodes that count.
    let mut kinds: Vec<InstanceType> =
        [("m.2", "2", "8Gi", 0.15), ("m.4", "4", "16Gi", 0.2), ("m.8", "8", "32Gi", 0.4)]
            .map(|(name, cpu, memory, dollars)| kind(name, cpu, memory, dollars))
            .to_vec();
    for kind in &mut kinds {
        kind.labels.insert("size".to_owned(), (kind.capacity.get("cpu") / 1000).to_string());
    }
    let mut c = with_full_node(
        pool("p", kinds),
        json!({"requiredDuringSchedulingIgnoredDuringExecution":
            [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "x"}}}]}),
    );
    for i in 0..6 {
        c.upsert_pod(&pod(&format!("plain{i}"), "1100m", "3Gi", app("x"))).unwrap();
    }
    let mut even = large_with_even_zones(2);
    even["spec"]["affinity"]["podAffinity"] = near(ZONE, "x")["spec"]["affinity"]["podAffinity"].clone();
    c.upsert_pod(&pod("even", "7", "1Gi", even)).unwrap();
    assert_even(&plan(&c), 2);
}

#[test]
fn pods_on_nodes_outside_the_spread_filter_do_not_count() {
    // The plain pods belong to the app and are all in zone a, but their cheapest instance type is outside the spread's filter.
    let mut c = with_full_node(pool("p", with_labels("size")), json!({}));
    for i in 0..3 {
        let mut plain = app("x");
        plain["spec"] = json!({"nodeSelector": {ZONE: "zone-a"}});
        c.upsert_pod(&pod(&format!("plain{i}"), "1", "4Gi", plain)).unwrap();
    }
    for i in 0..4 {
        c.upsert_pod(&pod(&format!("even{i}"), "4", "16Gi", large_with_even_zones(1))).unwrap();
    }
    assert_even(&plan(&c), 1);
}

#[test]
fn zones_opened_by_other_pods_are_domains_with_honoured_affinity() {
    // Pool q has a taint that the spread pods don't tolerate, and is a domain nevertheless: taints are ignored by default.
    let mut q = pool("q", with_labels("size"));
    q.taints = vec![build::taint("for", "others")];
    let mut p = pool("p", with_labels("size"));
    p.requirements = vec![Requirement::any_of(ZONE, ["zone-a"])];
    let mut pods: Vec<Pod> =
        (0..4).map(|i| pod(&format!("even{i}"), "3", "1Gi", large_with_even_zones(1))).collect();
    let alone = plan(&cluster(vec![p.clone(), q.clone()], &pods));
    assert_eq!(zones(&alone), BTreeMap::from([("zone-a", 4)]));
    for (cpu, placed) in [("3", 1), ("1", 4)] {
        let other = json!({"spec": {"nodeSelector": {ZONE: "zone-b", "node-pool": "q"},
            "tolerations": [{"operator": "Exists"}]}});
        pods.push(pod("other", cpu, "1Gi", other));
        let both = plan(&cluster(vec![p.clone(), q.clone()], &pods));
        pods.pop();
        assert_eq!(zones(&both).get("zone-a"), Some(&placed), "{cpu}: {:?}", both.unschedulable);
    }
}

#[test]
fn coming_nodes_count_for_a_spread() {
    let labels = |zone: &str| json!({"node-pool": "p", ZONE: zone});
    let guard = json!({"metadata": {"labels": {"app": "b"}}, "spec": {"nodeName": "old", "affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            [{"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": ZONE}]}}}});
    // The second constraint excludes nodes without a host name from the domains of the first.
    let spread = |key: &str, app: &str, skew: u32| {
        json!({"labelSelector": {"matchLabels": {"app": app}}, "maxSkew": skew, "nodeAffinityPolicy": "Ignore",
            "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"})
    };
    let even = json!({"metadata": {"labels": {"app": "b"}},
        "spec": {"topologySpreadConstraints": [spread(ZONE, "b", 2), spread(HOST, "other", 1)]}});
    let mut pods = vec![pod("guard", "1", "64Mi", guard)];
    pods.extend((0..4).map(|i| pod(&format!("g{i}"), "900m", "512Mi", even.clone())));
    let mut c = cluster(vec![pool("p", kinds())], &pods);
    c.upsert_node(&node("old", "4", "8Gi", labels("zone-c"))).unwrap();
    for name in ["p-1", "p-2"] {
        let instance_type = "m.2".to_owned();
        c.upsert_coming(ComingNode { instance_type, ..build::coming(name, "2", "8Gi", labels("zone-a")) });
    }
    // One runs in zone-c, where an anti-affinity excludes others: a fourth pod would give zone-a a skew of three.
    let plan = plan(&c);
    assert_eq!(plan.existing.iter().map(|e| e.pods.len()).sum::<usize>(), 3, "{:?}", plan.existing);
    assert_eq!(zones(&plan), BTreeMap::from([("zone-b", 1)]), "{:?}", plan.unschedulable);
}

#[test]
fn the_zone_of_a_coming_node_is_a_domain_though_it_has_no_room() {
    let mut c = cluster(vec![pool("p", kinds())], &[]);
    add_host(&mut c, "old", 0, 1, json!({}));
    for (claim, zone, cpu) in [("p-1", "zone-a", "4"), ("p-2", "zone-b", "100m")] {
        c.upsert_coming(build::coming(claim, cpu, "8Gi", json!({ZONE: zone})));
    }
    c.upsert_pod(&pod("p", "1", "1Gi", spread(json!({"topologyKey": ZONE})))).unwrap();
    // Zone-a has one, and zone-b has none by the time that the pod is bound: a second in zone-a would be a skew of two.
    let plan = plan(&c);
    assert!(plan.existing.is_empty(), "{plan:?}");
    assert_eq!(plan.instances.len(), 1);
    assert_ne!(plan.instances[0].zone, "zone-a");
}

/// A spread over hostnames with `maxSkew` 1.
fn over_hosts(more: Value) -> Value {
    let mut it = spread(json!({"topologyKey": HOST}));
    build::merge(&mut it, &more);
    it
}

/// The constraint of [`over_hosts`] with other fields.
fn over_hosts_with(constraint: &Value) -> Value {
    let mut it = over_hosts(json!({}));
    build::merge(&mut it["spec"]["topologySpreadConstraints"][0], constraint);
    it
}

/// Adds a node of pool `p` in zone a with room for `cpu` pods of one processor, and `running` small pods of the app.
fn add_host(c: &mut Cluster, name: &str, cpu: u32, running: usize, labels: Value) {
    let mut all = json!({"node-pool": "p", ZONE: "zone-a"});
    build::merge(&mut all, &labels);
    let cpu = format!("{}m", cpu * 1000 + u32::try_from(running).unwrap());
    c.upsert_node(&node(name, &cpu, "64Gi", all)).unwrap();
    for i in 0..running {
        let mut there = app("x");
        there["spec"] = json!({"nodeName": name});
        c.upsert_pod(&pod(&format!("{name}-running{i}"), "1m", "1Mi", there)).unwrap();
    }
}

/// Two hosts with room for four pods each that hold one, and pending pods.
fn two_hosts(pools: Vec<croft_scheduler::Pool>, pods: &[Pod]) -> Cluster {
    let mut c = cluster(pools, pods);
    for name in ["a", "b"] {
        add_host(&mut c, name, 4, 1, json!({}));
    }
    c
}

/// How many pods are planned onto each existing or coming node.
fn onto(plan: &Plan) -> BTreeMap<&str, usize> {
    plan.existing.iter().map(|place| (place.node.as_str(), place.pods.len())).collect()
}

#[test]
fn third_pod_goes_to_one_of_two_hosts_that_hold_one_each() {
    for pools in [vec![pool("p", kinds())], Vec::new()] {
        let plan = plan(&two_hosts(pools, &many(1, "1", &over_hosts(json!({})))));
        assert_eq!((onto(&plan), plan.instances.len()), ([("a", 1)].into(), 0), "{:?}", plan.unschedulable);
    }
}

#[test]
fn pods_fill_existing_hosts_evenly_before_an_instance_is_launched() {
    // Each host has room for four.
    let full = plan(&two_hosts(vec![pool("p", kinds())], &many(8, "1", &over_hosts(json!({})))));
    assert_eq!((onto(&full), full.instances.len()), ([("a", 4), ("b", 4)].into(), 0));
    // A new instance is empty when it registers, and takes one whatever the others have.
    let more = plan(&two_hosts(vec![pool("p", kinds())], &many(10, "1", &over_hosts(json!({})))));
    assert_eq!((onto(&more), more.instances.len()), ([("a", 4), ("b", 4)].into(), 2));
    assert!(more.instances.iter().all(|instance| instance.pods.len() == 1));
    // Host b is full with its one pod: host a can be one ahead of it.
    for (skew, there) in [(1, 1), (2, 2)] {
        let mut c =
            cluster(vec![pool("p", kinds())], &many(4, "1", &over_hosts_with(&json!({"maxSkew": skew}))));
        add_host(&mut c, "a", 4, 1, json!({}));
        add_host(&mut c, "b", 0, 1, json!({}));
        assert_eq!(onto(&plan(&c)), [("a", there)].into(), "maxSkew {skew}");
    }
}

#[test]
fn host_spread_with_fewer_hosts_than_min_domains_needs_a_new_host() {
    for (min_domains, new) in [(1, 0), (2, 0), (3, 1)] {
        let pods = many(1, "1", &over_hosts_with(&json!({"minDomains": min_domains})));
        let plan1 = plan(&two_hosts(vec![pool("p", kinds())], &pods));
        assert_eq!(plan1.instances.len(), new, "minDomains {min_domains}");
        // Nothing may be launched.
        let plan2 = plan(&two_hosts(Vec::new(), &pods));
        assert_eq!(plan2.unschedulable.len(), new, "minDomains {min_domains}");
    }
}

#[test]
fn only_eligible_hosts_count_for_a_host_spread() {
    let selects = |more: Value| {
        let mut it = over_hosts_with(&more);
        it["spec"]["nodeSelector"] = json!({"node-pool": "p"});
        it
    };
    // The third host is empty: another pool's, or with a taint, or without the label.
    let other = |c: &mut Cluster| add_host(c, "c", 4, 0, json!({"node-pool": "q"}));
    let tainted = |c: &mut Cluster| {
        let mut it = node("c", "4", "16Gi", json!({"node-pool": "p"}));
        build::add_taint(&mut it);
        c.upsert_node(&it).unwrap();
    };
    let nameless = |c: &mut Cluster| {
        let mut it = node("c", "4", "16Gi", json!({"node-pool": "p"}));
        it.metadata.labels.as_mut().unwrap().remove(HOST);
        c.upsert_node(&it).unwrap();
    };
    type Add<'a> = &'a dyn Fn(&mut Cluster);
    let cases: [(&str, Add<'_>, Value, usize); 5] = [
        ("another pool's", &other, json!({}), 0),
        ("another pool's, ignored affinity", &other, json!({"nodeAffinityPolicy": "Ignore"}), 1),
        ("tainted", &tainted, json!({}), 1),
        ("tainted, honoured taints", &tainted, json!({"nodeTaintsPolicy": "Honor"}), 0),
        ("without the label", &nameless, json!({}), 0),
    ];
    for (name, add, policy, new) in cases {
        let mut c = two_hosts(vec![pool("p", kinds())], &many(1, "1", &selects(policy)));
        add(&mut c);
        let plan = plan(&c);
        assert_eq!((plan.instances.len(), plan.existing.len()), (new, 1 - new), "{name}");
    }
}

#[test]
fn launch_for_another_pod_leaves_a_host_spread_on_existing_hosts() {
    // Kube-scheduler binds the third pod at once, long before the instance of the large one registers.
    let mut pods = many(1, "1", &over_hosts(json!({})));
    pods.push(pod("large", "8", "1Gi", json!({})));
    let plan = plan(&two_hosts(vec![pool("p", kinds())], &pods));
    assert_eq!(onto(&plan), [("a", 1)].into());
    let launched: Vec<_> =
        plan.instances.iter().flat_map(|instance| &instance.pods).map(|p| &*p.name).collect();
    assert_eq!(launched, ["large"]);
}

#[test]
fn counted_pods_stay_within_the_skew_of_others_on_their_host() {
    // The plain pods have no constraint, but those with the spread count them, and host b has no room.
    let mut c = cluster(Vec::new(), &many(2, "1", &over_hosts_with(&json!({"maxSkew": 2}))));
    add_host(&mut c, "a", 8, 1, json!({}));
    add_host(&mut c, "b", 0, 1, json!({}));
    for i in 0..3 {
        c.upsert_pod(&pod(&format!("plain{i}"), "1", "1Gi", app("x"))).unwrap();
    }
    let plan = plan(&c);
    assert_eq!(onto(&plan), [("a", 2)].into());
    assert!(plan.unschedulable.iter().all(|u| u.pod.name.starts_with("plain")), "{:?}", plan.unschedulable);
}

#[test]
fn coming_host_takes_max_skew_pods_of_a_host_spread() {
    // It may register after the instance for the third pod, which is then an empty host.
    let mut c = cluster(vec![pool("p", kinds())], &many(3, "1", &over_hosts(json!({}))));
    for name in ["a", "b"] {
        add_host(&mut c, name, 0, 3, json!({}));
    }
    let coming = build::coming("p-1", "8", "32Gi", json!({ZONE: "zone-a"}));
    c.upsert_coming(ComingNode { instance_type: "m.8".to_owned(), ..coming });
    let plan = plan(&c);
    assert_eq!((onto(&plan), plan.instances.len()), ([("p-1", 1)].into(), 2));
}

#[test]
fn host_that_is_planned_without_counts_as_empty_for_a_host_spread() {
    // Its node exists until its pods are bound elsewhere, so that kube-scheduler binds none beside the others.
    let mut c = two_hosts(vec![pool("p", kinds())], &[]);
    c.upsert_node(&node("c", "4", "16Gi", json!({"node-pool": "p"}))).unwrap();
    let mut there = over_hosts(json!({}));
    there["spec"]["nodeName"] = json!("c");
    c.upsert_pod(&pod("c-running", "1", "1Gi", there)).unwrap();
    let options = Options { without_nodes: vec!["c".to_owned()], ..Options::default() };
    let plan = solve(&c, &options, &|| false);
    assert_eq!((plan.existing.len(), plan.instances.len()), (0, 1), "{:?}", plan.existing);
}

/// A node that is removed is there until its pods are bound elsewhere, and so is its zone: in the others they would be one
/// too many.
#[test]
fn zone_of_a_node_that_is_planned_without_counts_as_empty_for_a_zone_spread() {
    for (zones_of_nodes, new) in [(["a", "b", "c"], 1), (["a", "b", "b"], 0)] {
        let mut c = cluster(vec![pool("p", kinds())], &[]);
        for (name, zone) in ["n0", "n1", "n2"].into_iter().zip(zones_of_nodes) {
            let zone = format!("zone-{zone}");
            c.upsert_node(&node(name, "4", "64Gi", json!({"node-pool": "p", ZONE: zone}))).unwrap();
            let mut running = spread(json!({}));
            running["spec"]["nodeName"] = json!(name);
            c.upsert_pod(&pod(&format!("{name}-x"), "1", "1Gi", running)).unwrap();
        }
        let options = Options { without_nodes: vec!["n2".to_owned()], ..Options::default() };
        let plan = solve(&c, &options, &|| false);
        let placed = (plan.existing.len(), plan.instances.len());
        assert_eq!(placed, (1 - new, new), "{zones_of_nodes:?}: {:?}", plan.unschedulable);
        assert!(plan.instances.iter().all(|instance| instance.zone == "zone-c"), "{zones_of_nodes:?}");
    }
}

/// How many pods of `plan` are in each zone: planned onto existing nodes and onto new ones.
fn all_zones<'a>(plan: &'a Plan, zone_of: &BTreeMap<&str, &'a str>) -> BTreeMap<&'a str, usize> {
    let mut all = zones(plan);
    for place in &plan.existing {
        *all.entry(zone_of[place.node.as_str()]).or_default() += place.pods.len();
    }
    all
}

#[test]
fn zones_with_nodes_count_for_a_spread_whatever_the_pods_prefer() {
    let mut prefers = spread(json!({}));
    prefers["spec"]["affinity"] = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 1, "preference": {"matchExpressions":
            [{"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]}]}}]}});
    // No node exists, and one can be launched in each zone: a preference leaves out none.
    let without = plan(&cluster(vec![pool("p", kinds())], &many(6, "1", &prefers)));
    assert_eq!(zones(&without), BTreeMap::from([("zone-a", 2), ("zone-b", 2), ("zone-c", 2)]));
    // Zone c has a node: as long as it is the only zone, it takes all that fit, and the others follow.
    let zone_of = BTreeMap::from([("c", "zone-c")]);
    for (room, there) in [(0, [2, 2, 2]), (4, [1, 1, 4])] {
        let mut c = cluster(vec![pool("p", kinds())], &many(6, "1", &prefers));
        add_host(&mut c, "c", room, 0, json!({ZONE: "zone-c"}));
        let plan = plan(&c);
        let expected: BTreeMap<&str, usize> = ["zone-a", "zone-b", "zone-c"].into_iter().zip(there).collect();
        assert_eq!(all_zones(&plan, &zone_of), expected, "room for {room}");
    }
    // Another pod opens zone c.
    let mut pods = many(6, "1", &prefers);
    pods.push(pod("other", "1", "1Gi", json!({"spec": {"nodeSelector": {ZONE: "zone-c"}}})));
    let opened = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(zones(&opened), BTreeMap::from([("zone-a", 2), ("zone-b", 2), ("zone-c", 3)]));
}

#[test]
fn third_pod_goes_to_one_of_two_zones_that_hold_one_each() {
    for (min_domains, placed) in [(1, 1), (3, 0)] {
        let mut c = cluster(Vec::new(), &many(1, "1", &spread(json!({"minDomains": min_domains}))));
        for name in ["a", "b"] {
            add_host(&mut c, name, 4, 1, json!({ZONE: format!("zone-{name}")}));
        }
        assert_eq!(plan(&c).existing.len(), placed, "minDomains {min_domains}");
    }
}

#[test]
fn a_preference_leaves_no_domain_out_of_a_hard_spread() {
    let prefers = |zones: &[&str]| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}}]}}}})
    };
    for (skew, expected) in [(1, vec![2, 2, 2]), (3, vec![3, 3])] {
        let mut more = spread(json!({"maxSkew": skew}));
        merge(&mut more, &prefers(&["zone-a", "zone-b"]));
        let plan = plan(&cluster(vec![pool("p", kinds())], &many(6, "1", &more)));
        let counts: Vec<usize> = zones(&plan).into_values().collect();
        assert_eq!(counts, expected, "skew {skew}");
    }
}
