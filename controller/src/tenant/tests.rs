//! Changes in, actions out.

use std::ops::{Deref, DerefMut};

use croft_api::{CroftConfig, Tenant, TenantPool};
use croft_policy::{
    Mutation,
    definitions::{
        POOL_NAME_LABEL,
        parameter::{MUTATION, POOL_KEYS},
    },
    node::NodeRepair,
    policies,
    replica_status::{ObservedGenerations, ReplicaStatus},
};
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;
use crate::{
    action::Key,
    kube_api::{Change, Kind, Object, ObjectId, ObjectKey, ObjectKind, Target, Verb, Version},
    state::Snapshot,
    tenant::mutation,
    time::Now,
};

#[path = "objects/tests.rs"]
mod object_tests;

#[path = "objects/created_test.rs"]
mod created_test;

#[path = "absence_test.rs"]
mod absence_test;

const NOW: Duration = Duration::from_secs(100);

fn read<T: DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).unwrap())
}

fn tenant(name: &str, created: &str, namespaces: &[&str], pools: &[&str]) -> Change {
    tenant_object(name, created, namespaces, pools).into()
}

fn tenant_object(name: &str, created: &str, namespaces: &[&str], pools: &[&str]) -> Box<Tenant> {
    read(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": name, "uid": format!("uid-of-{name}-"), "generation": 1, "creationTimestamp": created},
        "spec": {"namespaces": namespaces, "pools": pools},
    }))
}

fn namespace(name: &str, labels: Value, annotations: Value) -> Change {
    Change::from(read::<Namespace>(
        json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}}),
    ))
}

fn pod(namespace: &str, name: &str, spec: Value, owner: Option<&str>) -> Change {
    pod_object(namespace, name, spec, owner).into()
}

fn pod_object(namespace: &str, name: &str, spec: Value, owner: Option<&str>) -> Box<Pod> {
    let mut pod =
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": {"containers": []}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    if let Some(kind) = owner {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": kind, "controller": true}]);
    }
    read(pod)
}

/// The deletion of an object that Croft keeps for a tenant.
fn gone_object(key: &ObjectKey) -> Change {
    Change::Gone(ObjectId::new(Kind::TenantObject(key.kind), &key.namespace, &key.name))
}

/// The facts, with the snapshot that they go with.
struct State {
    facts: crate::tenant::state::State,
    snapshot: Snapshot,
}

impl State {
    fn new(namespace: &str) -> Self {
        Self { facts: crate::tenant::state::State::new(namespace), snapshot: Snapshot::default() }
    }

    fn observe(&mut self, change: &Change) -> bool {
        let corrected = self.snapshot.observe_validity(change);
        let new = self.facts.observe(change, self.snapshot.invalid_objects(), NOW);
        self.snapshot.observe(change.clone(), Now { wall: Timestamp::UNIX_EPOCH, mono: NOW });
        new || corrected
    }
}

impl Deref for State {
    type Target = crate::tenant::state::State;

    fn deref(&self) -> &Self::Target {
        &self.facts
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.facts
    }
}

fn reconcile(state: &mut State, mono: Duration, wall: Timestamp) -> Vec<Action> {
    state.snapshot.expire_config(Now { wall, mono });
    super::reconcile(&mut state.facts, &state.snapshot, mono, wall)
}

/// Two tenants with one pool and one node each; every write is done.
fn reconciled_state() -> State {
    let mut state = State::new("croft-system");
    let pool = |name: &str, provisioner: &str| {
        Change::from(read::<TenantPool>(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"key": "node-pool", "provisioner": provisioner},
        })))
    };
    let node = |name: &str, pool: &str| {
        Change::from(read::<Node>(
            json!({"metadata": {"name": name, "labels": {"node-pool": pool, POOL_NAME_LABEL: pool}},
                "spec": {"taints": [{"key": "node-pool", "value": pool, "effect": "NoSchedule"}]}}),
        ))
    };
    let expected_metadata =
        |pool: &str| json!({POOLS_ANNOTATION: format!("node-pool={pool}:NoSchedule:{pool}")});
    for change in [
        pool("pool-a", "None"),
        pool("pool-b", "None"),
        tenant("a", "2026-01-01T00:00:00Z", &["tenant-a"], &["pool-a"]),
        tenant("b", "2026-01-02T00:00:00Z", &["tenant-b"], &["pool-b"]),
        namespace("tenant-a", json!({}), expected_metadata("pool-a")),
        namespace("tenant-b", json!({}), expected_metadata("pool-b")),
        namespace("non-tenant", json!({TENANCY_LABEL: "none"}), json!({})),
        namespace("kube-system", json!({}), json!({})),
        namespace("croft-system", json!({}), json!({})),
        node("a-1", "pool-a"),
        node("b-1", "pool-b"),
    ] {
        state.observe(&change);
    }
    for document in policies::documents("croft-system") {
        policy(&mut state, document);
    }
    let mut seen = ObservedGenerations::default();
    seen.insert("uid-of-a-", 1);
    seen.insert("uid-of-b-", 1);
    state.observe_replica("r", ReplicaStatus { observed: seen, ..ReplicaStatus::default() }, NOW);
    for _ in 0..4 {
        write(&mut state);
    }
    state
}

/// A policy or a binding, as the API server has it.
fn policy(state: &mut State, document: Value) {
    let kind = match document["kind"].as_str() {
        Some("ValidatingAdmissionPolicy") => Kind::ValidatingAdmissionPolicy,
        Some("ValidatingAdmissionPolicyBinding") => Kind::ValidatingAdmissionPolicyBinding,
        other => panic!("{other:?}"),
    };
    state.observe(&Object::Json(kind, Box::new(document)).into());
}

/// Applies the writes of one pass to the state.
fn write(state: &mut State) -> Vec<Action> {
    let actions = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
    for action in &actions {
        match action {
            Action::ProbeParameters { revision, .. } => state.parameters.confirm(revision),
            Action::Write { key: Key::Parameters, .. } => drop(write_parameters(state, action)),
            _ => write_status(state, action),
        }
    }
    for (pool, statements) in state.pool_statements.clone() {
        let mut object = TenantPool::clone(&state.pools[&pool]);
        let conditions = &mut object.status.get_or_insert_default().conditions;
        for statement in statements {
            croft_api::condition::set(conditions, statement, None, Time(Timestamp::UNIX_EPOCH));
        }
        state.observe(&Change::from(object));
    }
    actions
}

/// What an action writes.
fn written(action: &Action) -> Option<(&Target, &Verb)> {
    let Action::Write { call, .. } = action else { return None };
    Some((&call.target, &call.verb))
}

/// Applies a write of the parameters to the state. Returns the annotations that it writes.
fn write_parameters(state: &mut State, action: &Action) -> Option<Map<String, Value>> {
    let Action::Write { key: Key::Parameters, call, .. } = action else { return None };
    let (Target::Namespace(own), Verb::Patch(patch)) = (&call.target, &call.verb) else { return None };
    let patch = patch["metadata"]["annotations"].as_object().unwrap().clone();
    let mut annotations = json!(state.parameters.written.clone().unwrap_or_default());
    annotations.as_object_mut().unwrap().extend(patch.clone());
    state.observe(&namespace(own, json!({}), annotations));
    Some(patch)
}

/// Applies a write of a Tenant's status to the state.
fn write_status(state: &mut State, action: &Action) {
    if let Some((Target::Tenant(tenant), Verb::PatchStatus(patch))) = written(action) {
        let mut object = json!(&*state.tenants[tenant]);
        crate::merge_patch::apply(&mut object, patch);
        state.observe(&Change::from(read::<Tenant>(object)));
    }
}

/// The reasons and notes of a write's events.
fn events_of(action: &Action) -> Vec<(String, String)> {
    let Action::Write { events, .. } = action else { return Vec::new() };
    events.iter().map(|event| (event.reason.to_string(), event.note.clone())).collect()
}

fn key_texts(actions: &[Action]) -> Vec<String> {
    actions.iter().map(key_text).collect()
}

fn is_namespace_write(action: &Action) -> bool {
    matches!(action, Action::Write { key: Key::Namespace(_), .. })
}

/// True if an action deletes or evicts a pod.
fn ends_pod(action: &Action) -> bool {
    matches!(written(action), Some((Target::Pod(..), _)))
}

/// The object of an action, as text.
fn key_text(action: &Action) -> String {
    match action.keys().into_iter().next() {
        Some(Key::Parameters) => "parameters".to_owned(),
        Some(Key::Namespace(name)) => format!("namespace {name}"),
        Some(Key::Node(name)) => format!("node {name}"),
        Some(Key::Tenant(name)) => format!("tenant {name}"),
        Some(Key::DaemonSet(namespace, name)) => format!("daemonset {namespace}/{name}"),
        Some(Key::Pod(pod)) => format!("pod {}", pod.name),
        other => format!("{other:?}"),
    }
}

/// The patch of the namespace `wanted`.
fn patch_of<'w>(writes: &'w [Action], wanted: &str) -> Option<&'w Value> {
    writes.iter().filter(|write| is_namespace_write(write)).find_map(|write| match written(write) {
        Some((Target::Namespace(name), Verb::Patch(patch))) if name == wanted => Some(patch),
        _ => None,
    })
}

fn condition_of(state: &State, tenant: &str, kind: &str) -> (String, String) {
    let status = state.tenants[tenant].status.clone().unwrap();
    let condition = status.conditions.into_iter().find(|c| c.type_ == kind).unwrap();
    (condition.status, condition.message)
}

#[test]
fn reconciled_state_needs_no_write() {
    let mut state = reconciled_state();
    assert_eq!(key_texts(&reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH)), Vec::<String>::new());
    for kind in ["Accepted", "Ready", "Isolated"] {
        assert_eq!(condition_of(&state, "a", kind).0, "True", "{kind}");
    }
}

#[test]
fn status_counts_what_the_tenant_has_and_names_its_pools_as_text() {
    let mut state = reconciled_state();
    state.observe(&tenant("a", "2026-01-01T00:00:00Z", &["tenant-a"], &["pool-a", "pool-b"]));
    state.observe(&pod("tenant-a", "web", json!({}), None));
    write(&mut state);
    let status = state.tenants["a"].status.clone().unwrap();
    assert_eq!(status.pool_names.as_deref(), Some("pool-a,pool-b"));
    assert_eq!([status.namespace_count, status.pods, status.nodes], [Some(1), Some(1), Some(2)]);
}

#[test]
fn foreign_changes_of_labels_and_parameters_are_reverted() {
    let mut state = reconciled_state();
    state.observe(&namespace("tenant-a", json!({TENANCY_LABEL: "none"}), json!({})));
    state.observe(&namespace("fresh", json!({}), json!({})));
    state.observe(&namespace("croft-system", json!({}), json!({POOL_KEYS: "other"})));
    let keys = key_texts(&reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH));
    for key in ["parameters", "namespace tenant-a", "namespace fresh"] {
        assert!(keys.contains(&key.to_owned()), "{key}: {keys:?}");
    }
    write(&mut state);
    assert_eq!(condition_of(&state, "a", "Ready").0, "False", "not before its namespaces are labelled");
}

#[test]
fn missing_or_changed_policy_makes_tenants_not_ready() {
    let mut state = reconciled_state();
    let documents = policies::documents("croft-system");
    let name = documents[0]["metadata"]["name"].as_str().unwrap().to_owned();
    state.observe(&Change::Gone(ObjectId::new(Kind::ValidatingAdmissionPolicyBinding, "", &name)));
    write(&mut state);
    let (status, message) = condition_of(&state, "a", "Ready");
    assert!(status == "False" && message.contains(&name), "{message}");
    documents.iter().for_each(|document| policy(&mut state, document.clone()));
    write(&mut state);
    assert_eq!(condition_of(&state, "a", "Ready").0, "True");
    let further = json!([{"name": "not-jane", "expression": "request.userInfo.username != 'jane'"}]);
    for (field, value) in [("failurePolicy", json!("Ignore")), ("matchConditions", further)] {
        let mut loosened = documents[0].clone();
        loosened["spec"][field] = value;
        policy(&mut state, loosened);
        write(&mut state);
        assert_eq!(condition_of(&state, "a", "Ready").0, "False", "{field}");
    }
}

#[test]
fn pool_is_accepted_once_the_policies_know_it() {
    let mut state = reconciled_state();
    let accepted = |state: &State, pool: &str| {
        let conditions = state.pools[pool].status.clone().unwrap_or_default().conditions;
        conditions.into_iter().find(|c| c.type_ == "Accepted").map(|c| (c.status, c.reason)).unwrap()
    };
    for (name, key) in [("new", "new-key"), ("plain", POOL_NAME_LABEL), ("known", "node-pool")] {
        state.observe(&Change::from(read::<TenantPool>(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name, "creationTimestamp": "2026-02-01T00:00:00Z"}, "spec": {"key": key},
        }))));
    }
    state.observe(&tenant("c", "2026-01-03T00:00:00Z", &["c"], &["new"]));
    let mut seen = ObservedGenerations::default();
    for name in ["a", "b", "c"] {
        seen.insert(&format!("uid-of-{name}-"), 1);
    }
    state.observe_replica("r", ReplicaStatus { observed: seen, ..ReplicaStatus::default() }, NOW);

    // The parameter is written, but no probe has seen it in force.
    let actions = write(&mut state);
    assert!(actions.iter().any(|a| written(a).is_some() && key_text(a) == "parameters"), "{actions:?}");
    for pool in ["new", "plain", "known"] {
        assert_eq!(accepted(&state, pool), ("False".to_owned(), "KeyNotInForce".to_owned()), "{pool}");
    }
    assert_eq!(condition_of(&state, "c", "Ready").0, "False");
    assert_eq!(condition_of(&state, "a", "Ready").0, "True", "tenants whose keys are in force stay ready");
    let probe = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let probe = probe.into_iter().find_map(|action| match action {
        Action::ProbeParameters { revision, .. } => Some(revision),
        _ => None,
    });
    let again = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert!(again.iter().any(|a| matches!(a, Action::ProbeParameters { .. })), "probed until it is in force");
    assert_eq!(accepted(&state, "new").0, "False");

    state.parameters.confirm(&probe.unwrap());
    write(&mut state);
    assert_eq!(["new", "plain", "known"].map(|pool| accepted(&state, pool).0), ["True"; 3]);
    assert_eq!(condition_of(&state, "c", "Ready").0, "True");
}

#[test]
fn restarted_controller_keeps_conditions_until_its_probe_is_answered() {
    let mut state = reconciled_state();
    state.parameters.in_force = None;
    let actions = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert!(matches!(actions.as_slice(), [Action::ProbeParameters { .. }]), "{actions:?}");
}

#[test]
fn nothing_is_written_without_a_tenant_or_before_every_replica_is_ready() {
    let touched = |state: &mut State| -> Vec<String> {
        let actions = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        let is_outside = |a: &&Action| {
            is_namespace_write(a) || ends_pod(a) || matches!(written(a), Some((Target::DaemonSet(..), _)))
        };
        actions.iter().filter(is_outside).map(key_text).collect()
    };
    let others = |state: &mut State| {
        state.observe(&namespace("tenant-a", json!({}), json!({})));
        state.observe(&namespace("non-tenant", json!({}), json!({})));
        state.observe(&namespace("croft-system", json!({}), json!({})));
        let bare = json!({"tolerations": [{"operator": "Exists"}]});
        state.observe(&pod("non-tenant", "waits", bare.clone(), Some("ReplicaSet")));
        state.observe(&Change::from(read::<DaemonSet>(json!({
            "metadata": {"name": "d", "namespace": "non-tenant"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "tolerations": bare["tolerations"]}}},
        }))));
    };
    let mut state = reconciled_state();
    others(&mut state);
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "b")));
    assert!(touched(&mut state).is_empty(), "there is no tenant");

    let mut state = reconciled_state();
    others(&mut state);
    state.observe_replica("starting", ReplicaStatus::default(), NOW);
    assert!(touched(&mut state).is_empty(), "a replica isn't ready");
    state.observe(&Change::Gone(ObjectId::new(Kind::WebhookReplica, "", "starting")));
    assert!(!touched(&mut state).is_empty());
}

#[test]
fn younger_claim_and_missing_pool_are_not_accepted() {
    let mut state = reconciled_state();
    state.observe(&tenant("c", "2026-01-03T00:00:00Z", &["tenant-a", "kube-system"], &["pool-a"]));
    state.observe(&tenant("d", "2026-01-03T00:00:00Z", &["d"], &["gone"]));
    let told: Vec<_> = write(&mut state)
        .iter()
        .flat_map(|action| events_of(action).into_iter().map(move |(reason, _)| (key_text(action), reason)))
        .collect();
    let expected = [("tenant c", "NamespaceConflict"), ("tenant d", "PoolNotFound")];
    assert_eq!(told, expected.map(|(tenant, reason)| (tenant.to_owned(), reason.to_owned())));
    assert!(
        condition_of(&state, "c", "Accepted").1.contains("exempt"),
        "{:?}",
        condition_of(&state, "c", "Accepted")
    );
    assert!(condition_of(&state, "d", "Ready").1.contains("gone"));
    assert_eq!(condition_of(&state, "a", "Accepted").0, "True", "nothing else stops");
}

#[test]
fn tenant_is_told_why_it_has_no_pool_of_one_for_many() {
    let mut state = reconciled_state();
    let pool = |name: &str, created: &str, spec: Value| {
        Change::from(read::<TenantPool>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name, "creationTimestamp": created}, "spec": spec})))
    };
    state.observe(&pool("dev", "2026-01-02T00:00:00Z", json!({"key": "k", "perTenant": true})));
    state.observe(&tenant("d", "2026-01-03T00:00:00Z", &["d"], &["dev"]));
    let said = |state: &mut State| {
        write(state);
        condition_of(state, "d", "Accepted").1
    };
    assert!(said(&mut state).contains("is being made from TenantPool dev"), "{}", said(&mut state));
    state.observe(&pool("dev-d", "2026-01-02T00:00:00Z", json!({"key": "other"})));
    assert!(said(&mut state).contains("another TenantPool is called dev-d"), "{}", said(&mut state));
    state.observe(&pool("taken", "2026-01-02T00:00:00Z", json!({"key": "k", "value": "d"})));
    let own = json!({"key": "k", "value": "d", "forTenant": {"pool": "dev", "tenant": "d"}});
    state.observe(&pool("dev-d", "2026-01-03T00:00:00Z", own));
    assert!(said(&mut state).contains("has the label of the older TenantPool taken"), "{}", said(&mut state));
}

#[test]
fn pool_with_the_label_of_an_older_pool_is_not_accepted() {
    let mut state = reconciled_state();
    let accepted_of = |state: &State, pool: &str| {
        let conditions = state.pools[pool].status.clone().unwrap().conditions;
        conditions.into_iter().find(|c| c.type_ == "Accepted").map(|c| (c.status, c.message)).unwrap()
    };
    assert_eq!(accepted_of(&state, "pool-a").0, "True");
    state.observe(&Change::from(read::<TenantPool>(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
        "metadata": {"name": "twin", "creationTimestamp": "2026-02-01T00:00:00Z"},
        "spec": {"key": "node-pool", "value": "pool-a", "provisioner": "None"},
    }))));
    write(&mut state);
    assert_eq!(state.pool_statements["twin"][0].reason, "LabelTaken");
    let (status, message) = accepted_of(&state, "twin");
    assert!(status == "False" && message.contains("older TenantPool pool-a"), "{message}");
    assert_eq!(accepted_of(&state, "pool-a").0, "True");
    assert_eq!(state.violations[&Violation::PoolCollides], 1);
    assert_eq!(key_texts(&reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH)), Vec::<String>::new());
}

#[test]
fn pool_with_a_template_that_gives_the_label_of_another_pool_is_not_accepted() {
    let mut state = reconciled_state();
    let template = |labels: Value, requirements: Value| {
        json!({"name": "x", "metadata": {"labels": labels},
            "spec": {"nodeClassRef": {"name": "c"}, "requirements": requirements}})
    };
    let plain = template(json!({}), json!([]));
    let required = json!([{"key": "node-pool", "operator": "In", "values": ["z", "pool-b"]}]);
    for (name, spec, is_taken) in [
        ("several", json!({"templates": [plain, template(json!({"node-pool": "pool-b"}), json!([]))]}), true),
        ("one", json!({"template": template(json!({"node-pool": "pool-b"}), json!([]))}), true),
        ("required", json!({"templates": [template(json!({}), required)]}), true),
        ("of-no-pool", json!({"template": template(json!({"node-pool": "z"}), json!([]))}), false),
    ] {
        let mut pool = json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name, "creationTimestamp": "2026-02-01T00:00:00Z"}, "spec": spec});
        pool["spec"]["key"] = json!("other-key");
        state.observe(&Change::from(read::<TenantPool>(pool)));
        write(&mut state);
        let conditions = state.pools[name].status.clone().unwrap_or_default().conditions;
        let taken = conditions.iter().find(|c| c.type_ == "Accepted" && c.reason == "LabelTaken");
        let names_it = "the label node-pool=pool-b of TenantPool pool-b";
        let is_named = taken.is_some_and(|c| c.status == "False" && c.message.contains(names_it));
        assert_eq!(is_named, is_taken, "{name}: {conditions:?}");
    }
}

#[test]
fn nodes_that_admit_other_pods_are_counted_and_named() {
    let mut state = reconciled_state();
    assert!(state.violations.values().all(|count| *count == 0), "{:?}", state.violations);
    state.observe(&Change::from(read::<Node>(
        json!({"metadata": {"name": "a-2", "labels": {"node-pool": "pool-a", POOL_NAME_LABEL: "pool-a"}}}),
    )));
    write(&mut state);
    assert_eq!(state.violations[&Violation::NodeUntainted], 1);
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert!(
        status == "False" && message.contains("1 nodes of its pools admit pods of others (a-2)"),
        "{message}"
    );
    assert_eq!(condition_of(&state, "b", "Isolated").0, "True");
    // The pool is deleted: a node with its labels is in no pool.
    state.observe(&Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a")));
    write(&mut state);
    assert_eq!(state.violations[&Violation::NodeOfNoPool], 2, "a-1 and a-2");
    state.observe(&Change::Gone(ObjectId::new(Kind::Node, "", "a-2")));
    write(&mut state);
    assert_eq!(state.violations[&Violation::NodeOfNoPool], 1);
}

#[test]
fn tenant_is_ready_when_every_live_replica_has_observed_it() {
    let mut state = reconciled_state();
    state.observe_replica("late", ReplicaStatus::default(), NOW);
    write(&mut state);
    let (status, message) = condition_of(&state, "a", "Ready");
    assert!(status == "False" && message.contains("late"), "{message}");
    // It has caught up, but API servers can't reach it, so it enforces nothing.
    let seen = ["a", "b"].map(|name| (format!("uid-of-{name}-"), 1));
    let mut report = ReplicaStatus {
        certificate_error: Some("the Secret isn't there".to_owned()),
        ..ReplicaStatus::default()
    };
    seen.iter().for_each(|(uid, generation)| report.observed.insert(uid, *generation));
    state.observe_replica("late", report, NOW);
    write(&mut state);
    let (status, message) = condition_of(&state, "a", "Ready");
    assert!(
        status == "False" && message.contains("late of croft-webhook: the Secret isn't there"),
        "{message}"
    );
    // Neither replica reports any more: nothing is enforced.
    let actions = reconcile(&mut state, NOW + Duration::from_secs(60), Timestamp::UNIX_EPOCH);
    actions.iter().for_each(|action| write_status(&mut state, action));
    for tenant in ["a", "b"] {
        assert!(condition_of(&state, tenant, "Ready").1.contains("no replica of croft-webhook"));
    }
}

#[test]
fn equal_pending_pods_of_one_owner_share_one_copy() {
    let mut state = State::new("croft-system");
    for (name, spec) in [
        ("first", json!({"nodeSelector": {"a": "b"}})),
        ("same", json!({"nodeSelector": {"a": "b"}})),
        ("other", json!({"nodeSelector": {"a": "c"}})),
    ] {
        state.observe(&pod("tenant-a", name, spec, Some("ReplicaSet")));
    }
    let held = |name: &str| state.pods[&("tenant-a".to_owned(), name.to_owned())].waiting.clone().unwrap();
    assert!(std::sync::Arc::ptr_eq(&held("first"), &held("same")));
    let selector = |name: &str| held(name).spec.clone().unwrap().node_selector.unwrap()["a"].clone();
    assert_eq!([selector("first"), selector("same"), selector("other")], ["b", "b", "c"]);
}

#[test]
fn pods_older_than_their_tenant_are_recreated_or_reported() {
    let mut state = reconciled_state();
    for change in [
        pod("tenant-a", "waits", json!({}), Some("ReplicaSet")),
        pod("tenant-a", "bare", json!({}), None),
        pod("tenant-a", "gated", json!({"schedulingGates": [{"name": "g"}]}), Some("ReplicaSet")),
        pod("tenant-a", "agent", json!({}), Some("DaemonSet")),
        pod("tenant-a", "placed", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
        pod("tenant-a", "outside", json!({"nodeName": "b-1"}), Some("StatefulSet")),
        pod("non-tenant", "inside", json!({"nodeName": "a-1"}), Some("StatefulSet")),
        pod("non-tenant", "fine", json!({}), Some("ReplicaSet")),
        pod("kube-system", "exempt", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
    ] {
        state.observe(&change);
    }
    let recreations = |actions: Vec<Action>| -> Vec<String> {
        actions.iter().filter(|a| ends_pod(a)).map(key_text).collect()
    };
    assert_eq!(recreations(write(&mut state)), ["pod waits"]);
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert_eq!(status, "False");
    for part in [
        "1 pods outside",
        "tenant-a/outside on node b-1",
        "1 pods of others",
        "non-tenant/inside",
        "4 pods waiting",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    state.observe(&recreating());
    // The namespace may have a Tenant that is absent for a moment.
    assert_eq!(recreations(at(&mut state, 0)), ["pod waits", "pod outside"]);
    assert_eq!(recreations(at(&mut state, 60)), ["pod waits", "pod inside", "pod outside"]);
    // Without a webhook they would be recreated unchanged.
    state.replicas.clear();
    assert_eq!(recreations(reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH)), Vec::<String>::new());
}

/// Runs a pass so many seconds later, with a live webhook.
fn at(state: &mut State, seconds: u64) -> Vec<Action> {
    let now = NOW + Duration::from_secs(seconds);
    state.replicas.values_mut().for_each(|replica| replica.heard_at = now);
    reconcile(state, now, Timestamp::UNIX_EPOCH)
}

fn evicted(actions: &[Action]) -> Vec<String> {
    let name = |action: &Action| match written(action) {
        Some((Target::Pod(_, name), Verb::Evict { .. })) => Some(name.clone()),
        _ => None,
    };
    actions.iter().filter_map(name).collect()
}

fn deletions_and_evictions(actions: &[Action]) -> Vec<String> {
    let deletions_and_evictions =
        |a: &&Action| ends_pod(a) || matches!(written(a), Some((Target::DaemonSet(..), Verb::Patch(_))));
    actions.iter().filter(deletions_and_evictions).map(key_text).collect()
}

#[test]
fn brief_absence_of_a_tenant_or_pool_deletes_no_pod() {
    let mut state = reconciled_state();
    state.observe(&recreating());
    let in_pool = || {
        json!({"nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}]})
    };
    for n in 0..10 {
        let mut spec = in_pool();
        spec["nodeName"] = json!("a-1");
        state.observe(&pod("tenant-a", &format!("web-{n}"), spec, Some("ReplicaSet")));
    }
    state.observe(&pod("tenant-a", "waits", in_pool(), Some("ReplicaSet")));
    state.observe(&Change::from(read::<DaemonSet>(json!({
        "metadata": {"name": "agent", "namespace": "tenant-a"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [], "nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"operator": "Exists"}]}}},
    }))));
    assert_eq!(deletions_and_evictions(&at(&mut state, 100)), Vec::<String>::new());
    let gone = |state: &mut State, kind: &str| match kind {
        "Tenant" => state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a"))),
        _ => state.observe(&Change::Gone(ObjectId::new(Kind::TenantPool, "", "pool-a"))),
    };
    let pool = (*state.pools["pool-a"]).clone();
    for kind in ["Tenant", "TenantPool"] {
        gone(&mut state, kind);
        for seconds in [200, 201, 259] {
            assert_eq!(
                deletions_and_evictions(&at(&mut state, seconds)),
                Vec::<String>::new(),
                "{kind} missing, second {seconds}"
            );
        }
        state.observe(&tenant("a", "2026-01-01T00:00:00Z", &["tenant-a"], &["pool-a"]));
        state.observe(&pool.clone().into());
        assert_eq!(deletions_and_evictions(&at(&mut state, 260)), Vec::<String>::new(), "{kind} is back");
    }
    // The absence is confirmed: no Tenant names the pool, so its pods violate nothing.
    gone(&mut state, "Tenant");
    at(&mut state, 300);
    assert_eq!(evicted(&at(&mut state, 400)), Vec::<String>::new());
    // Another Tenant gets the pool: they are evicted, few at a time.
    state.observe(&Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", "waits")));
    state.observe(&tenant("b", "2026-01-02T00:00:00Z", &["tenant-b"], &["pool-b", "pool-a"]));
    assert_eq!(evicted(&at(&mut state, 401)), ["web-0"]);
}

#[test]
fn misplaced_pods_are_evicted_few_at_a_time_after_earlier_ones_run_again() {
    let mut state = reconciled_state();
    state.observe(&recreating());
    let on = |node: &str, name: &str, more: Value| {
        let object = pod_object(
            "tenant-a",
            name,
            json!({"nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}]}),
            Some("StatefulSet"),
        );
        let mut value = serde_json::to_value(&object).unwrap();
        value["spec"]["nodeName"] = json!(node);
        crate::merge_patch::apply(&mut value, &more);
        Change::from(read::<Pod>(value))
    };
    for n in 0..20 {
        state.observe(&on("b-1", &format!("web-{n:02}"), json!({})));
    }
    assert_eq!(evicted(&at(&mut state, 0)), ["web-00", "web-01"], "a tenth");
    assert_eq!(evicted(&at(&mut state, 1)), Vec::<String>::new(), "the watch doesn't show the deletions yet");
    // A PodDisruptionBudget blocks both: others are tried.
    assert_eq!(evicted(&at(&mut state, 6)), ["web-02", "web-03"]);
    for name in ["web-02", "web-03"] {
        state.observe(&on("b-1", name, json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    }
    assert_eq!(evicted(&at(&mut state, 60)), Vec::<String>::new(), "two evictions are in flight");
    // Evicted, and the recreated pods are pending.
    for name in ["web-02", "web-03"] {
        state.observe(&Change::Gone(ObjectId::new(Kind::Pod, "tenant-a", name)));
        state.observe(&on("", &format!("{name}-again"), json!({})));
    }
    write(&mut state);
    assert_eq!(evicted(&at(&mut state, 120)), Vec::<String>::new(), "two are not running again");
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert!(
        status == "False" && message.contains("no more than 2 pods are evicted at once, and 2"),
        "{message}"
    );
    state.observe(&on("a-1", "web-02-again", json!({})));
    assert_eq!(evicted(&at(&mut state, 180)).len(), 1);
}

#[test]
fn pod_whose_owner_may_not_recreate_it_is_reported_only() {
    let mut state = reconciled_state();
    state.observe(&recreating());
    for (owner, kind) in [("job", "Job"), ("set", "CloneSet")] {
        state.observe(&pod("tenant-a", &format!("{owner}-waits"), json!({}), Some(kind)));
        state.observe(&pod("tenant-a", &format!("{owner}-runs"), json!({"nodeName": "b-1"}), Some(kind)));
    }
    assert_eq!(deletions_and_evictions(&write(&mut state)), Vec::<String>::new());
    assert_eq!(deletions_and_evictions(&at(&mut state, 100)), Vec::<String>::new());
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert_eq!(status, "False");
    for part in ["tenant-a/job-waits of Job o", "tenant-a/set-runs of CloneSet o", "recreate their owners"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn pods_from_before_their_tenant_get_one_event_each_that_names_no_pool_of_others() {
    let mut state = reconciled_state();
    for change in [
        pod("tenant-a", "alone", json!({"nodeName": "b-1"}), None),
        pod("tenant-a", "waits", json!({}), Some("Job")),
        pod("non-tenant", "agent", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
    ] {
        state.observe(&change);
    }
    let notices = |state: &mut State, seconds: u64| -> Vec<UserEvent> {
        let event = |action: Action| match action {
            Action::RecordEvent(event) => Some(event),
            _ => None,
        };
        at(state, seconds).into_iter().filter_map(event).collect()
    };
    let due = notices(&mut state, 400);
    let note = |name: &str| {
        let found = due.iter().find(|notice| notice.regarding.name.as_deref() == Some(name));
        found.unwrap_or_else(|| panic!("{name}: {due:?}")).note.clone()
    };
    assert_eq!(due.len(), 3, "{due:?}");
    assert!(note("alone").contains("outside the pools of its tenant a (pool-a)"), "{}", note("alone"));
    assert!(note("alone").contains("since it has no controller"), "{}", note("alone"));
    assert!(note("waits").contains("not pinned to pool pool-a"), "{}", note("waits"));
    assert!(note("agent").contains("isn't open to namespace non-tenant"), "{}", note("agent"));
    assert!(!note("agent").contains("pool-a") && !note("alone").contains("pool-b"), "{due:?}");
    assert!(notices(&mut state, 420).is_empty(), "each is told once");
}

#[test]
fn unplanned_daemonsets_are_touched() {
    let mut state = reconciled_state();
    let daemonset = |namespace: &str, selector: Value| {
        Change::from(read::<DaemonSet>(json!({
            "metadata": {"name": "d", "namespace": namespace},
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "nodeSelector": selector}}},
        })))
    };
    state.observe(&daemonset("tenant-a", json!({})));
    state.observe(&daemonset("non-tenant", json!({})));
    // The DaemonSet would be refused, with or without a touch.
    state.observe(&daemonset("tenant-b", json!({"node-pool": "pool-a"})));
    let touched = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert_eq!(key_texts(&touched), ["daemonset tenant-a/d"]);
    assert!(matches!(written(&touched[0]), Some((_, Verb::Patch(patch))) if *patch == json!({})));
}

#[test]
fn node_of_another_provisioner_gets_label_and_taint_in_one_write_and_leaves_by_its_label() {
    let mut state = reconciled_state();
    let taint = json!({"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"});
    let node = |labels: Value, taints: Value| {
        Change::from(read::<Node>(
            json!({"metadata": {"name": "a-2", "labels": labels}, "spec": {"taints": taints}}),
        ))
    };
    let missing = |pool_name: Option<&str>, taints: usize| {
        let taint = croft_policy::taint::Taint {
            key: "node-pool".to_owned(),
            value: "pool-a".to_owned(),
            effect: croft_policy::taint::Effect::NoSchedule,
        };
        NodeRepair {
            pool_name: pool_name.map(str::to_owned),
            taints: vec![taint; taints],
            is_starting: false,
        }
    };
    // The patch of the node, and the reasons of events.
    let of_node = |state: &mut State| -> (Option<Verb>, Vec<String>) {
        let actions = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        let patch = actions.iter().find(|a| key_text(a) == "node a-2").and_then(written);
        let events = actions.iter().filter_map(|a| match a {
            Action::RecordEvent(event) => Some(event.reason.to_string()),
            _ => None,
        });
        (patch.map(|(_, verb)| verb.clone()), events.collect())
    };
    let repaired = |state: &State, missing: &NodeRepair| {
        Some(Verb::JsonPatch(node_patch::repair_membership(&state.snapshot.nodes()["a-2"], missing)))
    };
    state.observe(&node(json!({"node-pool": "pool-a"}), json!([])));
    assert_eq!(of_node(&mut state), (repaired(&state, &missing(Some("pool-a"), 1)), Vec::new()));
    let labelled = json!({"node-pool": "pool-a", POOL_NAME_LABEL: "pool-a"});
    state.observe(&node(labelled.clone(), json!([taint])));
    assert_eq!(of_node(&mut state), (None, Vec::new()));
    // The taint is removed: it is written again.
    state.observe(&node(labelled.clone(), json!([])));
    assert_eq!(of_node(&mut state), (repaired(&state, &missing(Some("pool-a"), 1)), Vec::new()));
    state.observe(&node(labelled, json!([taint])));
    // The pool's label is removed: the node leaves the pool, and its pool-name label is removed.
    state.observe(&node(json!({POOL_NAME_LABEL: "pool-a"}), json!([taint])));
    let left = vec!["NodeLeftPool".to_owned()];
    assert_eq!(of_node(&mut state), (repaired(&state, &missing(None, 0)), left));
    state.observe(&node(json!({}), json!([taint])));
    assert_eq!(of_node(&mut state), (None, Vec::new()));
}

#[test]
fn mirror_pod_on_a_foreign_node_is_reported_and_not_evicted() {
    let mut state = reconciled_state();
    let mirror = |namespace: &str, name: &str, node: &str| {
        let mut pod = pod_object(namespace, name, json!({"nodeName": node}), Some("Node"));
        let annotation = (croft_policy::definitions::MIRROR_ANNOTATION.to_owned(), "hash".to_owned());
        pod.metadata.annotations = Some([annotation].into());
        Change::from(pod)
    };
    for (namespace, name, node) in
        [("tenant-a", "foreign", "b-1"), ("tenant-a", "own", "a-1"), ("non-tenant", "platform", "a-1")]
    {
        state.observe(&mirror(namespace, name, node));
    }
    state.observe(&recreating());
    let actions = write(&mut state);
    assert!(!actions.iter().any(ends_pod), "{actions:?}");
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert!(status == "False" && message.contains("tenant-a/foreign"), "{message}");
    assert_eq!(condition_of(&state, "b", "Isolated").0, "True");
}

/// The DaemonSet `name` of `namespace` after admission has planned it, with `more` merged into it.
fn planned_daemonset(state: &mut State, namespace: &str, name: &str, more: &Value) -> Box<DaemonSet> {
    let mut object = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "7", "generation": 1},
        "spec": {"selector": {}, "template": {"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}}},
    });
    let read: DaemonSet = serde_json::from_value(object.clone()).unwrap();
    let view = state.view();
    let planned =
        croft_policy::plan_daemonset(&view, namespace, &croft_api::convert::policy::daemonset(&read));
    let patch: json_patch::Patch = serde_json::from_str(&planned.patch.into_json()).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    crate::merge_patch::apply(&mut object, more);
    self::read(object)
}

fn recreating() -> Change {
    Change::from(read::<CroftConfig>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
        "metadata": {"name": "default"}, "spec": {"misplaced": "Recreate"}})))
}

fn exempting(namespaces: &[&str]) -> Change {
    Change::from(read::<CroftConfig>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
        "metadata": {"name": "default"}, "spec": {"exemptNamespaces": namespaces}})))
}

#[test]
fn pending_pods_of_a_lost_pool_are_recreated_for_the_new_one() {
    let mut state = reconciled_state();
    let pinned = || {
        json!({"nodeSelector": {"node-pool": "pool-a"},
            "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}]})
    };
    for (name, owner) in [("web", Some("ReplicaSet")), ("bare", None), ("agent", Some("DaemonSet"))] {
        state.observe(&pod("tenant-a", name, pinned(), owner));
    }
    let first = write(&mut state);
    assert!(
        first.iter().all(|action| key_text(action) == "tenant a"),
        "they wait for a node of their pool: {first:?}"
    );
    // The two tenants swap their pools.
    let swapped = [("a", "2026-01-01T00:00:00Z", "pool-b"), ("b", "2026-01-02T00:00:00Z", "pool-a")];
    for (name, created, pool) in swapped {
        state.observe(&tenant(name, created, &[&format!("tenant-{name}")], &[pool]));
    }
    let recreated = |actions: &[Action]| -> Vec<String> {
        let is_deletion = |a: &&Action| matches!(written(a), Some((Target::Pod(..), Verb::Delete { .. })));
        actions.iter().filter(is_deletion).map(key_text).collect()
    };
    assert_eq!(recreated(&write(&mut state)), ["pod web"]);
    let (status, message) = condition_of(&state, "a", "Isolated");
    assert!(status == "False" && message.contains("tenant-a/bare"), "{message}");
    // A deleted tenant: pods of its namespace must not wait for a node of another tenant's pool.
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    let namespace_of_none = namespace("tenant-a", json!({TENANCY_LABEL: "none"}), json!({}));
    state.observe(&namespace_of_none);
    let later = NOW + Duration::from_secs(600);
    state.replicas.values_mut().for_each(|replica| replica.heard_at = later);
    assert_eq!(recreated(&reconcile(&mut state, later, Timestamp::UNIX_EPOCH)), Vec::<String>::new());
    let confirmed = later + Duration::from_secs(60);
    state.replicas.values_mut().for_each(|replica| replica.heard_at = confirmed);
    assert_eq!(recreated(&reconcile(&mut state, confirmed, Timestamp::UNIX_EPOCH)), ["pod web"]);
    // A tenant whose only pool does not exist: a new pod would be refused, so the old one is reported only.
    state.observe(&tenant("a", "2026-01-01T00:00:00Z", &["tenant-a"], &["missing"]));
    assert_eq!(recreated(&write(&mut state)), Vec::<String>::new());
}

#[test]
fn brief_absence_of_the_croftconfig_ends_no_exemption() {
    let mut state = reconciled_state();
    let agent = planned_daemonset(&mut state, "non-tenant", "agent", &json!({}));
    let text = serde_json::to_string(&agent.spec).unwrap();
    assert!(text.contains("croft.dev/injected") && text.contains("DoesNotExist"), "{text}");
    state.observe(&exempting(&["non-tenant"]));
    // An unplanned DaemonSet in an exempt namespace.
    let plain = json!({"metadata": {"name": "agent", "namespace": "non-tenant", "uid": "agent", "resourceVersion": "6"},
        "spec": {"selector": {}, "template": {"spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}}}});
    state.observe(&Change::from(read::<DaemonSet>(plain)));
    assert!(daemonset_writes(&mut state, NOW).is_empty());
    state.observe(&Change::Gone(ObjectId::new(Kind::CroftConfig, "", "default")));
    assert!(daemonset_writes(&mut state, NOW).is_empty());
    let soon = NOW + Duration::from_secs(59);
    for replica in state.replicas.values_mut() {
        replica.heard_at = NOW + Duration::from_secs(60);
    }
    assert!(daemonset_writes(&mut state, soon).is_empty(), "a deleted CroftConfig may be recreated");
    let touched = daemonset_writes(&mut state, NOW + Duration::from_secs(60));
    assert_eq!(key_texts(&touched), ["daemonset non-tenant/agent"]);
    assert!(matches!(written(&touched[0]), Some((_, Verb::Patch(_)))), "{touched:?}");
    // Admission has planned it; then the namespace is exempt again.
    state.observe(&agent.clone().into());
    state.observe(&exempting(&["non-tenant"]));
    let restored = daemonset_writes(&mut state, NOW + Duration::from_secs(70));
    let Some((_, Verb::JsonPatch(patch))) = restored.first().and_then(written) else {
        panic!("{restored:?}")
    };
    let mut object = serde_json::to_value(&agent).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(patch.clone()).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    assert_eq!(object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"], json!({}));
    assert_eq!(object["spec"]["template"]["metadata"]["annotations"], json!({}));
    let mut other = serde_json::to_value(&agent).unwrap();
    other["metadata"]["resourceVersion"] = json!("8");
    assert!(
        json_patch::patch(&mut other, &patch).is_err(),
        "it holds for the version that it was made from only"
    );
}

fn daemonset_writes(state: &mut State, at: Duration) -> Vec<Action> {
    let mut actions = reconcile(state, at, Timestamp::UNIX_EPOCH);
    actions.retain(|action| key_text(action).starts_with("daemonset "));
    actions
}

#[test]
fn daemonsets_are_written_few_at_a_time() {
    let mut state = reconciled_state();
    let daemonset = |n: usize, status: Value| {
        let name = format!("agent-{n}");
        Change::from(read::<DaemonSet>(json!({
            "metadata": {"name": name, "namespace": "tenant-a", "generation": 2}, "status": status,
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "nodeSelector": {}}}},
        })))
    };
    let rolling = json!({"observedGeneration": 2, "desiredNumberScheduled": 9, "updatedNumberScheduled": 3,
        "numberAvailable": 8, "currentNumberScheduled": 9, "numberMisscheduled": 0, "numberReady": 8});
    let mut done = rolling.clone();
    crate::merge_patch::apply(&mut done, &json!({"updatedNumberScheduled": 9, "numberAvailable": 9}));
    (0..12).for_each(|n| {
        state.observe(&daemonset(n, done.clone()));
    });
    let at = |seconds: u64| NOW + Duration::from_secs(seconds);
    state.replicas.values_mut().for_each(|replica| replica.heard_at = at(300));
    let first = key_texts(&daemonset_writes(&mut state, at(0)));
    assert_eq!(first.len(), 5, "{first:?}");
    assert!(daemonset_writes(&mut state, at(1)).is_empty(), "their rollouts are not observed yet");
    (0..12).filter(|n| first.contains(&format!("daemonset tenant-a/agent-{n}"))).for_each(|n| {
        state.observe(&daemonset(n, rolling.clone()));
    });
    assert!(daemonset_writes(&mut state, at(60)).is_empty(), "their rollouts are in flight");
    let second = key_texts(&daemonset_writes(&mut state, at(121)));
    assert_eq!(second.len(), 5, "an endless rollout blocks no other");
    assert!(second.iter().all(|key| !first.contains(key)), "{second:?} after {first:?}");
}

#[test]
fn younger_tenant_that_loses_a_namespace_by_its_selector_is_not_accepted() {
    let mut state = reconciled_state();
    let mut younger = tenant_object("c", "2026-01-03T00:00:00Z", &[], &["pool-b"]);
    let selector = json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]});
    younger.spec.namespace_selector = Some(serde_json::from_value(selector).unwrap());
    state.observe(&younger.into());
    write(&mut state);
    assert_eq!(condition_of(&state, "c", "Accepted").0, "True");
    state.observe(&namespace(
        "tenant-a",
        json!({"team": "x"}),
        json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a"}),
    ));
    write(&mut state);
    let (status, message) = condition_of(&state, "c", "Accepted");
    assert!(
        status == "False" && message.contains("spec.namespaceSelector or spec.namespaceCreation matches"),
        "{message}"
    );
    assert!(message.contains("namespace tenant-a") && message.contains("older Tenant a"), "{message}");
    assert_eq!(condition_of(&state, "a", "Accepted").0, "True");
}

#[test]
fn mode_is_switched_while_the_other_still_acts() {
    let mut state = reconciled_state();
    let later = |seconds: u64| NOW + Duration::from_secs(seconds);
    let settings = |mode: &str| {
        Change::from(read::<CroftConfig>(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
            "metadata": {"name": "default"}, "spec": {"admission": {"mutation": mode}}})))
    };
    // The mode that a pass writes, if it writes one, and the reason of the condition.
    let pass = |state: &mut State, at: Duration| {
        let actions = reconcile(state, at, Timestamp::UNIX_EPOCH);
        let patch = actions.iter().find_map(|action| write_parameters(state, action));
        let wrote = patch.and_then(|patch| Some(patch.get(MUTATION)?.as_str()?.to_owned()));
        (wrote, mutation::statement(state).map(|statement| statement.reason))
    };
    let report = |state: &mut State, registered: Mutation, at: Duration| {
        let report = state.replicas["r"].report.clone();
        state.observe_replica("r", ReplicaStatus { registered: Some(registered), ..report }, at);
    };
    assert_eq!(pass(&mut state, NOW), (None, None));

    state.observe(&settings("Policy"));
    assert_eq!(pass(&mut state, NOW), (None, Some("MutatingPoliciesMissing")));
    state.parameters.mutated_by = Some("of another version".to_owned());
    assert_eq!(pass(&mut state, NOW), (None, Some("MutatingPoliciesMissing")));
    state.parameters.mutated_by = Some(policies::mutation::version());
    assert_eq!(pass(&mut state, NOW), (Some("Policy".to_owned()), Some("ByPolicy")));

    // The webhooks are narrow, so the policies go on, whether or not a replica runs.
    report(&mut state, Mutation::Policy, NOW);
    state.observe(&settings("Webhook"));
    assert_eq!(pass(&mut state, later(19)), (None, Some("SwitchingMode")));
    assert_eq!(pass(&mut state, later(600)), (None, Some("SwitchingMode")));
    report(&mut state, Mutation::Webhook, later(600));
    assert_eq!(pass(&mut state, later(600)), (None, Some("SwitchingMode")));
    assert_eq!(pass(&mut state, later(604)), (None, Some("SwitchingMode")));
    assert_eq!(pass(&mut state, later(605)), (Some("Webhook".to_owned()), None));
}
