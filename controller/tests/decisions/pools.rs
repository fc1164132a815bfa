//! The status of a pool.

use croft_api::{
    Tenant, TenantPool,
    per_tenant::pool_of,
    stored::{self, Checked, Stored, Unread},
};
use croft_controller::{
    action::{Action, Key},
    kube_api::{Change, Kind, Object, ObjectId, Target, Verb, Version},
};
use serde_json::{Value, json};

use crate::bench::{Bench, at, claim, condition, launched, pod, pool, read};

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

/// The writes of a pass, which all succeed.
fn pass(bench: &mut Bench, seconds: u64) -> Vec<(String, Verb)> {
    let actions = bench.engine.step(at(seconds)).actions;
    for action in actions.iter().filter(|action| matches!(action, Action::Write { .. })) {
        bench.done(seconds, action, Vec::new());
    }
    pool_writes(actions)
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
    actions.iter().for_each(|action| bench.done(1, action, Vec::new()));
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
    assert_eq!(pass(&mut bench, 20).into_iter().find(|(name, _)| name == "pool-a-shop"), None);
    see(&mut bench, 30, 30, 5);
    let writes = pass(&mut bench, 30);
    let patch = writes.iter().find_map(|(name, verb)| match verb {
        Verb::Patch(patch) if name == "pool-a-shop" => Some(patch.clone()),
        _ => None,
    });
    let limits: Value = patch.as_ref().map(|patch| patch["spec"].clone()).unwrap_or_default();
    assert_eq!(limits, json!({"limits": {"nodes": "5"}}), "{writes:?}");

    // Nobody names it any more: it is deleted, but not for a moment's absence.
    bench.see(60, Change::Gone(ObjectId::new(Kind::Tenant, "", "shop")));
    let deletes = |bench: &mut Bench, seconds: u64| {
        let writes = pass(bench, seconds);
        writes.iter().any(|(name, verb)| name == "pool-a-shop" && matches!(verb, Verb::Delete { .. }))
    };
    assert!(!deletes(&mut bench, 60) && !deletes(&mut bench, 75) && !deletes(&mut bench, 119));
    assert!(deletes(&mut bench, 120));
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

/// The pool `pool-a-shop` as the API server has it.
fn made(version: u64, from: &TenantPool, is_being_deleted: bool) -> TenantPool {
    let mut own = pool_of(from, "shop");
    own.metadata.uid = Some("own".to_owned());
    own.metadata.resource_version = Some(version.to_string());
    own.metadata.finalizers = Some(vec!["croft.dev/pool".to_owned()]);
    let deleted = json!({"deletionTimestamp": "2026-05-28T00:00:00Z"});
    let deleted: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta =
        serde_json::from_value(deleted).unwrap();
    own.metadata.deletion_timestamp = deleted.deletion_timestamp.filter(|_| is_being_deleted);
    own
}

/// The writes of `pool-a-shop` in the passes from then on.
fn writes_of_made(bench: &mut Bench, seconds: &[u64]) -> Vec<Verb> {
    let steps = seconds.iter().flat_map(|seconds| pass(bench, *seconds));
    steps.filter(|(name, _)| name == "pool-a-shop").map(|(_, verb)| verb).collect()
}

/// The only version of an object that is known, which can't be read.
fn unread<K: stored::Kind>(object: Value) -> Change
where
    Object: From<Box<K>>,
{
    let stored: Box<Stored<K>> = read(object);
    let Unread { stand_in, flaw } = *stored.read(&mut Checked::default()).unwrap_err();
    Change::Version(Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(stand_in.unwrap())) })
}

fn declared() -> Value {
    json!({"key": "example.com/pool", "perTenant": true, "limits": {"nodes": 3}})
}

#[test]
fn a_made_pool_that_is_named_again_while_it_is_deleted_stays_in_line() {
    let mut bench = Bench::with_pool(&declared());
    bench.see(1, tenant("shop"));
    bench.see(1, made(10, &pool(3, &declared()), true));
    assert_eq!(writes_of_made(&mut bench, &[1]), []);
    let mut edited = pool(20, &declared());
    edited.spec.limits.insert("nodes".to_owned(), serde_json::from_value(json!(5)).unwrap());
    bench.see(2, edited);
    let writes = writes_of_made(&mut bench, &[2]);
    let is_edit = |verb: &Verb| matches!(verb, Verb::Patch(patch) if patch["spec"] == json!({"limits": {"nodes": "5"}}));
    assert!(writes.iter().any(is_edit), "{writes:?}");
}

#[test]
fn what_cannot_be_read_ends_no_made_pool_and_changes_none() {
    // As after a restart of the controller: no valid version of Tenant or pool is known.
    let mut bench = Bench::new();
    let mut spec = serde_json::to_value(&pool(3, &declared()).spec).unwrap();
    spec["template"] = json!({"spec": 5});
    bench.see(
        1,
        unread::<TenantPool>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": "pool-a", "uid": "again", "resourceVersion": "5", "generation": 1}, "spec": spec})),
    );
    bench.see(1, made(10, &pool(3, &declared()), false));
    bench.see(1, tenant("shop"));
    assert_eq!(writes_of_made(&mut bench, &[1, 20, 40]), [], "the pool that it was made from can't be read");

    bench.see(
        50,
        unread::<Tenant>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
            "metadata": {"name": "shop", "uid": "again", "resourceVersion": "50", "generation": 1},
            "spec": {"namespaces": ["shop"], "pools": 5}})),
    );
    assert_eq!(writes_of_made(&mut bench, &[50, 70, 90]), [], "the Tenant can't be read");
    bench.see(100, Change::Gone(ObjectId::new(Kind::Tenant, "", "shop")));
    let ended = writes_of_made(&mut bench, &[100, 160]);
    assert!(ended.iter().any(|verb| matches!(verb, Verb::Delete { .. })), "but its deletion is: {ended:?}");
}

#[test]
fn a_made_pool_goes_once_an_ordinary_one_has_the_name_that_its_tenant_names() {
    let mut bench = Bench::with_pool(&json!({"key": "example.com/other"}));
    bench.see(1, tenant("shop"));
    bench.see(1, made(10, &pool(3, &declared()), false));
    let writes = writes_of_made(&mut bench, &[1, 12]);
    assert!(writes.iter().any(|verb| matches!(verb, Verb::Delete { .. })), "{writes:?}");

    // But not while there is none of that name: it may come back.
    let mut bench = Bench::with_pool(&declared());
    bench.see(1, tenant("shop"));
    bench.see(1, made(10, &pool(3, &declared()), false));
    bench.see(1, Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a")));
    assert_eq!(writes_of_made(&mut bench, &[1, 12, 24]), []);
}
