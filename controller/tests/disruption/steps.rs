//! Decisions of disruption, step by step, without an executor.

use std::collections::BTreeMap;

use croft_controller::{
    disruption::outcomes::Outcome,
    kube_api::{Change, Kind, ObjectId},
    nodeclaim::launch_backoff::edit_hash,
};
use serde_json::{Value, json};

use crate::world::World;

/// Three nodes of 8 processors, each with a pod of 1.
fn three() -> World {
    three_with(json!({}))
}

fn three_with(disruption: Value) -> World {
    let mut world = World::new(disruption);
    for n in 0..3 {
        world.node(&format!("n{n}"), "m.8", json!({}));
        world.pod(&format!("pod{n}"), &format!("n{n}"), 1000, json!({}));
    }
    world
}

fn begun() -> (World, Value) {
    begun_with(json!({}))
}

fn begun_with(disruption: Value) -> (World, Value) {
    let mut world = three_with(disruption);
    let search = world.search();
    assert_eq!(search.ask.candidates.len(), 3);
    world.answer(&search);
    world.step(1);
    let created = world.created();
    assert_eq!((created.len(), world.deleted().len()), (1, 0), "{:?}", world.actions);
    (world, created[0].clone())
}

#[test]
fn the_replacement_comes_first_and_is_looked_at_again() {
    let (mut world, made) = begun();
    let annotations = &made["metadata"]["annotations"];
    assert_eq!(annotations["croft.dev/replaces"], json!("n0,n1,n2"));
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(annotations["croft.dev/move"], json!(format!("{name}/1")));
    let kind = made["spec"]["instanceTypes"][0].as_str().unwrap().to_owned();
    assert_eq!(kind, "m.4");

    // There, and not initialized: nothing goes, and nothing else is begun.
    let waiting = json!({"metadata": {"annotations": annotations}, "status": {"conditions": []}});
    world.node(&name, &kind, waiting);
    assert!(world.step(20).is_none() && world.deleted().is_empty(), "{:?}", world.actions);
    // Ready and without pods, it isn't removed as empty.
    world.node(&name, &kind, json!({"metadata": {"annotations": annotations}}));
    world.step(1);
    let mut gone = world.deleted();
    gone.sort();
    assert_eq!((gone, world.cordoned()), (["n0", "n1", "n2"].map(str::to_owned).to_vec(), 0));
    // Looked at again before the claims are seen to go, it is still one move.
    world.step(3);
    assert_eq!(world.tally("Underutilized"), [(Outcome::Started, 1), (Outcome::Completed, 1)]);
}

#[test]
fn a_move_of_several_nodes_keeps_within_the_budget() {
    let (mut world, made) = begun_with(json!({"budgets": [{"nodes": "1"}]}));
    let annotations = &made["metadata"]["annotations"];
    assert_eq!(annotations["croft.dev/replaces"], json!("n0,n1,n2"));
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    world.node(&name, "m.4", json!({"metadata": {"annotations": annotations}}));
    for node in ["n0", "n1", "n2"] {
        world.step(5);
        assert_eq!(world.deleted(), [node]);
        // While it goes, no other does, nor while its claim isn't released.
        world.node(node, "m.8", json!({"metadata": {"deletionTimestamp": world.now().wall.to_string()}}));
        world.step(5);
        assert!(world.deleted().is_empty(), "{:?}", world.deleted());
        world.pod(&format!("pod{}", &node[1..]), &name, 1000, json!({}));
        world.observe(Change::Gone(ObjectId::new(Kind::Node, "", node)));
        world.step(5);
        assert!(world.deleted().is_empty(), "{:?}", world.deleted());
        world.observe(Change::Gone(ObjectId::new(Kind::NodeClaim, "", node)));
    }
    world.step(5);
    assert!(world.deleted().is_empty());
    assert_eq!(world.tally("Underutilized"), [(Outcome::Started, 1), (Outcome::Completed, 1)]);
}

#[test]
fn a_move_whose_budget_closes_leaves_the_rest_as_it_is() {
    let (mut world, made) = begun_with(json!({"budgets": [{"nodes": "1"}]}));
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    world.pool(json!({"budgets": [{"nodes": "0"}]}), json!({}));
    world.node(&name, "m.4", json!({"metadata": {"annotations": made["metadata"]["annotations"]}}));
    world.step(1);
    // Pods that no watch has shown yet may be there.
    assert_eq!((world.deleted().len(), world.cordoned()), (0, 1));
    assert_eq!(world.told("DisruptionFailed").len(), 3);
}

#[test]
fn a_replacement_whose_node_is_being_written_is_cordoned_before_it_is_released() {
    let (mut world, made) = begun_with(json!({"budgets": [{"nodes": "1"}]}));
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    world.pool(json!({"budgets": [{"nodes": "0"}]}), json!({}));
    let annotations = json!({"metadata": {"annotations": made["metadata"]["annotations"]}});
    world.node(&name, "m.4", annotations.clone());
    world.unlabel(&name, "node-pool");
    world.step(1);
    assert_eq!((world.cordoned(), world.released()), (0, 0), "{:?}", world.actions);
    world.node(&name, "m.4", annotations);
    world.step(1);
    assert_eq!((world.cordoned(), world.released()), (1, 1), "{:?}", world.actions);
}

#[test]
fn a_replacement_that_does_not_come_undoes_the_decision() {
    let (mut world, made) = begun();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let annotations = &made["metadata"]["annotations"];
    let going = json!({"metadata": {"annotations": annotations, "deletionTimestamp": "2026-11-12T00:00:00Z"},
        "status": {"conditions": [], "providerId": null, "nodeName": null}});
    world.node(&name, "m.4", going);
    world.step(1);
    assert!(world.deleted().is_empty(), "{:?}", world.deleted());
    assert_eq!(world.told("DisruptionFailed").len(), 3);
    world.step(1);
    assert_eq!(world.tally("Underutilized"), [(Outcome::Started, 1), (Outcome::RolledBack, 1)]);
    world.observe(Change::Gone(ObjectId::new(Kind::NodeClaim, "", &name)));
    world.observe(Change::Gone(ObjectId::new(Kind::Node, "", &name)));
    // Left alone for a while, then asked about again.
    assert!(world.step(60).is_none());
    assert!(world.step(600).is_some());
}

#[test]
fn what_was_launched_and_no_longer_suffices_undoes_the_decision() {
    let (mut world, made) = begun();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    world.node(&name, "m.4", json!({"metadata": {"annotations": made["metadata"]["annotations"]}}));
    // The load has come back meanwhile.
    world.pod("more", "n0", 6000, json!({}));
    world.step(1);
    assert!(world.deleted().is_empty());
    world.step(31);
    assert_eq!((world.deleted().len(), world.cordoned()), (0, 1));
    assert!(world.told("DisruptionFailed")[0].contains("no longer fit"), "{:?}", world.actions);
}

#[test]
fn an_answer_about_other_pods_is_dropped() {
    let mut world = three();
    let search = world.search();
    world.pod("new", "n0", 100, json!({}));
    world.answer(&search);
    world.step(1);
    assert!(world.created().is_empty() && world.deleted().is_empty(), "{:?}", world.actions);
    assert_eq!(world.tally("Underutilized"), [(Outcome::Invalidated, 1)]);
}

#[test]
fn what_keeps_a_node_keeps_it_out_of_the_question() {
    let alone = |extra: Value| {
        let mut world = three();
        world.pod("pod0", "n0", 1000, extra);
        let search = world.search();
        search.ask.candidates.iter().map(|c| c.node.clone()).collect::<Vec<_>>()
    };
    assert_eq!(alone(json!({})), ["n0", "n1", "n2"]);
    assert_eq!(
        alone(json!({"metadata": {"annotations": {"croft.dev/do-not-disrupt": "true"}}})),
        ["n1", "n2"]
    );
    assert_eq!(
        alone(json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}})),
        ["n1", "n2"]
    );
    assert_eq!(alone(json!({"metadata": {"ownerReferences": []}})), ["n1", "n2"]);

    // A budget for another reason doesn't hold it.
    let mut world = three();
    let budgets = json!([{"nodes": "1"}, {"nodes": "0", "reasons": ["Drifted", "Empty", "Underutilized"]}]);
    world.pool(
        json!({"consolidateAfter": "Never", "budgets": budgets}),
        json!({"spec": {"expireAfter": "240h"}}),
    );
    world.step(0);
    assert_eq!((world.deleted().len(), world.created().len()), (1, 0), "{:?}", world.actions);
    let mut world = three();
    world.budget(0);
    assert!(world.step(0).is_none() && world.step(11).is_none());
    assert_eq!(world.kept_by("PDBBlocked"), 3);
    world.budget(1);
    assert!(world.step(11).is_some());

    let mut world = three();
    world.pool(json!({"consolidationPolicy": "WhenEmpty"}), json!({}));
    assert!(world.step(0).is_none() && world.step(11).is_none());
    world.pool(json!({"budgets": [{"nodes": "0"}]}), json!({}));
    assert!(world.step(11).is_none());
    assert_eq!(world.kept_by("Budget"), 3);
    world.pool(json!({"budgets": [{"nodes": "1"}]}), json!({}));
    assert_eq!(world.step(11).unwrap().ask.constraints["p"].nodes, 1);
}

#[test]
fn pods_must_be_unchanged_for_as_long_as_asked() {
    let mut world = three();
    world.pool(json!({"consolidateAfter": "60s"}), json!({}));
    assert!(world.step(0).is_none());
    assert!(world.step(59).is_none());
    world.pod("late", "n1", 100, json!({}));
    let search = world.step(3).unwrap();
    assert_eq!(search.ask.candidates.iter().map(|c| c.node.as_str()).collect::<Vec<_>>(), ["n0", "n2"]);
}

#[test]
fn empty_nodes_go_at_once_unless_a_budget_says_otherwise() {
    for (budgets, expected) in [
        (json!([{"nodes": "10%", "reasons": ["Underutilized", "Drifted", "Expired"]}]), 10),
        (json!([{"nodes": "0", "reasons": ["Underutilized"]}]), 10),
        (json!([{"nodes": "10%"}]), 1),
        (json!([{"nodes": "3", "reasons": ["Empty"]}]), 3),
        (json!([{"nodes": "0", "schedule": "* * * * *", "duration": "5m"}]), 0),
    ] {
        let mut world = World::new(json!({"budgets": budgets}));
        for n in 0..10 {
            world.node(&format!("n{n}"), "m.2", json!({}));
        }
        world.step(0);
        world.step(4);
        assert_eq!(world.cordoned(), 0);
        world.step(2);
        assert_eq!(world.cordoned(), expected, "{budgets}");
    }
}

#[test]
fn drift_replaces_within_its_budget_and_says_why() {
    let mut world = World::new(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "2"}]}));
    let stamp = json!({"version": 1, "fields": {"pool.labels": "of another time"}}).to_string();
    for n in 0..4 {
        let name = format!("n{n}");
        world.node(&name, "m.2", json!({"metadata": {"annotations": {"croft.dev/launched-with": stamp}}}));
        world.pod(&format!("pod{n}"), &name, 1800, json!({}));
    }
    world.step(0);
    let made = world.created();
    // Two of the four, which one instance of twice the size holds at the same price.
    assert_eq!(made.len(), 1, "{:?}", world.actions);
    assert_eq!(made[0]["metadata"]["annotations"]["croft.dev/replaces"], json!("n0,n1"));
    assert_eq!(made[0]["metadata"]["annotations"]["croft.dev/disruption-reason"], json!("Drifted"));
    let told = world.told("DisruptionStarted");
    assert!(
        told.len() == 2 && told[0].starts_with("Drifted: pool.labels changed since its launch"),
        "{told:?}"
    );
    assert!(world.deleted().is_empty());
}

#[test]
fn a_replacement_that_drifts_at_once_is_replaced_an_hour_later_unless_the_pool_was_edited() {
    for edited in [false, true] {
        let mut world = World::new(json!({"consolidateAfter": "Never"}));
        let hash = if edited { 1 } else { edit_hash(&world.engine.snapshot().pools()["p"]) };
        let launched_for = format!("{hash}/0");
        let stamp = json!({"version": 1, "fields": {"pool.labels": "of another time"}}).to_string();
        let marks = json!({"croft.dev/launched-with": stamp, "croft.dev/launched-for": launched_for,
            "croft.dev/disruption-reason": "Drifted"});
        world.node("n0", "m.2", json!({"metadata": {"annotations": marks}}));
        world.pod("pod0", "n0", 1800, json!({}));
        world.step(0);
        assert_eq!(world.created().len(), usize::from(edited), "{launched_for}: {:?}", world.actions);
        let told = world.told("DisruptionBlocked");
        assert_eq!(told.iter().any(|note| note.contains("would drift, too")), !edited, "{told:?}");
        if !edited {
            world.step(3_700);
            assert_eq!(world.created().len(), 1, "{:?}", world.actions);
        }
    }
}

#[test]
fn old_nodes_expire_and_what_protects_them_is_said() {
    let old = json!({"spec": {"expireAfter": "240h"}});
    let mut world = three();
    world.pool(json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}), old.clone());
    world.step(0);
    // Its pod fits beside another: nothing is launched for it.
    assert_eq!((world.deleted().len(), world.created().len()), (1, 0), "{:?}", world.actions);
    let mut world = three();
    world.budget(0);
    world.pool(json!({"consolidateAfter": "Never"}), old);
    world.step(0);
    assert!(world.deleted().is_empty() && world.created().is_empty());
    let told = world.told("DisruptionBlocked");
    assert!(told[0].contains("PodDisruptionBudget web allows none"), "{told:?}");
}

#[test]
fn a_load_that_swings_moves_nothing() {
    let mut world = three();
    world.step(0);
    // Every 4 seconds a pod comes or goes on every node, for an hour: pods are never unchanged for 5.
    for turn in 0..900 {
        for n in 0..3 {
            if turn % 2 == 0 {
                let uid = json!({"metadata": {"uid": format!("{turn}-{n}")}});
                world.pod(&format!("swing{n}"), &format!("n{n}"), 500, uid);
            } else {
                world.observe(Change::Gone(ObjectId::new(Kind::Pod, "a", &format!("swing{n}"))));
            }
        }
        assert!(world.step(4).is_none(), "turn {turn}");
        assert!(world.created().is_empty() && world.deleted().is_empty() && world.cordoned() == 0);
    }
}

#[test]
fn what_changes_in_one_pool_asks_nothing_about_another() {
    let mut world = World::new(json!({}));
    world.pool_named("q", json!({}), json!({}));
    for (pool, node) in [("p", "n0"), ("q", "n1")] {
        world.node_in(pool, node, "m.2", json!({}));
        let own = json!({"spec": {"nodeSelector": {"node-pool": pool}}});
        world.pod(&format!("pod-{node}"), node, 1800, own);
    }
    let search = world.search();
    assert_eq!(search.ask.constraints.keys().collect::<Vec<_>>(), ["p", "q"]);
    world.answer(&search);
    world.step(1);
    assert!(world.step(600).is_none(), "the same is asked again");
    // Its status was written.
    world.pool_named("q", json!({}), json!({}));
    assert!(world.step(600).is_none(), "what is said of a pool asks about it again");
    let own = json!({"metadata": {"uid": "another"}, "spec": {"nodeSelector": {"node-pool": "q"}}});
    world.pod("pod-n1", "n1", 1800, own);
    assert!(world.step(0).is_none());
    let search = world.step(6).unwrap();
    assert_eq!(search.ask.constraints.keys().collect::<Vec<_>>(), ["q"]);
}

#[test]
fn why_each_node_stays_is_said_on_its_claim() {
    let mut world = World::new(json!({}));
    // The pods of the first node fit nowhere else.
    for (node, kind, cpu, extra) in [
        ("n0", "m.4", 3800, json!({})),
        ("n1", "m.2", 1000, json!({"metadata": {"annotations": {"croft.dev/do-not-disrupt": "true"}}})),
        ("n2", "m.2", 1000, json!({"metadata": {"ownerReferences": []}})),
    ] {
        world.node(node, kind, json!({}));
        world.pod(&format!("pod-{node}"), node, cpu, extra);
    }
    world.node("n3", "m.2", json!({}));
    let mut said = BTreeMap::new();
    let search = world.search();
    said.extend(world.verdicts());
    world.answer(&search);
    for _ in 0..3 {
        world.step(1);
        said.extend(world.verdicts());
    }
    let said: Vec<(&str, &str, &str)> = said
        .iter()
        .map(|(claim, (status, reason))| (claim.as_str(), status.as_str(), reason.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("n0", "False", "NoSaving"),
            ("n1", "False", "PodDoNotDisrupt"),
            ("n2", "False", "BarePod"),
            ("n3", "True", "Empty"),
        ]
    );
}

#[test]
fn an_unchanged_cluster_asks_for_no_pass() {
    let mut world = World::new(json!({}));
    for pool in ["p", "q", "r", "s"] {
        world.pool_named(pool, json!({}), json!({}));
        world.node_in(pool, &format!("node-{pool}"), "m.2", json!({}));
        let own = json!({"spec": {"nodeSelector": {"node-pool": pool}}});
        world.pod(&format!("pod-{pool}"), &format!("node-{pool}"), 1800, own);
        // Pools that were looked at one after the other must not wake each other in turn.
        if let Some(search) = world.step(2) {
            world.answer(&search);
        }
    }
    for _ in 0..60 {
        if let Some(search) = world.step(1) {
            world.answer(&search);
        }
    }
    let (until, mut rounds) = (world.seconds + 3_600, 0);
    while world.seconds < until {
        let next = world.wake.map_or(3_600, |at| at.as_secs_f64().ceil() as u64 - world.seconds);
        if let Some(search) = world.step(next.max(1)) {
            world.answer(&search);
        }
        rounds += 1;
    }
    // The cloud's offers are asked for every minute, pools are looked at every five.
    assert!(rounds < 200, "{rounds} rounds of decisions in an hour");
}

#[test]
fn what_replaces_a_node_is_enough_for_kube_scheduler_which_knows_of_no_plan() {
    let mut world = World::new(json!({}));
    world.node("n0", "m.8", json!({}));
    world.pool(json!({"consolidateAfter": "Never"}), json!({"spec": {"expireAfter": "240h"}}));
    // 6 processors fill three instances of 2; the small pods, each bound to the emptiest, leave only one for the large.
    for (name, cpu) in [("pod0", 1000), ("pod1", 1000), ("pod2", 2000), ("pod3", 2000)] {
        world.pod(name, "n0", cpu, json!({}));
    }
    world.step(1);
    let created = world.created();
    let kinds = created.iter().filter_map(|claim| claim["spec"]["instanceTypes"][0].as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), ["m.2"; 4]);
    for claim in &created {
        let (name, kind) = (&claim["metadata"]["name"], &claim["spec"]["instanceTypes"][0]);
        let annotations = json!({"metadata": {"annotations": claim["metadata"]["annotations"]}});
        world.node(name.as_str().unwrap(), kind.as_str().unwrap(), annotations);
    }
    world.step(1);
    assert_eq!(world.deleted(), ["n0"]);
    assert!(world.told("DisruptionFailed").is_empty());
}

/// Reasons of Consolidatable that are written in the next seconds.
fn reasons_written_within(world: &mut World, seconds: u64) -> Vec<String> {
    let mut written = Vec::new();
    for _ in 0..seconds {
        if let Some(search) = world.step(1) {
            world.answer(&search);
        }
        written.extend(world.verdicts().into_values().map(|(_, reason)| reason));
    }
    written
}

#[test]
fn a_pod_disruption_budget_is_named_only_once_it_has_blocked_for_two_minutes() {
    let mut world = World::new(json!({}));
    world.node("n", "m.2", json!({}));
    world.pod("pod", "n", 1000, json!({}));
    world.budget(0);
    assert_eq!(reasons_written_within(&mut world, 110), [""; 0]);
    assert_eq!(reasons_written_within(&mut world, 20), ["PDBBlocked"]);
}

#[test]
fn another_reason_soon_after_the_first_is_said_once_it_lasts() {
    let mut world = World::new(json!({}));
    world.node("n", "m.2", json!({}));
    let kept = json!({"metadata": {"annotations": {"croft.dev/do-not-disrupt": "true"}}});
    world.pod("pod", "n", 1000, kept);
    assert_eq!(reasons_written_within(&mut world, 30), ["PodDoNotDisrupt"]);
    world.pod("pod", "n", 1000, json!({"metadata": {"ownerReferences": []}}));
    assert_eq!(reasons_written_within(&mut world, 590), [""; 0]);
    assert_eq!(reasons_written_within(&mut world, 60), ["BarePod"]);
}

#[test]
fn a_move_saves_the_eviction_cost_that_its_pool_says() {
    // All three pods on one m.4 save 1 $/h.
    let mut world = three_with(json!({"evictionCost": "4"}));
    assert_eq!(reasons_written_within(&mut world, 30), ["BelowMinSavings"; 3]);
    world.pool(json!({"evictionCost": "1"}), json!({}));
    let created = (0..30).any(|_| {
        let search = world.step(1);
        let created = !world.created().is_empty();
        search.inspect(|search| world.answer(search));
        created
    });
    assert!(created, "an edited cost is searched with at once");
}
