//! A pool with several templates: launches by each, drift of nodes whose template is gone, expiry by the template of a node.

use croft_api::TenantPool;
use croft_controller::nodeclaim::launch_backoff::edit_hash;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::world::World;

fn template(name: &str, weight: u32, kind: &str, more: Value) -> Value {
    let mut template = json!({"name": name, "weight": weight, "metadata": {"labels": {"example.com/kind": name}},
        "spec": {"nodeClassRef": {"name": "c"}, "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [kind]}]}});
    croft_controller::merge_patch::apply(&mut template, &more);
    template
}

/// A world whose pool `p` has these templates.
fn world(templates: &[Value]) -> World {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    show(&mut world, templates);
    world
}

fn show(world: &mut World, templates: &[Value]) {
    show_with(world, templates, &json!({}));
}

/// The pool with `more` in its spec.
fn show_with(world: &mut World, templates: &[Value], more: &Value) {
    let mut spec = json!({"key": "node-pool", "templates": templates,
        "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}});
    croft_controller::merge_patch::apply(&mut spec, more);
    let pool = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": world.meta("p"), "spec": spec,
        "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": world.begun.to_string()}]},
    });
    world.observe(serde_json::from_value::<TenantPool>(pool).unwrap());
}

/// The claims that are created within a few seconds.
fn launched(world: &mut World) -> Vec<Value> {
    let mut claims = Vec::new();
    for _ in 0..5 {
        world.step(2);
        claims.extend(world.created());
    }
    claims
}

fn only(claims: &[Value]) -> &Value {
    assert_eq!(claims.len(), 1, "{claims:?}");
    &claims[0]
}

fn of(template: &str) -> Value {
    json!({"spec": {"labels": {"croft.dev/template": template, "example.com/kind": template}}})
}

#[test]
fn claim_is_what_its_template_says() {
    let expires = json!({"spec": {"terminationGracePeriod": "1h", "resources": [{"amounts": {"example.com/fuse": 2}}]}});
    let mut world = world(&[template("small", 0, "m.2", json!({})), template("large", 10, "m.8", expires)]);
    world.pod("waits", "", 1000, json!({}));
    let claims = launched(&mut world);
    let claim = only(&claims);
    let spec = &claim["spec"];
    assert_eq!(spec["instanceTypes"], json!(["m.8"]), "the heavier template comes before the cheaper one");
    assert_eq!(spec["labels"]["croft.dev/template"], "large");
    assert_eq!(spec["labels"]["example.com/kind"], "large");
    assert_eq!(spec["terminationGracePeriod"], "1h");
    assert_eq!(spec["resources"], json!([{"amounts": {"example.com/fuse": "2"}}]));
}

#[test]
fn declared_resources_are_planned_with() {
    let fuse = json!({"spec": {"resources": [{"amounts": {"example.com/fuse": 2}}]}});
    let mut world = world(&[template("plain", 10, "m.2", json!({})), template("fuse", 0, "m.2", fuse)]);
    let asks =
        json!({"spec": {"containers": [{"name": "c", "resources": {"limits": {"example.com/fuse": "1"}}}]}});
    for name in ["a", "b", "c"] {
        world.pod(name, "", 100, asks.clone());
    }
    let claims = launched(&mut world);
    let templates: Vec<&Value> =
        claims.iter().map(|claim| &claim["spec"]["labels"]["croft.dev/template"]).collect();
    assert_eq!(templates, ["fuse", "fuse"], "two of three pods share the first");
}

#[test]
fn nodes_of_a_template_that_is_gone_are_replaced() {
    let mut world = world(&[template("a", 10, "m.2", json!({})), template("b", 0, "m.2", json!({}))]);
    world.node("n0", "m.2", of("a"));
    world.node("n1", "m.2", of("b"));
    world.pod("pod0", "n0", 1800, json!({}));
    world.pod("pod1", "n1", 1800, json!({}));
    assert!(launched(&mut world).is_empty(), "{:?}", world.actions);
    // In another order, they are the same.
    show(&mut world, &[template("b", 0, "m.2", json!({})), template("a", 10, "m.2", json!({}))]);
    assert!(launched(&mut world).is_empty(), "{:?}", world.actions);
    show(&mut world, &[template("c", 10, "m.2", json!({})), template("b", 0, "m.2", json!({}))]);
    let made = launched(&mut world);
    let claim = only(&made);
    assert_eq!(claim["metadata"]["annotations"]["croft.dev/replaces"], json!("n0"));
    assert_eq!(claim["spec"]["labels"]["croft.dev/template"], "c");
}

#[test]
fn node_expires_by_its_own_template() {
    let soon = json!({"spec": {"expireAfter": "1h"}});
    let mut world = world(&[template("a", 10, "m.2", json!({})), template("b", 0, "m.2", soon)]);
    world.node("n0", "m.2", of("a"));
    world.node("n1", "m.2", of("b"));
    world.pod("pod0", "n0", 1800, json!({}));
    world.pod("pod1", "n1", 1800, json!({}));
    // The picture never shows the replacement, so it may be asked for again.
    let made = launched(&mut world);
    let replaced = |claim: &Value| claim["metadata"]["annotations"]["croft.dev/replaces"].clone();
    assert!(!made.is_empty() && made.iter().all(|claim| replaced(claim) == "n1"), "{made:?}");
}

#[test]
fn node_of_a_fixed_size_that_fills_a_share_is_replaced_within_it() {
    let fixed = json!({"replicas": 1, "spec": {"expireAfter": "1h"}});
    let templates = [template("a", 10, "m.2", json!({})), template("b", 0, "m.2", fixed)];
    let mut world = world(&templates);
    show_with(&mut world, &templates, &json!({"shares": [{"template": "b", "max": "50%"}]}));
    world.node("n0", "m.2", of("a"));
    world.node("n1", "m.2", of("b"));
    world.pod("pod0", "n0", 1800, json!({}));
    let made = launched(&mut world);
    let replaced = |claim: &Value| claim["metadata"]["annotations"]["croft.dev/replaces"].clone();
    assert!(!made.is_empty() && made.iter().all(|claim| replaced(claim) == "n1"), "{made:?}");
}

#[test]
fn node_that_cannot_be_replaced_holds_up_no_others() {
    let soon = json!({"spec": {"expireAfter": "1h"}});
    // It may have no second node, so that its only one can't be replaced.
    let fixed = json!({"replicas": 1, "limits": {"nodes": 1}, "spec": {"expireAfter": "1h"}});
    let mut world = world(&[template("fixed", 10, "m.2", fixed), template("free", 0, "m.4", soon)]);
    world.node("n0", "m.2", of("fixed"));
    world.node("n1", "m.4", of("free"));
    world.pod("pod0", "n0", 1800, json!({}));
    world.pod("pod1", "n1", 1800, json!({}));
    let made = launched(&mut world);
    let of_n1 = |claim: &Value| claim["metadata"]["annotations"]["croft.dev/replaces"] == "n1";
    assert!(!made.is_empty() && made.iter().all(of_n1), "{made:?}");
}

#[test]
fn nodes_that_a_budget_keeps_hold_up_no_nodes_of_another_reason() {
    let mut world = World::new(json!({}));
    let old = json!({"spec": {"expireAfter": "1h"}});
    let templates = [
        template("heavy", 10, "m.8", json!({})),
        template("old", 10, "m.4", old),
        template("light", 0, "m.2", json!({})),
    ];
    let budget = json!({"nodes": "0", "reasons": ["Expired"]});
    let more = json!({"return": {"policy": "Eagerly"}, "disruption": {"budgets": [budget]}});
    show_with(&mut world, &templates, &more);
    world.node("n0", "m.4", of("old"));
    world.node("n1", "m.2", of("light"));
    world.pod("pod0", "n0", 3500, json!({}));
    world.pod("pod1", "n1", 1000, json!({}));
    world.step(0);
    world.step(610);
    let made = world.created();
    assert_eq!(only(&made)["metadata"]["annotations"]["croft.dev/replaces"], "n1");
}

/// A world with a node of template `light`, whose pod the heavier and dearer template `heavy` could hold.
fn outweighed(policy: &str, pod: Value) -> World {
    let mut world = World::new(json!({}));
    let templates = [template("heavy", 10, "m.8", json!({})), template("light", 0, "m.2", json!({}))];
    show_with(&mut world, &templates, &json!({"return": {"policy": policy}}));
    world.node("n0", "m.2", of("light"));
    world.pod("pod0", "n0", 1000, pod);
    world
}

#[test]
fn nodes_return_to_a_heavier_template_that_has_launched_without_failure_for_a_while() {
    for (policy, returns) in [("Never", false), ("WhenConsolidating", false), ("Eagerly", true)] {
        let mut world = outweighed(policy, json!({}));
        world.step(0);
        world.step(590);
        assert!(world.created().is_empty(), "{policy}: {:?}", world.actions);
        world.step(20);
        let made = world.created();
        assert_eq!(made.len(), usize::from(returns), "{policy}: {:?}", world.actions);
        for claim in made {
            assert_eq!(claim["metadata"]["annotations"]["croft.dev/replaces"], "n0");
            assert_eq!(claim["metadata"]["annotations"]["croft.dev/disruption-reason"], "Outweighed");
            assert_eq!(claim["spec"]["labels"]["croft.dev/template"], "heavy");
        }
    }
}

#[test]
fn a_failed_launch_of_the_heavier_template_makes_its_wait_start_anew() {
    let mut world = outweighed("Eagerly", json!({}));
    let mut pool = serde_json::to_value(&*world.engine.snapshot().pools()["p"]).unwrap();
    let hash = edit_hash(&world.engine.snapshot().pools()["p"]);
    let until = world.now().wall.checked_add(SignedDuration::from_secs(300)).unwrap();
    let failed = json!({"template": "heavy", "stage": "Registration", "image": "", "rounds": 1,
        "until": until.to_string(), "since": world.begun.to_string(), "last": "aws:///zone-a/i-1"});
    pool["metadata"] = world.meta("p");
    pool["status"]["launchBackoff"] =
        json!({"templates": [failed], "poolGeneration": hash, "classGeneration": 0});
    world.observe(serde_json::from_value::<TenantPool>(pool).unwrap());
    world.step(0);
    world.step(650);
    assert!(world.created().is_empty(), "it was held until five minutes ago: {:?}", world.actions);
    world.step(610);
    assert_eq!(world.created().len(), 1, "{:?}", world.actions);
}

#[test]
fn a_node_whose_pods_fit_in_no_heavier_template_stays_without_a_warning() {
    let pinned = json!({"spec": {"nodeSelector": {"croft.dev/template": "light"}}});
    let mut world = outweighed("Eagerly", pinned);
    for _ in 0..5 {
        world.step(310);
        assert!(world.created().is_empty() && world.deleted().is_empty(), "{:?}", world.actions);
        assert!(world.told("DisruptionBlocked").is_empty(), "{:?}", world.actions);
    }
}

#[test]
fn nodes_that_find_no_room_give_way_to_those_that_were_not_tried() {
    let mut world = World::new(json!({}));
    let templates = [template("heavy", 10, "m.8", json!({})), template("light", 0, "m.2", json!({}))];
    let more =
        json!({"return": {"policy": "Eagerly", "after": "5s"}, "disruption": {"budgets": [{"nodes": "1"}]}});
    show_with(&mut world, &templates, &more);
    world.node("n0", "m.2", of("light"));
    world.node("n1", "m.2", of("light"));
    world.pod("pod0", "n0", 1500, json!({"spec": {"nodeSelector": {"croft.dev/template": "light"}}}));
    world.pod("pod1", "n1", 1500, json!({}));
    let mut created = Vec::new();
    for _ in 0..10 {
        world.step(6);
        created.extend(world.created());
    }
    let of_n1 = |claim: &Value| claim["metadata"]["annotations"]["croft.dev/replaces"] == "n1";
    assert!(!created.is_empty() && created.iter().all(of_n1), "{created:?}");
}

#[test]
fn nodes_return_to_no_other_pool() {
    let anywhere = json!({"spec": {"nodeSelector": null}});
    let mut world = outweighed("Eagerly", anywhere);
    let full = json!({"limits": {"nodes": 0}});
    let templates = [template("heavy", 10, "m.8", full), template("light", 0, "m.2", json!({}))];
    show_with(&mut world, &templates, &json!({"return": {"policy": "Eagerly"}}));
    world.pool_named("q", json!({"consolidateAfter": "Never"}), json!({}));
    world.step(0);
    for _ in 0..3 {
        world.step(310);
        assert!(world.created().is_empty() && world.deleted().is_empty(), "{:?}", world.actions);
    }
}

#[test]
fn a_node_that_a_share_needs_does_not_return() {
    for (shares, gone) in [(json!([]), 1), (json!([{"template": "light", "minNodes": 1}]), 0)] {
        let mut world = World::new(json!({}));
        let templates = [template("heavy", 10, "m.8", json!({})), template("light", 0, "m.2", json!({}))];
        show_with(&mut world, &templates, &json!({"return": {"policy": "Eagerly"}, "shares": shares}));
        world.node("n0", "m.2", of("light"));
        // It has room for the pod of the other.
        world.node("n1", "m.8", of("heavy"));
        world.pod("pod0", "n0", 1000, json!({}));
        world.pod("pod1", "n1", 1000, json!({}));
        world.step(0);
        world.step(610);
        assert_eq!(world.deleted().len(), gone, "{shares}: {:?}", world.actions);
        assert!(world.told("DisruptionBlocked").is_empty(), "{:?}", world.actions);
    }
}

#[test]
fn budgets_hold_for_returns_by_their_own_reason() {
    for (reason, created) in [("Outweighed", 0), ("Drifted", 1)] {
        let mut world = outweighed("Eagerly", json!({}));
        let templates = [template("heavy", 10, "m.8", json!({})), template("light", 0, "m.2", json!({}))];
        let budget = json!({"nodes": "0", "reasons": [reason]});
        let more = json!({"return": {"policy": "Eagerly"}, "disruption": {"budgets": [budget]}});
        show_with(&mut world, &templates, &more);
        world.step(0);
        world.step(610);
        assert_eq!(world.created().len(), created, "{reason}: {:?}", world.actions);
    }
}

/// The template of what consolidation launches in the place of a node by `own`, if it launches anything.
fn consolidated(policy: &str, templates: &[Value], own: &str) -> Option<String> {
    let mut world = World::new(json!({}));
    let more = json!({"return": {"policy": policy},
        "disruption": {"consolidateAfter": "5s", "preference": "Cheapest"}});
    show_with(&mut world, templates, &more);
    world.node("n0", "m.8", of(own));
    world.pod("pod0", "n0", 1000, json!({}));
    let search = world.search();
    world.answer(&search);
    world.step(1);
    let made = world.created();
    made.first().map(|claim| claim["spec"]["labels"]["croft.dev/template"].as_str().unwrap().to_owned())
}

#[test]
fn consolidation_launches_a_heavier_node_unless_the_pool_never_returns() {
    let both = json!({"spec": {"requirements": [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m.2", "m.8"]}]}});
    for (policy, light, expected) in [
        ("WhenConsolidating", json!({}), Some("heavy")),
        ("Eagerly", json!({}), Some("heavy")),
        ("Never", json!({}), None),
        ("Never", both, Some("light")),
    ] {
        let templates = [template("heavy", 10, "m.2", json!({})), template("light", 0, "m.8", light)];
        assert_eq!(consolidated(policy, &templates, "light").as_deref(), expected, "{policy}");
    }
}

#[test]
fn consolidation_launches_no_lighter_node_that_would_return_at_once() {
    let full = json!({"limits": {"nodes": 1}});
    let templates = [template("heavy", 10, "m.8", full), template("light", 0, "m.2", json!({}))];
    for (policy, expected) in [("WhenConsolidating", Some("light")), ("Eagerly", None)] {
        assert_eq!(consolidated(policy, &templates, "heavy").as_deref(), expected, "{policy}");
    }
}
