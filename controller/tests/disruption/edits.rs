//! Effects of an edit of a pool on existing nodes and on later launches.

use croft_api::{Tenant, TenantPool, drift};
use croft_cloud::{CloudInstance, InstanceState};
use croft_controller::{
    action::Action,
    kube_api::{Change, Kind, ObjectId, Target, Verb},
    nodeclaim::launch_backoff::edit_hash,
    state::InstanceList,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::world::World;

/// Shows the pool `name` with `more` merged into the whole object.
fn edit(world: &mut World, name: &str, more: &Value) {
    let mut object = serde_json::to_value(&*world.engine.snapshot().pools()[name]).unwrap();
    object["metadata"]["resourceVersion"] = world.meta(name)["resourceVersion"].clone();
    croft_controller::merge_patch::apply(&mut object, more);
    world.observe(serde_json::from_value::<TenantPool>(object).unwrap());
}

fn tenant(world: &mut World, pools: &[&str]) {
    let object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": world.meta("a"),
        "spec": {"namespaces": ["a"], "pools": pools}});
    world.observe(serde_json::from_value::<Tenant>(object).unwrap());
}

/// A pool that waits for nothing but its first pod.
fn pool(world: &mut World, name: &str, created: &str, spec: &Value) {
    let mut meta = world.meta(name);
    meta["creationTimestamp"] = json!(created);
    let mut object = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": meta,
        "spec": {"key": "node-pool", "template": {"spec": {"nodeClassRef": {"name": "c"}}}},
        "status": {"conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
            "lastTransitionTime": created}]}});
    croft_controller::merge_patch::apply(&mut object["spec"], spec);
    world.observe(serde_json::from_value::<TenantPool>(object).unwrap());
}

/// The pools of the claims that are created within a few seconds.
fn launches(world: &mut World) -> Vec<String> {
    let mut pools = Vec::new();
    for _ in 0..5 {
        world.step(2);
        pools.extend(world.created().iter().map(|claim| claim["spec"]["pool"].as_str().unwrap().to_owned()));
    }
    pools
}

/// The conditions that a step writes on a pool.
fn conditions(world: &World, pool: &str) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for action in &world.actions {
        let Action::Write { call, .. } = action else { continue };
        let (Target::Pool(name), Verb::PatchStatus(patch)) = (&call.target, &call.verb) else { continue };
        for one in patch["status"]["conditions"].as_array().into_iter().flatten().filter(|_| name == pool) {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            all.push((text("type"), text("reason"), text("message")));
        }
    }
    all
}

/// The finalizers that a step writes on a pool.
fn finalizers(world: &World, pool: &str) -> Option<Vec<String>> {
    world.actions.iter().find_map(|action| {
        let Action::Write { call, .. } = action else { return None };
        let (Target::Pool(name), Verb::Patch(patch)) = (&call.target, &call.verb) else { return None };
        let list = patch["metadata"]["finalizers"].as_array().filter(|_| name == pool)?;
        Some(list.iter().map(|one| one.as_str().unwrap().to_owned()).collect())
    })
}

#[test]
fn a_requirement_under_another_name_of_a_label_drifts_no_node() {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    let wanted = json!({"key": "croft.dev/capacity-type", "operator": "In", "values": ["on-demand"]});
    world.pool(json!({"consolidateAfter": "Never"}), json!({"spec": {"requirements": [wanted]}}));
    world.node("n0", "m.2", json!({}));
    // As it was before Croft gave nodes that label.
    let mut node = json!({"metadata": world.meta("n0"), "spec": {"providerID": "aws:///zone-a/n0"}});
    let mut labels = world.engine.snapshot().nodes()["n0"].labels.clone();
    labels.remove("croft.dev/capacity-type");
    node["metadata"]["labels"] = json!(labels);
    node["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    world.observe(serde_json::from_value::<Node>(node).unwrap());
    world.pod("pod0", "n0", 1800, json!({}));
    for _ in 0..10 {
        world.step(6);
        assert!(world.created().is_empty() && world.deleted().is_empty(), "{:?}", world.actions);
        assert!(world.told("DisruptionStarted").is_empty());
    }
}

#[test]
fn a_node_that_would_not_meet_its_own_pool_is_not_launched() {
    for (key, said) in
        [("kubernetes.io/hostname", "kubernetes.io/hostname = n7"), ("kubernetes.io/os", "windows")]
    {
        let value = if key.ends_with("os") { "windows" } else { "n7" };
        let wanted = json!({"key": key, "operator": "In", "values": [value]});
        let mut world = World::new(json!({}));
        world.pool(json!({}), json!({"spec": {"requirements": [wanted]}}));
        world.pod("waits", "", 1000, json!({}));
        assert_eq!(launches(&mut world), Vec::<String>::new(), "{key}");
        world.step(100);
        let conditions = conditions(&world, "p");
        let valid = conditions.iter().find(|(kind, ..)| kind == "RequirementsValid");
        assert!(valid.is_some_and(|(_, _, message)| message.contains(said)), "{key}: {conditions:?}");
    }
}

#[test]
fn changed_effects_split_no_pool() {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    let snapshot = world.engine.snapshot();
    let stamp = drift::stamp(&snapshot.pools()["p"], &snapshot.classes()["c"].object);
    let annotated = json!({"metadata": {"annotations": {"croft.dev/launched-with": stamp}}});
    world.node("n0", "m.2", annotated);
    let exact = json!([{"key": "node-pool", "operator": "Equal", "value": "p", "effect": "NoSchedule"}]);
    world.pod("pod0", "n0", 1800, json!({"spec": {"tolerations": exact}}));
    world.step(0);
    assert!(world.created().is_empty(), "{:?}", world.actions);
    edit(&mut world, "p", &json!({"spec": {"effects": ["NoSchedule", "NoExecute"]}}));
    world.step(6);
    let made = world.created();
    assert_eq!(made.len(), 1, "its pod tolerates both effects once it is made again: {:?}", world.actions);
    assert_eq!(made[0]["metadata"]["annotations"]["croft.dev/replaces"], json!("n0"));
    assert!(world.told("DisruptionBlocked").is_empty());
}

#[test]
fn the_older_of_two_pools_with_one_label_counts_whatever_comes_first() {
    for younger_first in [true, false] {
        let mut world = World::new(json!({}));
        let now = world.now();
        world.engine.observe(Change::Gone(ObjectId::new(Kind::TenantPool, "", "p")), now);
        let mut both = [("old", "2026-01-01T00:00:00Z"), ("young", "2026-02-01T00:00:00Z")];
        if younger_first {
            both.reverse();
        }
        for (name, created) in both {
            pool(&mut world, name, created, &json!({"value": "p"}));
        }
        world.pod("waits", "", 1000, json!({}));
        assert_eq!(launches(&mut world), ["old"], "younger first: {younger_first}");
        let now = world.now();
        world.engine.observe(Change::Gone(ObjectId::new(Kind::TenantPool, "", "old")), now);
        world.pod("waits-too", "", 1000, json!({}));
        let pools = launches(&mut world);
        assert!(!pools.is_empty() && pools.iter().all(|pool| pool == "young"), "it takes over: {pools:?}");
    }
}

#[test]
fn a_pool_of_another_provisioner_keeps_its_nodes_as_they_are_and_can_be_taken_back() {
    let old = json!({"spec": {"expireAfter": "240h"}});
    let mut world = World::new(json!({}));
    for n in 0..3 {
        world.node(&format!("n{n}"), "m.8", json!({}));
    }
    world.pod("pod0", "n0", 1000, json!({}));
    world.pod("pod1", "n1", 1000, json!({}));
    world.pool(json!({}), old);
    edit(&mut world, "p", &json!({"spec": {"provisioner": "Karpenter"}}));
    let mut said = Vec::new();
    for _ in 0..30 {
        let search = world.step(5);
        assert!(
            search.is_none() && world.created().is_empty() && world.deleted().is_empty(),
            "{:?}",
            world.actions
        );
        assert_eq!(world.cordoned(), 0, "n2 is empty and stays");
        said.extend(conditions(&world, "p"));
    }
    let managed = said.iter().find(|(kind, ..)| kind == "NodesManaged");
    assert!(managed.is_some_and(|(.., message)| message.starts_with("3 nodes")), "{said:?}");
    assert!(said.iter().all(|(kind, ..)| kind != "Ready"), "it is not Croft's to launch for: {said:?}");
    edit(&mut world, "p", &json!({"spec": {"provisioner": "Croft"}}));
    let mut acted = false;
    for _ in 0..10 {
        world.step(5);
        acted |= !world.created().is_empty() || !world.deleted().is_empty() || world.cordoned() > 0;
    }
    assert!(acted, "back with Croft, its nodes are too old");
}

#[test]
fn a_changed_termination_grace_period_holds_for_nodes_that_are_there() {
    let mut world = World::new(json!({"consolidateAfter": "Never"}));
    let deleted = world.begun.to_string();
    world.node("n0", "m.8", json!({"metadata": {"deletionTimestamp": deleted}}));
    world.cordon("n0", true);
    world.pod("pod0", "n0", 1000, json!({}));
    world.budget(0);
    let ends = |world: &World| {
        world.actions.iter().any(|action| match action {
            Action::Write { call, .. } => {
                matches!((&call.target, &call.verb), (Target::Pod(..), Verb::Delete { .. }))
            }
            Action::Terminate { .. } => true,
            _ => false,
        })
    };
    for _ in 0..5 {
        world.step(10);
        assert!(!ends(&world), "nothing bounds its drain: {:?}", world.actions);
    }
    edit(&mut world, "p", &json!({"spec": {"template": {"spec": {"terminationGracePeriod": "1m"}}}}));
    let mut ended = false;
    for _ in 0..5 {
        world.step(10);
        ended |= ends(&world);
    }
    assert!(ended, "the new bound has long passed");
}

#[test]
fn a_deleted_pool_counts_until_no_tenant_names_it() {
    for provisioner in ["None", "Karpenter", "Croft"] {
        let mut world = World::new(json!({}));
        pool(&mut world, "q", "2026-01-01T00:00:00Z", &json!({"provisioner": provisioner}));
        edit(&mut world, "q", &json!({"metadata": {"finalizers": null}}));
        tenant(&mut world, &["q"]);
        world.step(1);
        assert_eq!(finalizers(&world, "q"), Some(vec!["croft.dev/pool".to_owned()]), "{provisioner}");
        let begun = world.begun.to_string();
        edit(
            &mut world,
            "q",
            &json!({"metadata": {"finalizers": ["croft.dev/pool"], "deletionTimestamp": begun}}),
        );
        let mut said = Vec::new();
        for _ in 0..5 {
            world.step(10);
            assert_eq!(finalizers(&world, "q"), None, "{provisioner}");
            said.extend(conditions(&world, "q"));
        }
        let waits = said.iter().find(|(kind, ..)| kind == "DeletionBlocked");
        assert!(
            waits.is_some_and(
                |(_, reason, message)| reason == "NamedByTenants" && message.contains("of a first")
            ),
            "{provisioner}: {said:?}"
        );
        // A Tenant that is deleted and created again is absent for a moment.
        let now = world.now();
        world.engine.observe(Change::Gone(ObjectId::new(Kind::Tenant, "", "a")), now);
        world.step(1);
        world.step(3);
        assert_eq!(finalizers(&world, "q"), None, "{provisioner}");
        if provisioner == "Croft" {
            an_instance_without_a_claim_holds(&mut world, "q");
        }
        world.step(10);
        assert_eq!(finalizers(&world, "q"), Some(Vec::new()), "{provisioner}");
    }
}

/// The cloud lists one instance of `pool`, which no claim has.
fn list(world: &mut World, pool: &str, state: InstanceState) {
    let (id, pool) = ("i-1".to_owned(), Some(pool.to_owned()));
    let instance = CloudInstance { id: id.clone(), state, pool, ..CloudInstance::default() };
    let list = InstanceList { asked: world.now(), instances: [(id, instance)].into() };
    world.engine.snapshot_mut().set_instances(list);
}

#[test]
fn a_deleted_pool_says_what_it_waits_for_and_asks_for_a_list_once_its_claims_are_gone() {
    let mut world = World::new(json!({}));
    pool(&mut world, "q", "2026-01-01T00:00:00Z", &json!({}));
    let begun = world.begun.to_string();
    edit(&mut world, "q", &json!({"metadata": {"deletionTimestamp": begun}}));
    // The list is from before the last instance was terminated.
    list(&mut world, "q", InstanceState::Running);
    world.step(1);
    let said = conditions(&world, "q");
    assert!(
        said.iter()
            .any(|(_, reason, message)| reason == "TenantMayReturn"
                && message.contains("named the pool for 10 s")),
        "{said:?}"
    );
    world.step(11);
    assert!(
        world.actions.iter().any(|action| matches!(action, Action::ListInstances)),
        "the next list by itself is due in 49 s: {:?}",
        world.actions
    );
    let said = conditions(&world, "q");
    assert!(
        said.iter().any(|(_, reason, message)| reason == "NodesRemaining"
            && message == "waits until the cloud has listed its instances"),
        "{said:?}"
    );
    list(&mut world, "q", InstanceState::Terminated);
    world.step(1);
    assert_eq!(finalizers(&world, "q"), Some(vec!["croft.dev/termination".to_owned()]), "all but its own");
}

/// An instance that lost its claim is adopted for its pool, and counts for it.
fn an_instance_without_a_claim_holds(world: &mut World, pool: &str) {
    let mut said = Vec::new();
    for _ in 0..8 {
        list(world, pool, InstanceState::Running);
        world.step(10);
        assert_eq!(finalizers(world, pool), None);
        said.extend(conditions(world, pool));
    }
    let waits = |(_, reason, message): &(String, String, String)| {
        reason == "NodesRemaining" && message.contains("instances without a NodeClaim")
    };
    assert!(said.iter().any(waits), "{said:?}");
    list(world, pool, InstanceState::Terminated);
}

#[test]
fn expired_nodes_are_replaced_one_by_one_while_launches_are_tried_one_at_a_time() {
    for (fails, expected) in [(false, 2), (true, 1)] {
        let mut world = World::new(json!({}));
        for node in ["n1", "n2"] {
            world.node(node, "m.8", json!({}));
            world.pod(&format!("pod-{node}"), node, 7000, json!({}));
        }
        world.pool(json!({"consolidateAfter": "Never"}), json!({"spec": {"expireAfter": "240h"}}));
        if fails {
            let now = world.now().wall.to_string();
            let hash = edit_hash(&world.engine.snapshot().pools()["p"]);
            let template = json!({"template": "", "stage": "Registration", "image": "", "rounds": 1, "until": now,
                "since": now, "last": "aws:///zone-a/i-1"});
            let backoff = json!({"templates": [template], "poolGeneration": hash, "classGeneration": 0});
            edit(&mut world, "p", &json!({"status": {"launchBackoff": backoff}}));
        }
        // Nothing has an effect in this world, so the first launches count.
        let mut created = 0;
        for _ in 0..10 {
            world.step(2);
            created = world.created().len();
            if created > 0 {
                break;
            }
        }
        assert_eq!(created, expected, "{fails}");
    }
}
