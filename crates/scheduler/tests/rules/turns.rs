//! Binding order: kube-scheduler takes pods by priority, then by age, and knows no plan.

use std::collections::{BTreeMap, BTreeSet};

use croft_scheduler::{Cluster, InstanceType, Plan, PodKey, Pool};
use k8s_openapi::api::core::v1::{NodeSpec, Pod};
use serde_json::{Value, json};

use crate::build::{self, HOST, ZONE, cluster, kind, kinds, merge, node, plan, pod, pool, taint, why};

fn join(parts: &[Value]) -> Value {
    let mut all = json!({});
    for part in parts {
        merge(&mut all, part);
    }
    all
}

fn labels(pairs: Value) -> Value {
    json!({"metadata": {"labels": pairs}})
}

fn near(key: &str, selector: Value) -> Value {
    json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": selector}}]}}}})
}

fn apart(key: &str, selector: Value) -> Value {
    json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": selector}}]}}}})
}

fn spread(key: &str, skew: i32, selector: Value) -> Value {
    json!({"spec": {"topologySpreadConstraints": [{"topologyKey": key, "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": selector}}]}})
}

fn many(name: &str, count: usize, cpu: &str, more: &Value) -> Vec<Pod> {
    (0..count).map(|i| pod(&format!("{name}{i}"), cpu, "1Gi", more.clone())).collect()
}

fn in_zones(zones: &[&str]) -> Pool {
    Pool { requirements: vec![build::requirement(ZONE, zones)], ..pool("p", kinds()) }
}

/// How many pods whose names start with `name` are on each node, old or new.
fn homes(plan: &Plan, name: &str) -> BTreeMap<String, usize> {
    let new = plan.instances.iter().map(|instance| (&instance.name, &instance.pods));
    let old = plan.existing.iter().map(|e| (&e.node, &e.pods));
    let count = |pods: &[PodKey]| pods.iter().filter(|p| p.name.starts_with(name)).count();
    new.chain(old).map(|(node, pods)| (node.clone(), count(pods))).filter(|(_, n)| *n > 0).collect()
}

fn placed(plan: &Plan, name: &str) -> usize {
    homes(plan, name).values().sum()
}

/// Pods planned for an old node that can be nominated to it together.
fn nominated(cluster: &Cluster, plan: &Plan, zone_of: impl Fn(&str) -> String) -> BTreeSet<String> {
    let told = plan.existing.iter().flat_map(|e| {
        let labels = [(ZONE.to_owned(), zone_of(&e.node)), (HOST.to_owned(), e.node.clone())].into();
        cluster.nominable(&e.pods, &labels).into_iter().map(|p| p.name.to_string()).collect::<Vec<_>>()
    });
    told.collect()
}

#[test]
fn who_can_go_nowhere_else_isnt_kept_for_those_who_follow() {
    let lead = labels(json!({"app": "lead"}));
    let follower = |more: Value| join(&[near(HOST, json!({"app": "lead"})), more]);
    let with = |pool: Pool, follower: Value| {
        let mut c = cluster(vec![pool], &[pod("lead", "1", "1Gi", lead.clone())]);
        c.upsert_node(&node("n", "2", "8Gi", json!({}))).unwrap();
        c.upsert_pod(&pod("follower", "4", "1Gi", follower)).unwrap();
        plan(&c)
    };
    // Both fit on a new instance, and on the old one there is room for the leader alone.
    let both = with(pool("p", kinds()), follower(json!({})));
    assert_eq!((both.existing.len(), both.unschedulable.len()), (0, 0), "{:?}", both.unschedulable);
    // The leader doesn't tolerate what the pool's instances have; the follower doesn't either, or it does; or no instance of
    // the pool holds both; or the pool may launch none.
    let closed = Pool { taints: vec![taint("only", "p")], ..pool("p", kinds()) };
    let tolerant = json!({"spec": {"tolerations": [{"key": "only", "operator": "Exists"}]}});
    let none = Pool { limits: [("nodes".to_owned(), "0".parse().unwrap())].into(), ..pool("p", kinds()) };
    for (pool, more) in [
        (closed.clone(), json!({})),
        (closed, tolerant),
        (pool("p", vec![kind("m.4", "4", "16Gi", 0.2)]), json!({})),
        (none, json!({})),
    ] {
        let alone = with(pool, follower(more));
        assert_eq!(homes(&alone, "lead"), [("n".to_owned(), 1)].into(), "{:?}", alone.unschedulable);
        assert_eq!(alone.unschedulable.len(), 1);
    }
}

#[test]
fn the_spread_of_an_affinity_target_does_not_bind_its_followers() {
    let lead = join(&[labels(json!({"app": "web", "role": "lead"})), spread(HOST, 1, json!({"app": "web"}))]);
    let follower = join(&[labels(json!({"app": "web"})), near(HOST, json!({"role": "lead"}))]);
    // On a new instance; on one that is there.
    for old in [false, true] {
        let mut pods = many("f", 2, "1", &follower);
        pods.extend(many("lead", 1, "1", &lead));
        let mut c = cluster(vec![pool("p", if old { Vec::new() } else { kinds() })], &pods);
        if old {
            c.upsert_node(&node("n", "4", "16Gi", json!({}))).unwrap();
        }
        let plan = plan(&c);
        assert_eq!(plan.unschedulable.len(), 0, "old {old}: {:?}", plan.unschedulable);
        assert_eq!(homes(&plan, "f"), homes(&plan, "lead").into_keys().map(|n| (n, 2)).collect());
        if old {
            // Told beside the leader, they would count for its spread before it is bound.
            let told = nominated(&c, &plan, |_| "zone-a".to_owned());
            assert_eq!(told, BTreeSet::from(["lead0".to_owned()]));
        }
    }
    // Its own spread binds it all the same, and so does the anti-affinity of the leader.
    let own = join(&[follower.clone(), spread(HOST, 2, json!({"app": "web"}))]);
    let mut pods = many("f", 2, "1", &own);
    pods.extend(many("lead", 1, "1", &lead));
    assert_eq!(placed(&plan(&cluster(vec![pool("p", kinds())], &pods)), "f"), 1);
    let lonely = join(&[labels(json!({"app": "web", "role": "lead"})), apart(HOST, json!({"app": "web"}))]);
    let mut pods = many("f", 1, "1", &follower);
    pods.extend(many("lead", 1, "1", &lonely));
    assert_eq!(placed(&plan(&cluster(vec![pool("p", kinds())], &pods)), "f"), 0);
}

#[test]
fn a_second_target_would_let_followers_come_before_the_first() {
    // The second leader asks nothing of its host. Were it beside the first, the follower could come between them.
    let lead = join(&[labels(json!({"app": "web", "role": "lead"})), spread(HOST, 1, json!({"app": "web"}))]);
    let second = labels(json!({"role": "lead"}));
    let follower = join(&[labels(json!({"app": "web"})), near(HOST, json!({"role": "lead"}))]);
    let mut pods = many("lead", 1, "1", &lead);
    pods.extend(many("f", 1, "1", &follower));
    pods.extend(many("second", 1, "1", &second));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let (lead, second, follower) = (homes(&plan, "lead"), homes(&plan, "second"), homes(&plan, "f"));
    assert!(lead != second || follower != lead, "{:?}", plan.instances);
}

#[test]
fn who_could_be_the_first_of_its_kind_goes_where_others_may_be_before_it() {
    let web = labels(json!({"app": "web"}));
    // Both of the others ask for a zone of their own, so that they are in two of the three.
    let other = |zone: &str| {
        let pinned = json!({"spec": {"nodeSelector": {ZONE: zone}}});
        pod(&format!("other-{zone}"), "1", "1Gi", join(&[web.clone(), pinned]))
    };
    let mut pods: Vec<Pod> = ["zone-b", "zone-c"].map(other).into();
    // The cheapest place is in zone a: it would be the first there, if the others weren't before it.
    let mut cheap: Vec<InstanceType> = kinds();
    for kind in &mut cheap {
        kind.offerings[0].price = croft_scheduler::Price::from_dollars(0.001);
    }
    pods.extend(many("near", 3, "1", &join(&[web.clone(), near(ZONE, json!({"app": "web"}))])));
    let plan1 = plan(&cluster(vec![pool("p", cheap)], &pods));
    assert_eq!(plan1.unschedulable.len(), 0, "{:?}", plan1.unschedulable);
    let zones: BTreeSet<&str> = plan1.instances.iter().map(|instance| instance.zone.as_str()).collect();
    assert_eq!(zones, BTreeSet::from(["zone-b", "zone-c"]));
    // A spread as well: even over the two zones, while no pod opens the third. Once a pod does there is no place: where the
    // others are it is too full, elsewhere too empty.
    pods.truncate(2);
    let both =
        join(&[web.clone(), near(ZONE, json!({"app": "web"})), spread(ZONE, 1, json!({"app": "web"}))]);
    pods.extend(many("near", 4, "1", &both));
    let two = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&two, "other"), placed(&two, "near")), (2, 4), "{:?}", two.unschedulable);
    pods.push(pod("opens", "1", "1Gi", json!({"spec": {"nodeSelector": {ZONE: "zone-a"}}})));
    let three = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&three, "other"), placed(&three, "near")), (2, 0), "{:?}", three.instances);
    assert!(why(&three)[0].contains("PodAffinity") || why(&three)[0].contains("TopologySpread"));
}

#[test]
fn what_holds_only_in_the_order_of_the_demand_is_planned_in_that_order() {
    // Zone c takes one and no more, which is the least that the spread of the first two sees. The many that come after them
    // fill the other zones beyond what the spread would bear.
    let web = labels(json!({"app": "web"}));
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "zone-c"}}});
    let only_ab = json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [
            {"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]}]}]}}}}});
    let mut pods =
        vec![pod("alone", "1", "1Gi", join(&[web.clone(), pinned, apart(ZONE, json!({"app": "web"}))]))];
    pods.extend(many("even", 2, "1", &join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"}))])));
    pods.extend(many("many", 5, "1", &join(&[web, only_ab])));
    let plan = plan(&cluster(vec![in_zones(&["zone-a", "zone-b", "zone-c"])], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    assert_eq!((placed(&plan, "even"), placed(&plan, "many")), (2, 5));
}

#[test]
fn pods_on_old_nodes_are_as_even_as_their_spread_can_be() {
    // One runs in zone a. Two more there would keep the skew, but couldn't be told both at the same time.
    let web = join(&[labels(json!({"app": "web"})), spread(ZONE, 2, json!({"app": "web"}))]);
    let mut c = cluster(vec![pool("p", Vec::new())], &many("w", 3, "1", &web));
    for (name, zone) in [("a", "zone-a"), ("b", "zone-b")] {
        c.upsert_node(&node(name, "8", "32Gi", json!({ZONE: zone}))).unwrap();
    }
    let running = join(&[labels(json!({"app": "web"})), json!({"spec": {"nodeName": "a"}})]);
    c.upsert_pod(&pod("running", "1", "1Gi", running)).unwrap();
    let plan = plan(&c);
    assert_eq!(homes(&plan, "w"), [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
    assert_eq!(nominated(&c, &plan, |node| format!("zone-{node}")).len(), 3);
}

#[test]
fn those_bound_first_are_the_ones_who_are_told() {
    // Three on one node: two of a high priority that one of a low priority counts for its spread. Told first, it would keep
    // the others from being told, and they would take the room of another pod.
    let web = labels(json!({"app": "web"}));
    let high = join(&[web.clone(), json!({"spec": {"priority": 10}})]);
    let low = join(&[web, spread(ZONE, 1, json!({"app": "web"}))]);
    let mut pods = many("low", 1, "1", &low);
    pods.extend(many("high", 2, "1", &high));
    let mut c = cluster(vec![pool("p", Vec::new())], &pods);
    c.upsert_node(&node("n", "8", "32Gi", json!({ZONE: "zone-a"}))).unwrap();
    c.upsert_node(&node("other", "1", "4Gi", json!({ZONE: "zone-b"}))).unwrap();
    let keys: Vec<PodKey> = ["low0", "high0", "high1"].map(|name| PodKey::new("default", name)).into();
    let zone = [(ZONE.to_owned(), "zone-a".to_owned())].into();
    let told: Vec<String> = c.nominable(&keys, &zone).into_iter().map(|p| p.name.to_string()).collect();
    assert_eq!(told, ["high0", "high1"]);
    // Confined to one zone, a spread over zones sees no other, and all can be told.
    let confined = join(&[
        labels(json!({"app": "db"})),
        spread(ZONE, 1, json!({"app": "db"})),
        json!({"spec": {"nodeSelector": {ZONE: "zone-a"}}}),
    ]);
    for pod in many("db", 3, "1", &confined) {
        c.upsert_pod(&pod).unwrap();
    }
    let keys: Vec<PodKey> = (0..3).map(|i| PodKey::new("default", format!("db{i}").as_str())).collect();
    assert_eq!(c.nominable(&keys, &zone).len(), 3);
}

#[test]
fn who_is_counted_on_an_old_node_leaves_the_spreads_of_those_before_it() {
    // Two of three fill zone a as far as their spread over zones goes; one that they count has room there as well, but bound
    // before them it would keep one of them out.
    let web = labels(json!({"app": "web"}));
    let even = join(&[web.clone(), spread(ZONE, 2, json!({"app": "web"}))]);
    let mut pods = many("even", 2, "1", &even);
    pods.push(pod("counted", "1", "1Gi", web.clone()));
    let with = |pools: Vec<Pool>| {
        let mut c = cluster(pools, &pods);
        c.upsert_node(&node("a", "8", "32Gi", json!({ZONE: "zone-a"}))).unwrap();
        c.upsert_node(&node("b", "500m", "4Gi", json!({ZONE: "zone-b"}))).unwrap();
        plan(&c)
    };
    let roomy = with(vec![pool("p", kinds())]);
    assert_eq!(homes(&roomy, "even"), [("a".to_owned(), 2)].into());
    assert_eq!((roomy.instances.len(), placed(&roomy, "counted")), (1, 1));
    // Where it can go nowhere else, it goes there.
    let full = with(Vec::new());
    assert_eq!(homes(&full, "counted"), [("a".to_owned(), 1)].into());
}

#[test]
fn the_even_leave_room_in_their_spread_for_who_comes_later_and_fits_nowhere_else() {
    // The flock must be beside others of its kind, so that it comes last, and its zone has the first node by name.
    let web = labels(json!({"app": "web"}));
    let even = join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"}))]);
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "zone-b"}}});
    let mut pods = many("even", 5, "1", &even);
    pods.push(pod("flock", "1", "1Gi", join(&[web, near(HOST, json!({"app": "web"})), pinned])));
    let mut c = cluster(Vec::new(), &pods);
    c.upsert_node(&node("first", "8", "32Gi", json!({ZONE: "zone-b"}))).unwrap();
    c.upsert_node(&node("second", "8", "32Gi", json!({ZONE: "zone-a"}))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    assert_eq!(homes(&plan, "even"), [("first".to_owned(), 2), ("second".to_owned(), 3)].into());
}

#[test]
fn a_possible_affinity_seed_starts_before_targets_of_a_lower_priority() {
    // Beside a low one, which fills its node, it would have no room.
    let web = labels(json!({"app": "web"}));
    let high = json!({"spec": {"priority": 10, "nodeSelector": {ZONE: "zone-a"}}});
    let seed =
        join(&[web.clone(), near(HOST, json!({"app": "web"})), spread(ZONE, 5, json!({"app": "web"})), high]);
    let mut pods = many("low", 2, "15", &web);
    pods.push(pod("seed", "1500m", "1Gi", seed));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&plan, "seed"), placed(&plan, "low")), (1, 2), "{:?}", why(&plan));
}

#[test]
fn host_affinity_follows_the_zone_of_a_target() {
    // An old pod that counts is in zone a, where nothing new is needed; the affinity targets come to zone b.
    let web = labels(json!({"app": "web"}));
    let follower = join(&[web.clone(), near(HOST, json!({"app": "web"}))]);
    let even = join(&[
        web.clone(),
        spread(ZONE, 1, json!({"app": "web"})),
        json!({"spec": {"nodeSelector": {"side": "new"}}}),
    ]);
    let mut pods = many("even", 2, "1", &even);
    pods.extend(many("f", 2, "1", &follower));
    let mut c = cluster(
        vec![Pool {
            labels: [("side".to_owned(), "new".to_owned())].into(),
            ..in_zones(&["zone-a", "zone-b"])
        }],
        &pods,
    );
    c.upsert_node(&node("old", "1", "4Gi", json!({ZONE: "zone-a"}))).unwrap();
    c.upsert_pod(&pod("running", "1", "1Gi", join(&[web, json!({"spec": {"nodeName": "old"}})]))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
}

#[test]
fn a_lighter_pool_doesnt_start_again_what_a_heavier_one_has_started() {
    // One per host by the spread, and each on the host of another: one is all there can be, whatever pools there are.
    let flock = labels(json!({"app": "flock"}));
    let torn = join(&[flock, near(HOST, json!({"app": "flock"})), spread(HOST, 1, json!({"app": "flock"}))]);
    let heavy = Pool { weight: 10, ..pool("heavy", kinds()) };
    let plan = plan(&cluster(vec![heavy, pool("light", kinds())], &many("f", 3, "1", &torn)));
    assert_eq!((placed(&plan, "f"), plan.unschedulable.len()), (1, 2), "{:?}", plan.instances);
}

#[test]
fn what_a_full_pool_leaves_to_a_lighter_one_counts_for_the_spreads_there() {
    // Two of the leaders find the heavy pool full. In the light one they are bound before the pods that must be even
    // with them.
    let web = labels(json!({"app": "web"}));
    let leader = join(&[web.clone(), json!({"spec": {"priority": 10, "nodeSelector": {ZONE: "zone-a"}}})]);
    let in_light = json!({"spec": {"nodeSelector": {"node-pool": "light"}}});
    let mut pods = many("lead", 3, "1", &leader);
    pods.extend(many("even", 3, "1", &join(&[web, in_light, spread(ZONE, 1, json!({"app": "web"}))])));
    let heavy = Pool {
        weight: 10,
        limits: [("cpu".to_owned(), "1".parse().unwrap())].into(),
        ..pool("heavy", kinds())
    };
    let plan = plan(&cluster(vec![heavy, pool("light", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let in_a = plan
        .instances
        .iter()
        .filter(|instance| instance.zone == "zone-a")
        .flat_map(|instance| &instance.pods);
    assert!(in_a.clone().all(|pod| pod.name.starts_with("lead")), "{:?}", in_a.collect::<Vec<_>>());
}

#[test]
fn followers_in_a_lighter_pool_count_for_the_spreads_of_a_heavier_one() {
    // Bound in any order: the followers have zone b for themselves.
    let in_light = |zone: &str| json!({"spec": {"nodeSelector": {"node-pool": "light", ZONE: zone}}});
    let seed = join(&[labels(json!({"app": "seed"})), in_light("zone-b")]);
    let web = labels(json!({"app": "web"}));
    let follows = join(&[web.clone(), in_light("zone-b"), near(ZONE, json!({"app": "seed"}))]);
    let mut pods = many("seed", 2, "100m", &seed);
    pods.extend(many("follow", 2, "250m", &follows));
    pods.extend(many("even", 4, "3", &join(&[web, spread(ZONE, 1, json!({"app": "web"}))])));
    let heavy = Pool { weight: 10, ..pool("heavy", kinds()) };
    let plan = plan(&cluster(vec![heavy, pool("light", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    let in_b = plan
        .instances
        .iter()
        .filter(|instance| instance.zone == "zone-b")
        .flat_map(|instance| &instance.pods);
    assert!(in_b.clone().all(|pod| !pod.name.starts_with("even")), "{:?}", in_b.collect::<Vec<_>>());
}

#[test]
fn a_limit_leaves_out_the_lowest_priority_also_of_those_who_must_be_even() {
    // Two instances are all that the limit leaves. The first two of the even pods need one each, in two zones.
    let even = join(&[
        labels(json!({"app": "even"})),
        spread(ZONE, 1, json!({"app": "even"})),
        json!({"spec": {"priority": 10}}),
    ]);
    let alone = join(&[labels(json!({"app": "alone"})), apart(ZONE, json!({"app": "alone"}))]);
    let of_eight = kinds().into_iter().filter(|kind| kind.name == "m.8").collect();
    let one = Pool { limits: [("cpu".to_owned(), "16".parse().unwrap())].into(), ..pool("p", of_eight) };
    let mut pods = many("even", 4, "5", &even);
    pods.extend(many("alone", 5, "7", &alone));
    let plan = plan(&cluster(vec![one], &pods));
    assert_eq!((placed(&plan, "even"), placed(&plan, "alone")), (2, 0), "{:?}", plan.instances);
}

#[test]
fn a_limit_leaves_out_the_lowest_priority_also_of_those_who_go_together() {
    let priority = |n: i32| json!({"spec": {"priority": n}});
    let one = Pool { limits: [("cpu".to_owned(), "4".parse().unwrap())].into(), ..pool("p", kinds()) };
    let mut pods = many("lead", 1, "1", &join(&[labels(json!({"app": "lead"})), priority(0)]));
    pods.extend(many("follow", 1, "1", &join(&[near(HOST, json!({"app": "lead"})), priority(0)])));
    pods.extend(many("high", 1, "4", &priority(10)));
    let plan = plan(&cluster(vec![one], &pods));
    assert_eq!((placed(&plan, "high"), placed(&plan, "lead"), placed(&plan, "follow")), (1, 0, 0));
}

#[test]
fn a_zone_without_pods_excludes_no_pod_beside_others_that_a_limit_leaves_out() {
    // A pod in zone-b keeps the even ones off, so that the spread sees zone-a and zone-c alone. Of the big ones, the limit
    // leaves some out that need the even ones near.
    let web = labels(json!({"app": "web"}));
    let in_pool = json!({"spec": {"nodeSelector": {"node-pool": "p"}}});
    let even = join(&[web.clone(), in_pool, spread(ZONE, 1, json!({"app": "web"}))]);
    let loner = join(&[apart(ZONE, json!({"app": "web"})), json!({"spec": {"nodeName": "old"}})]);
    let big = join(&[near(ZONE, json!({"app": "web"})), json!({"spec": {"priority": -10}})]);
    let one = Pool { limits: [("nodes".to_owned(), "3".parse().unwrap())].into(), ..pool("p", kinds()) };
    let mut pods = many("even", 3, "500m", &even);
    pods.extend(many("big", 6, "15", &big));
    let mut c = cluster(vec![one], &pods);
    c.upsert_node(&node("old", "1", "4Gi", json!({ZONE: "zone-b"}))).unwrap();
    c.upsert_pod(&pod("running", "1", "1Gi", loner)).unwrap();
    let plan = plan(&c);
    assert_eq!(placed(&plan, "even"), 3, "{:?}", why(&plan));
}

#[test]
fn what_a_pod_prefers_leaves_it_the_zones_that_it_needs() {
    let rather = |zones: &[&str]| {
        json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
            "weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}}]}}}})
    };
    let web = labels(json!({"app": "web"}));
    // Each in a zone of its own: three need all three, though two are preferred.
    let alone = join(&[web.clone(), apart(ZONE, json!({"app": "web"})), rather(&["zone-b", "zone-c"])]);
    let three = plan(&cluster(vec![pool("p", kinds())], &many("w", 3, "1", &alone)));
    assert_eq!(three.unschedulable.len(), 0, "{:?}", why(&three));
    let two = plan(&cluster(vec![pool("p", kinds())], &many("w", 2, "1", &alone)));
    assert!(two.instances.iter().all(|instance| instance.zone != "zone-a"), "{:?}", two.instances);
    // Near to one that runs elsewhere.
    let follower = join(&[near(ZONE, json!({"app": "web"})), rather(&["zone-b"])]);
    let mut c = cluster(vec![pool("p", kinds())], &many("f", 1, "1", &follower));
    c.upsert_node(&node("old", "1", "4Gi", json!({ZONE: "zone-a"}))).unwrap();
    c.upsert_pod(&pod("running", "1", "1Gi", join(&[web, json!({"spec": {"nodeName": "old"}})]))).unwrap();
    assert_eq!(plan(&c).instances.first().map(|instance| instance.zone.as_str()), Some("zone-a"));
}

#[test]
fn a_zone_without_pods_excludes_no_pod() {
    // All must be in one zone, and even over the zones: as long as the others have no node, one zone is all there is.
    let web = labels(json!({"app": "web"}));
    let both = join(&[web, near(ZONE, json!({"app": "web"})), spread(ZONE, 1, json!({"app": "web"}))]);
    let mut pods = many("w", 3, "1", &both);
    let alone = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!(alone.unschedulable.len(), 0, "{:?}", why(&alone));
    assert_eq!(alone.instances.iter().map(|instance| &instance.zone).collect::<BTreeSet<_>>().len(), 1);
    // Somebody opens them: then there is place for one.
    for zone in ["zone-a", "zone-b", "zone-c"] {
        pods.push(pod(zone, "1", "1Gi", json!({"spec": {"nodeSelector": {ZONE: zone}}})));
    }
    assert_eq!(placed(&plan(&cluster(vec![pool("p", kinds())], &pods)), "w"), 1);
}

#[test]
fn a_zone_without_pods_excludes_none_that_the_host_of_its_kind_has_room_for() {
    // All must be on one host, which holds three, and even over the zones.
    let web = labels(json!({"app": "web"}));
    let both = join(&[web, near(HOST, json!({"app": "web"})), spread(ZONE, 1, json!({"app": "web"}))]);
    let pods = many("w", 6, "5", &both);
    let plan = plan(&cluster(vec![in_zones(&["zone-a", "zone-b"])], &pods));
    assert_eq!(homes(&plan, "w").into_values().collect::<Vec<_>>(), [3], "{:?}", why(&plan));
}

#[test]
fn pods_that_a_spread_keeps_out_come_as_soon_as_lower_priorities_open_the_last_zone() {
    // Four for two zones, of a higher priority; five for all three: three in each zone.
    let web = join(&[labels(json!({"app": "web"})), spread(ZONE, 1, json!({"app": "web"}))]);
    let mut high = join(&[
        web.clone(),
        json!({"spec": {"priority": 10, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [
                {"key": ZONE, "operator": "In", "values": ["zone-a", "zone-b"]}]}]}}}}}),
    ]);
    high["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = json!("Ignore");
    let mut pods = many("high", 4, "1", &high);
    pods.extend(many("low", 5, "7", &web));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&plan, "high"), placed(&plan, "low")), (4, 5), "{:?}", why(&plan));
}

#[test]
fn a_possible_affinity_seed_is_placed_after_a_target_without_affinity() {
    // Two of the flock have room beside the one that may be bound before them; alone, the third would start nothing.
    let flock = labels(json!({"app": "flock"}));
    let mut pods = vec![pod("lead", "1", "1Gi", flock.clone())];
    pods.extend(many("f", 3, "3", &join(&[flock, near(HOST, json!({"app": "flock"}))])));
    let small = kinds().into_iter().filter(|kind| kind.name != "m.16").collect();
    let plan = plan(&cluster(vec![pool("p", small)], &pods));
    assert_eq!(placed(&plan, "f"), 2, "{:?}", plan.instances);
    assert_eq!(homes(&plan, "f").keys().collect::<Vec<_>>(), homes(&plan, "lead").keys().collect::<Vec<_>>());
}

#[test]
fn a_possible_affinity_seed_is_planned_onto_a_node_after_others_of_its_kind() {
    // Alone, the flock could start on the reserved node. With a lead bound first on the small one, it must be beside a lead.
    let flock = labels(json!({"app": "flock"}));
    let tolerant = json!({"spec": {"tolerations": [{"key": "reserved", "operator": "Exists"}]}});
    let mut pods =
        vec![pod("f", "3", "1Gi", join(&[flock.clone(), near(HOST, json!({"app": "flock"})), tolerant]))];
    pods.extend(many("lead", 2, "1500m", &flock));
    let mut c = cluster(vec![pool("p", kinds())], &pods);
    let mut reserved = node("a-reserved", "4", "16Gi", json!({}));
    reserved.spec = Some(NodeSpec { taints: Some(vec![taint("reserved", "")]), ..NodeSpec::default() });
    c.upsert_node(&reserved).unwrap();
    c.upsert_node(&node("b-small", "2", "4Gi", json!({}))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    assert_eq!(plan.existing.iter().map(|e| e.node.as_str()).collect::<Vec<_>>(), ["b-small"]);
    assert_eq!(plan.instances.iter().map(|instance| instance.pods.len()).collect::<Vec<_>>(), [2]);
}

#[test]
fn who_waits_for_others_comes_as_soon_as_one_is_there() {
    // The followers come before the even ones, and have room in zone c alone. Once one of those is there they fill it, before
    // the spread would bear another.
    let web = labels(json!({"app": "web"}));
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "zone-c"}}});
    let follower = join(&[web.clone(), near(ZONE, json!({"app": "web"})), pinned]);
    let low = json!({"spec": {"priority": -10}});
    let even = join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"})), low]);
    let mut pods = many("f", 5, "1", &follower);
    pods.extend(many("even", 4, "4", &even));
    let mut c = cluster(vec![pool("p", kinds())], &pods);
    c.upsert_node(&node("old", "1", "4Gi", json!({ZONE: "zone-b"}))).unwrap();
    c.upsert_pod(&pod("running", "1", "1Gi", join(&[web, json!({"spec": {"nodeName": "old"}})]))).unwrap();
    let plan = plan(&c);
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    let in_c = plan
        .instances
        .iter()
        .filter(|instance| instance.zone == "zone-c")
        .flat_map(|instance| &instance.pods);
    assert_eq!(in_c.filter(|p| p.name.starts_with("even")).count(), 1, "{:?}", plan.instances);
}

#[test]
fn who_must_follow_isnt_told_where_it_would_keep_out_those_it_follows() {
    let web = labels(json!({"app": "web"}));
    let even = join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"}))]);
    let told = |key: &str, priority: i32, target: bool| {
        let high = json!({"spec": {"priority": priority}});
        let follower = join(&[web.clone(), near(key, json!({"app": "web"})), high]);
        let mut c = cluster(
            vec![pool("p", kinds())],
            &[pod("even", "1", "1Gi", even.clone()), pod("f", "1", "1Gi", follower)],
        );
        for (name, running) in [("a", 2), ("b", usize::from(target))] {
            c.upsert_node(&node(name, "8", "32Gi", json!({ZONE: format!("zone-{name}")}))).unwrap();
            for n in 0..running {
                let there = join(&[web.clone(), json!({"spec": {"nodeName": name}})]);
                c.upsert_pod(&pod(&format!("{name}{n}"), "1", "1Gi", there)).unwrap();
            }
        }
        let keys = ["even", "f"].map(|name| PodKey::new("default", name));
        let labels = [(ZONE.to_owned(), "zone-b".to_owned()), (HOST.to_owned(), "b".to_owned())].into();
        c.nominable(&keys, &labels).into_iter().map(|p| p.name.to_string()).collect::<Vec<_>>()
    };
    // Others may fill the zone until it is the turn of the even one, and the follower can't give way.
    for key in [ZONE, HOST] {
        for priority in [0, 10] {
            assert_eq!(told(key, priority, false), ["even"], "{key} {priority}");
        }
    }
    // With a matching pod there already, it needn't wait.
    assert_eq!(told(ZONE, 0, true), ["even", "f"]);
}

#[test]
fn who_isnt_counted_is_told_whatever_keeps_the_others_out() {
    // Zone a is ahead, so that the even one has to wait for others; no constraint counts the one beside it.
    let web = labels(json!({"app": "web"}));
    let even = join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"}))]);
    let mut c = cluster(
        vec![pool("p", kinds())],
        &[pod("even", "1", "1Gi", even), pod("other", "1", "1Gi", labels(json!({"app": "db"})))],
    );
    for name in ["a", "b"] {
        c.upsert_node(&node(name, "8", "32Gi", json!({ZONE: format!("zone-{name}")}))).unwrap();
    }
    c.upsert_pod(&pod("running", "1", "1Gi", join(&[web, json!({"spec": {"nodeName": "a"}})]))).unwrap();
    let keys = ["even", "other"].map(|name| PodKey::new("default", name));
    assert_eq!(c.nominable(&keys, &[(ZONE.to_owned(), "zone-a".to_owned())].into()).len(), 2);
}

#[test]
fn a_limit_that_leaves_no_instance_in_a_zone_sends_pods_to_the_others() {
    // Three instances: one in zone b is full, so that each of the others takes two of those who would be in all zones; those
    // of a lower priority get what room is left.
    let priority = |n: i32| json!({"spec": {"priority": n}});
    let pinned = json!({"spec": {"nodeSelector": {ZONE: "zone-b"}}});
    let three = Pool { limits: [("nodes".to_owned(), "3".parse().unwrap())].into(), ..pool("p", kinds()) };
    let mut pods = vec![pod("large", "16", "1Gi", pinned)];
    let web = labels(json!({"app": "web"}));
    pods.extend(many("even", 6, "7", &join(&[web, spread(ZONE, 2, json!({"app": "web"}))])));
    pods.extend(many("low", 3, "2", &priority(-10)));
    let plan = plan(&cluster(vec![three], &pods));
    assert_eq!((placed(&plan, "large"), placed(&plan, "even"), placed(&plan, "low")), (1, 4, 2));
    assert!(
        plan.unschedulable.iter().all(|u| u.reasons.iter().all(|r| r.reason.is_limit())),
        "{:?}",
        why(&plan)
    );
}

#[test]
fn a_possible_affinity_seed_waits_for_a_target_that_only_a_lighter_pool_takes() {
    // The heavier pool may have no instance that is large enough for the one that is bound first.
    let flock = labels(json!({"app": "flock"}));
    let mut pods = vec![pod("lead", "6", "1Gi", flock.clone())];
    pods.extend(many("f", 2, "2", &join(&[flock, near(HOST, json!({"app": "flock"}))])));
    let limits = [("cpu".to_owned(), "4".parse().unwrap())].into();
    let heavy = Pool { weight: 10, limits, ..pool("heavy", kinds()) };
    let plan = plan(&cluster(vec![heavy, pool("light", kinds())], &pods));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
    assert_eq!(homes(&plan, "f").keys().collect::<Vec<_>>(), homes(&plan, "lead").keys().collect::<Vec<_>>());
}

#[test]
fn followers_have_a_host_with_a_target_of_a_higher_priority() {
    // The targets alone would fill their hosts.
    let lead = join(&[labels(json!({"app": "lead"})), json!({"spec": {"priority": 10}})]);
    let mut pods = many("lead", 4, "4", &lead);
    pods.extend(many("follower", 1, "8", &near(HOST, json!({"app": "lead"}))));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&plan, "lead"), placed(&plan, "follower")), (4, 1), "{:?}", why(&plan));
}

#[test]
fn more_of_a_kind_than_its_first_host_holds_join_targets_of_a_lower_priority() {
    let web = labels(json!({"app": "web"}));
    let high = json!({"spec": {"priority": 10}});
    let mut pods = many("flock", 8, "4", &join(&[web.clone(), near(HOST, json!({"app": "web"})), high]));
    pods.extend(many("target", 2, "1", &web));
    let plan = plan(&cluster(vec![pool("p", kinds())], &pods));
    assert_eq!((placed(&plan, "flock"), placed(&plan, "target")), (8, 2), "{:?}", why(&plan));
}

/// Nodes without a pool: two CPUs in zone a, one in zone b and none in zone c. The even pods have one place in each of the
/// first two zones, and the pod that only zone a takes is counted there.
fn crowded(more: &[Pod]) -> Plan {
    let web = labels(json!({"app": "web"}));
    let priority = |n: i32| json!({"spec": {"priority": n}});
    let even = join(&[web.clone(), spread(ZONE, 1, json!({"app": "web"})), priority(100)]);
    let pinned = join(&[web, json!({"spec": {"nodeSelector": {ZONE: "zone-a"}}}), priority(50)]);
    let mut pods = many("even", 2, "1", &even);
    pods.extend(many("pinned", 1, "1", &pinned));
    pods.extend_from_slice(more);
    let mut c = cluster(Vec::new(), &pods);
    for (name, cpu, zone) in [("a", "2", "zone-a"), ("b", "1", "zone-b"), ("c", "0", "zone-c")] {
        c.upsert_node(&node(name, cpu, "8Gi", json!({ZONE: zone}))).unwrap();
    }
    plan(&c)
}

#[test]
fn no_pod_is_left_out_for_one_of_a_lower_priority() {
    let plan = crowded(&many("low", 1, "1", &json!({})));
    assert_eq!((placed(&plan, "even"), placed(&plan, "pinned"), placed(&plan, "low")), (2, 1, 0));
}

#[test]
fn a_pod_is_near_none_that_has_only_room_left_for_it() {
    let high = json!({"spec": {"priority": 200}});
    let near = join(&[near(ZONE, json!({"app": "web"})), high]);
    let plan = crowded(&many("near", 1, "2", &near));
    assert_eq!((placed(&plan, "even"), placed(&plan, "pinned"), placed(&plan, "near")), (2, 1, 0));
}

#[test]
fn the_last_domain_of_a_pod_that_others_keep_off_the_rest_stays_open() {
    // Two repel the last pod for different labels, and one of them has zone b alone.
    let in_b = json!({"spec": {"nodeSelector": {ZONE: "zone-b"}}});
    let first = pod("first", "1", "1Gi", join(&[apart(ZONE, json!({"app": "last"})), in_b]));
    let second = pod("second", "1", "1Gi", apart(ZONE, json!({"tier": "web"})));
    let last = pod("last", "1", "1Gi", labels(json!({"app": "last", "tier": "web"})));
    let plan = plan(&cluster(vec![in_zones(&["zone-a", "zone-b"])], &[first, second, last]));
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", why(&plan));
}

#[test]
fn of_two_that_keep_each_other_out_the_earlier_comes() {
    let alone = join(&[labels(json!({"app": "a"})), apart(ZONE, json!({"app": "b"}))]);
    let other = labels(json!({"app": "b"}));
    let at =
        |second: u32| json!({"metadata": {"creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")}});
    for (earlier, later) in [(("a", &alone), ("b", &other)), (("b", &other), ("a", &alone))] {
        let pods = [(earlier, 1), (later, 2)]
            .map(|((name, more), second)| pod(name, "1", "1Gi", join(&[more.clone(), at(second)])));
        let plan = plan(&cluster(vec![in_zones(&["zone-a"])], &pods));
        let found = (placed(&plan, earlier.0), placed(&plan, later.0));
        assert_eq!(found, (1, 0), "{} came before {}", earlier.0, later.0);
    }
}

/// Three pods that are even over zones, and one that keeps them out of zone b. If the last of the three comes first, it must go to zone
/// b: kube-scheduler doesn't see that a nominated pod has anti-affinity to it.
#[test]
fn a_pod_with_anti_affinity_gets_no_place_that_an_earlier_pod_must_take_to_be_even() {
    let x = json!({"app": "x"});
    let even = join(&[labels(x.clone()), spread(ZONE, 1, x.clone())]);
    let alone = join(&[
        labels(x.clone()),
        apart(ZONE, x.clone()),
        json!({"spec": {"nodeSelector": {ZONE: "zone-b"}}}),
    ]);
    let placed = |cpu: &str, even: &Value, alone: &Value, others: &[Pod], is_first: bool| {
        let mut c = cluster(vec![pool("p", vec![kind("m.8", "8", "32Gi", 0.4)])], &[]);
        c.upsert_node(&node("full", "1", "4Gi", json!({}))).unwrap();
        let mut pods = many("even", 3, "7", even);
        pods.insert(if is_first { 0 } else { 3 }, pod("alone", cpu, "1Gi", alone.clone()));
        pods.iter().chain(others).for_each(|pod| c.upsert_pod(pod).unwrap());
        let plan = plan(&c);
        (self::placed(&plan, "even"), self::placed(&plan, "alone"))
    };
    assert_eq!(placed("900m", &even, &alone, &[], false), (3, 0));
    // Its node has no room for another.
    assert_eq!(placed("2", &even, &alone, &[], false), (3, 1));
    // It comes first.
    assert_eq!(placed("900m", &even, &alone, &[], true), (3, 1));
    let urgent = join(&[alone.clone(), json!({"spec": {"priority": 10}})]);
    assert_eq!(placed("900m", &even, &urgent, &[], false), (3, 1));
    // Its nomination is seen, since the others have terms or a running pod keeps them off its host.
    let wary = join(&[even.clone(), apart(HOST, json!({"app": "y"}))]);
    assert_eq!(placed("900m", &wary, &alone, &[], false), (3, 1));
    let guard = join(&[apart(HOST, x), json!({"spec": {"nodeName": "full"}})]);
    assert_eq!(placed("900m", &even, &alone, &[pod("guard", "1", "1Gi", guard)], false), (3, 1));
}

#[test]
fn a_pod_that_starts_its_own_kind_comes_before_lower_priorities_of_others() {
    let own = join(&[labels(json!({"app": "own"})), near(HOST, json!({"app": "own"}))]);
    let own = join(&[own, json!({"spec": {"priority": 100}})]);
    let mut c = cluster(
        vec![pool("p", kinds())],
        &[pod("other", "1", "1Gi", json!({})), pod("own", "1", "1Gi", own)],
    );
    c.upsert_node(&node("n", "1", "4Gi", json!({}))).unwrap();
    let plan = plan(&c);
    let on_node: Vec<&str> =
        plan.existing.iter().flat_map(|place| &place.pods).map(|pod| &*pod.name).collect();
    assert_eq!((on_node, plan.instances.len()), (vec!["own"], 1));
}

#[test]
fn pods_do_not_wait_where_they_prefer_to_be_for_pods_of_a_lower_priority() {
    let app = labels(json!({"app": "a"}));
    let even = spread(ZONE, 1, json!({"app": "a"}));
    let prefers = json!({"spec": {"priority": 10, "affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [
            {"key": ZONE, "operator": "In", "values": ["zone-a"]}]}}]}}}});
    let in_b = json!({"spec": {"nodeSelector": {ZONE: "zone-b"}}});
    let mut pods = many("high", 2, "1", &join(&[app.clone(), even, prefers]));
    pods.extend(many("low", 1, "1", &join(&[app, in_b])));
    let plan = plan(&cluster(vec![in_zones(&["zone-a", "zone-b"])], &pods));
    let zones = |name: &str| -> Vec<&str> {
        let with = plan
            .instances
            .iter()
            .filter(|instance| instance.pods.iter().any(|pod| pod.name.starts_with(name)));
        with.map(|instance| instance.zone.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    assert_eq!(plan.unschedulable.len(), 0, "{:?}", plan.unschedulable);
    // The second one goes to zone-b once a node of it is there, and into the room of the pod of a lower priority.
    assert_eq!(zones("high"), ["zone-a", "zone-b"]);
    assert_eq!(zones("low"), ["zone-b"]);
}
