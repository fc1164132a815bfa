//! The status of a pool.

use croft_api::{Tenant, TenantPool, per_tenant::pool_of};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, ObjectId, Target, Verb},
};
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, condition, launched, pod, pool};

#[test]
fn what_is_said_of_a_pool_gives_way_to_the_plan_for_pods_that_have_just_come() {
    let mut bench = Bench::new();
    bench.decide(30);
    bench.see(58, claim(10, launched(&[]), false));
    bench.see(58, pod("a", None));
    let writes = |actions: &[Action]| {
        actions.iter().filter(|action| action.keys() == [Key::Pool("pool-a".to_owned())]).count()
    };
    let actions = bench.engine.step(at(60)).actions;
    assert_eq!(writes(&actions), 0, "names for the plan's claims are reserved on the same object");
}

#[test]
fn what_others_say_of_a_pool_is_left_as_it_is() {
    let mut bench = Bench::new();
    let mut said = pool(7, &json!({}));
    let conditions = json!({"conditions": [condition("Accepted", 0), condition("CollectionStopped", 0)]});
    said.status = serde_json::from_value(conditions).unwrap();
    bench.see(30, said);
    let writes: Vec<_> = bench
        .engine
        .step(at(60))
        .actions
        .into_iter()
        .filter_map(|action| match action {
            Action::Write { call, .. } => Some(call.verb),
            _ => None,
        })
        .collect();
    let [Verb::PatchStatus(patch)] = &writes[..] else { panic!("{writes:?}") };
    let kinds: Vec<_> = patch["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|condition| condition["type"].as_str().unwrap())
        .collect();
    assert!(kinds.contains(&"Accepted") && kinds.contains(&"Ready"), "{kinds:?}");
    assert!(!kinds.contains(&"CollectionStopped"), "what the engine itself says no more isn't so: {kinds:?}");
    assert_eq!(patch["metadata"]["resourceVersion"], "7", "a list of conditions is written as a whole");
}

fn tenant(name: &str) -> Tenant {
    let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
    let spec = json!({"namespaces": [name], "pools": ["pool-a"]});
    let kind =
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": metadata, "spec": spec});
    serde_json::from_value(kind).unwrap()
}

/// The writes of pools other than their statuses, by name.
fn pool_writes(actions: Vec<Action>) -> Vec<(String, Verb)> {
    let write = |action| match action {
        Action::Write { call, .. } => match (call.target, call.verb) {
            (Target::Pool(_), Verb::PatchStatus(_)) => None,
            (Target::Pool(name), verb) => Some((name, verb)),
            _ => None,
        },
        _ => None,
    };
    actions.into_iter().filter_map(write).collect()
}

#[test]
fn a_pool_for_many_tenants_makes_one_for_each_that_names_it() {
    let declared =
        json!({"key": "example.com/pool", "perTenant": true, "limits": {"nodes": 3}, "replicas": 2});
    let mut bench = Bench::with_pool(&declared);
    bench.see(1, tenant("shop"));
    let actions = bench.engine.step(at(1)).actions;
    assert!(
        !actions.iter().any(|a| matches!(a, Action::CreateClaims(_))),
        "the pool itself has no nodes: {actions:?}"
    );
    let writes = pool_writes(actions);
    let [(name, Verb::Create(made)), ..] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!(
        (name.as_str(), &made["spec"]["value"], &made["spec"]["replicas"]),
        ("pool-a-shop", &json!("shop"), &json!(2))
    );

    // The declared pool changes: the tenant's follows.
    let see = |bench: &mut Bench, seconds: u64, version: u64, limit: u32| {
        let mut parent = pool(version, &declared);
        parent.spec.limits.insert("nodes".to_owned(), serde_json::from_value(json!(limit)).unwrap());
        bench.see(seconds, (*parent).clone());
        (*parent).clone()
    };
    let parent: TenantPool = see(&mut bench, 10, 10, 3);
    let mut own = pool_of(&parent, "shop");
    own.metadata.uid = Some("own".to_owned());
    own.metadata.resource_version = Some("11".to_owned());
    own.metadata.finalizers = Some(vec!["croft.dev/pool".to_owned()]);
    bench.see(10, own.clone());
    assert_eq!(
        pool_writes(bench.engine.step(at(20)).actions).into_iter().find(|(name, _)| name == "pool-a-shop"),
        None
    );
    see(&mut bench, 30, 30, 5);
    let writes = pool_writes(bench.engine.step(at(30)).actions);
    let patch = writes.iter().find_map(|(name, verb)| match verb {
        Verb::Patch(patch) if name == "pool-a-shop" => Some(patch.clone()),
        _ => None,
    });
    let limits: Value = patch.as_ref().map(|patch| patch["spec"].clone()).unwrap_or_default();
    assert_eq!(limits, json!({"limits": {"nodes": 5}}), "{writes:?}");

    // Nobody names it any more: it is deleted, but not for a moment's absence.
    bench.see(60, Change::Gone(ObjectId::new(Kind::Tenant, "", "shop")));
    let deletes = |bench: &mut Bench, seconds: u64| {
        let writes = pool_writes(bench.engine.step(at(seconds)).actions);
        writes.iter().any(|(name, verb)| name == "pool-a-shop" && matches!(verb, Verb::Delete { .. }))
    };
    assert!(!deletes(&mut bench, 60) && !deletes(&mut bench, 65));
    assert!(deletes(&mut bench, 71));
}

#[test]
fn a_pool_that_has_the_name_by_chance_is_left_alone() {
    let mut bench = Bench::with_pool(&json!({"key": "example.com/pool", "perTenant": true}));
    let mut other = (*pool(5, &json!({"key": "example.com/other"}))).clone();
    other.metadata.name = Some("pool-a-shop".to_owned());
    other.metadata.uid = Some("other".to_owned());
    bench.see(1, other);
    bench.see(1, tenant("shop"));
    let actions = bench.engine.step(at(1)).actions;
    let is_touched = |(name, verb): &(String, Verb)| {
        name == "pool-a-shop" && !matches!(verb, Verb::Patch(patch) if patch.get("spec").is_none())
    };
    assert!(!pool_writes(actions.clone()).iter().any(is_touched), "{actions:?}");
    let told =
        actions.iter().any(|a| matches!(a, Action::RecordEvent(event) if event.reason == "PoolNameTaken"));
    assert!(told, "{actions:?}");
}
