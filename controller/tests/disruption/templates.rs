//! A pool with several templates: launches by each, drift of nodes whose template is gone, expiry by the template of a node.

use croft_api::TenantPool;
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
    let pool = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": world.meta("p"),
        "spec": {"key": "node-pool", "disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]},
            "templates": templates},
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
