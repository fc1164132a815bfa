//! Namespaces that owners create, and the use of quotas.

use croft_policy::definitions::SURPLUS_ANNOTATION;

use super::*;
use crate::kube_api::Call;

const PREFIX: &str = "loom-";

/// Tenant `a` whose owners may create `maximum` namespaces, after the caution of a new leader.
fn state(maximum: u32) -> State {
    let mut state = reconciled_state();
    let mut tenant = json!(&*state.tenants["a"]);
    tenant["spec"]["owners"] = json!([{"kind": "User", "name": "jane"}, {"kind": "User", "name": "jane"}]);
    tenant["spec"]["namespaceCreation"] = json!({"prefix": PREFIX, "maximum": maximum});
    state.observe(&Change::from(read::<Tenant>(tenant)));
    state.objects.take_over();
    let _ = reconcile(&mut state, NOW - seconds(2), Timestamp::UNIX_EPOCH);
    state
}

fn create(state: &mut State, name: &str, created: &str) {
    state.observe(&Change::from(read::<Namespace>(
        json!({"metadata": {"name": name, "creationTimestamp": created}}),
    )));
}

/// The annotations that are written, by namespace.
fn annotations_of(writes: &[Action]) -> impl Iterator<Item = (String, &Value)> {
    writes.iter().filter(|write| is_namespace_write(write)).filter_map(|write| match written(write) {
        Some((Target::Namespace(name), Verb::Patch(patch))) => {
            Some((name.clone(), &patch["metadata"]["annotations"]))
        }
        _ => None,
    })
}

/// The namespaces that a pass lets in.
fn let_in(state: &mut State, mono: Duration) -> Vec<String> {
    let pass = |state: &mut State| reconcile(state, mono, Timestamp::UNIX_EPOCH);
    let mut writes = pass(state);
    for write in &writes {
        if let Some((Target::TenantObject(key), Verb::Create(object))) = written(write) {
            let mut object = object.clone();
            object["metadata"]["uid"] = json!("u");
            state.observe(&Object::Json(Kind::TenantObject(key.kind), Box::new(object)).into());
        }
    }
    writes.extend(pass(state));
    let mut found: Vec<String> = annotations_of(&writes)
        .filter(|(_, annotations)| annotations[POOLS_ANNOTATION].is_string())
        .map(|(namespace, _)| namespace)
        .collect();
    found.sort();
    found.dedup();
    found
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn oldest_namespaces_are_let_in_up_to_the_maximum() {
    let mut state = state(2);
    write(&mut state);
    for (name, created) in [
        ("loom-c", "2026-01-01T00:00:03Z"),
        ("loom-a", "2026-01-01T00:00:02Z"),
        ("loom-b", "2026-01-01T00:00:01Z"),
        ("other", "2026-01-01T00:00:00Z"),
    ] {
        create(&mut state, name, created);
    }
    assert_eq!(let_in(&mut state, NOW), ["loom-a", "loom-b"]);
    write(&mut state);
    let (status, message) = condition_of(&state, "a", "NamespaceCreation");
    assert!(status == "False" && message.contains("2 may: loom-c stay"), "{message}");
    let written = state.parameters.written.clone().unwrap();
    assert_eq!(written["policy.croft.dev/namespace-creation"], "a loom- 2 full U:jane U:jane\n");
}

#[test]
fn a_namespace_of_the_same_second_takes_no_place_that_is_taken() {
    let mut state = state(1);
    create(&mut state, "loom-b", "2026-01-01T00:00:01Z");
    assert_eq!(let_in(&mut state, NOW), ["loom-b"]);
    // The watch doesn't show its annotation yet.
    create(&mut state, "loom-a", "2026-01-01T00:00:01Z");
    assert_eq!(let_in(&mut state, NOW), ["loom-b"]);
    state.observe(&Change::Gone(ObjectId::new(Kind::Namespace, "", "loom-b")));
    assert_eq!(let_in(&mut state, NOW), ["loom-a"]);
}

#[test]
fn a_new_leader_lets_none_in_for_two_seconds() {
    let mut state = state(1);
    create(&mut state, "loom-b", "2026-01-01T00:00:01Z");
    state.objects.take_over();
    let later = NOW + seconds(10);
    assert!(let_in(&mut state, later).is_empty());
    assert_eq!(state.objects.next(later), Some(later + seconds(2)));
    // A namespace that the former leader has let in arrives meanwhile.
    let pools = json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a"});
    state.observe(&namespace("loom-c", json!({}), pools));
    assert!(let_in(&mut state, later + seconds(2)).is_empty());
}

#[test]
fn lowering_the_maximum_closes_no_namespace() {
    let mut state = state(1);
    let pools = || json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a"});
    state.observe(&namespace("loom-a", json!({}), pools()));
    state.observe(&namespace("loom-b", json!({}), pools()));
    assert!(let_in(&mut state, NOW).is_empty());
    write(&mut state);
    assert_eq!(condition_of(&state, "a", "NamespaceCreation").0, "True");
    let closed = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert!(closed.iter().all(|write| !key_text(write).starts_with("namespace loom-")), "{closed:?}");
}

#[test]
fn owners_are_bound_while_the_policy_that_limits_them_is_there() {
    let key = ObjectKey {
        kind: ObjectKind::ClusterRoleBinding,
        namespace: String::new(),
        name: "croft-tenant-namespaces-a".to_owned(),
    };
    let mut state = state(1);
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let made = writes.iter().find_map(|write| match written(write) {
        Some((Target::TenantObject(made), Verb::Create(object))) if *made == key => Some(object.clone()),
        _ => None,
    });
    let made = made.unwrap();
    assert_eq!(made["roleRef"]["name"], "croft-namespace-creator");
    assert_eq!(made["metadata"], json!({"name": key.name, "labels": {"croft.dev/tenant": "a"}}));
    assert_eq!(made["subjects"].as_array().unwrap().len(), 1);
    let mut stored = made;
    stored["metadata"]["uid"] = json!("u");
    state.observe(&Object::Json(Kind::TenantObject(key.kind), Box::new(stored)).into());
    let policy = policies::NAMESPACE_CREATION_POLICY.to_owned();
    state.observe(&Change::Gone(ObjectId::new(Kind::ValidatingAdmissionPolicy, "", &policy)));
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let is_gone = |write: &Action| matches!(written(write), Some((Target::TenantObject(gone), Verb::Delete { .. })) if *gone == key);
    assert!(writes.iter().any(is_gone), "{writes:?}");
}

#[test]
fn owners_create_none_while_a_replica_does_not_enforce_their_tenant() {
    let mut state = state(2);
    let creation = |state: &mut State| {
        write(state);
        state.parameters.written.clone().unwrap()["policy.croft.dev/namespace-creation"].clone()
    };
    assert_eq!(creation(&mut state), "a loom- 2 open U:jane U:jane\n");
    state.observe_replica("late", ReplicaStatus::default(), NOW);
    assert_eq!(creation(&mut state), "a loom- 2 pending U:jane U:jane\n");
    state.observe(&Change::Gone(ObjectId::new(Kind::WebhookReplica, "", "late")));
    assert_eq!(creation(&mut state), "a loom- 2 open U:jane U:jane\n");
}

#[test]
fn status_sums_the_use_of_all_namespaces() {
    let mut state = reconciled_state();
    let mut tenant = json!(&*state.tenants["a"]);
    tenant["spec"]["namespaces"] = json!(["tenant-a", "more"]);
    tenant["spec"]["quota"] = json!({"total": {"requests.cpu": "4", "pods": 10}});
    state.observe(&Change::from(read::<Tenant>(tenant)));
    state.observe(&namespace("more", json!({}), json!({})));
    for (name, cpu, pods) in [("tenant-a", "1500m", "3"), ("more", "1", "2")] {
        let share = json!({"metadata": {"name": "croft-tenant-share", "namespace": name, "uid": "u"},
            "spec": {"hard": {}}, "status": {"hard": {}, "used": {"requests.cpu": cpu, "pods": pods}}});
        state.observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(share)).into());
    }
    write(&mut state);
    let quota = json!(state.tenants["a"].status.clone().unwrap().quota);
    assert_eq!(
        quota,
        json!([{"resource": "pods", "total": "10", "used": "5"},
            {"resource": "requests.cpu", "total": "4", "used": "2500m"}])
    );
}

#[test]
fn a_surplus_namespace_neither_delays_policy_mode_nor_counts_as_a_violation() {
    let mut state = state(1);
    let pools = json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a"});
    state.observe(&namespace("loom-a", json!({}), pools));
    create(&mut state, "loom-b", "2026-01-01T00:00:02Z");
    state.observe(&Change::from(read::<CroftConfig>(
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig",
        "metadata": {"name": "default"}, "spec": {"admission": {"mutation": "Policy"}}}),
    )));
    state.parameters.mutated_by = Some(policies::mutation::version());
    let mode = |state: &mut State| {
        let writes = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        writes.iter().find_map(|write| match write {
            Action::Write { key: Key::Parameters, call: Call { verb: Verb::Patch(patch), .. }, .. } => {
                patch["metadata"]["annotations"][MUTATION].as_str().map(str::to_owned)
            }
            _ => None,
        })
    };
    assert_eq!(mode(&mut state).as_deref(), Some("Policy"));
    assert_eq!(state.violations.get(&Violation::NamespaceMetadataStale), Some(&0));
    // One that is let in and hasn't its pools yet does both.
    state.observe(&Change::Gone(ObjectId::new(Kind::Namespace, "", "loom-a")));
    state.observe(&Change::Gone(ObjectId::new(Kind::Namespace, "", "loom-b")));
    state.observe(&namespace("tenant-a", json!({}), json!({POOLS_ANNOTATION: "of before"})));
    assert_eq!(mode(&mut state), None);
    assert_eq!(state.violations.get(&Violation::NamespaceMetadataStale), Some(&1));
}

#[test]
fn surplus_namespaces_are_those_that_admission_refuses_and_say_why_until_they_are_let_in() {
    let mut state = state(2);
    for (name, created) in [
        ("loom-c", "2026-01-01T00:00:03Z"),
        ("loom-d", "2026-01-01T00:00:04Z"),
        ("loom-a", "2026-01-01T00:00:02Z"),
        ("loom-b", "2026-01-01T00:00:01Z"),
    ] {
        create(&mut state, name, created);
    }
    let pools = || json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a"});
    let said = |state: &mut State| -> Vec<(String, Value)> {
        let writes = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        let said = |(name, annotations): (String, &Value)| {
            Some((name, annotations.get(SURPLUS_ANNOTATION)?.clone()))
        };
        annotations_of(&writes).filter_map(said).collect()
    };
    let names = |said: &[(String, Value)]| said.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(let_in(&mut state, NOW), ["loom-a", "loom-b"]);
    assert_eq!(said(&mut state), [], "none is refused for good before two have pools");
    for name in ["loom-a", "loom-b"] {
        state.observe(&namespace(name, json!({}), pools()));
    }
    let refused = said(&mut state);
    let view = state.view();
    let closed = crate::tenant::objects::let_in(&mut state, &view, NOW)["a"].surplus.clone();
    assert_eq!(closed, ["loom-c", "loom-d"]);
    assert_eq!(names(&refused), closed);
    assert_eq!(refused[0].1, "a;2;loom-a and loom-b");
    // The next one gets its pools in place of the reason.
    for (name, created) in [("loom-c", 3), ("loom-d", 4)] {
        let metadata = json!({"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{created}Z"),
            "annotations": {SURPLUS_ANNOTATION: "a;2;loom-a and loom-b"}});
        state.observe(&Change::from(read::<Namespace>(json!({"metadata": metadata}))));
    }
    assert_eq!(said(&mut state), []);
    state.observe(&Change::Gone(ObjectId::new(Kind::Namespace, "", "loom-a")));
    assert_eq!(let_in(&mut state, NOW), ["loom-c"]);
    assert_eq!(names(&said(&mut state)), ["loom-c", "loom-d"]);
    state.observe(&namespace("loom-c", json!({}), pools()));
    assert_eq!(said(&mut state), [("loom-d".to_owned(), json!("a;2;loom-b and loom-c"))]);
}
