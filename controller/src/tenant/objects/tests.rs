//! Objects in tenants' namespaces.

use super::*;

const NAME: &str = "croft-tenant-network";

fn key(namespace: &str) -> ObjectKey {
    ObjectKey { kind: ObjectKind::NetworkPolicy, namespace: namespace.to_owned(), name: NAME.to_owned() }
}

/// Writes a field of tenant `a`.
fn declare(state: &mut State, field: &str, value: Value) {
    let mut tenant = json!(&*state.tenants["a"]);
    tenant["spec"][field] = value;
    state.observe(&Change::from(read::<Tenant>(tenant)));
}

/// The writes of a pass; those of objects take effect.
fn pass(state: &mut State, mono: Duration) -> Vec<Action> {
    let writes = reconcile(state, mono, Timestamp::UNIX_EPOCH);
    for write in &writes {
        match written(write) {
            Some((Target::TenantObject(key), Verb::Create(object))) => {
                let mut object = object.clone();
                object["metadata"]["uid"] = json!("u");
                object["metadata"]["resourceVersion"] = json!("1");
                state.observe(&Object::Json(Kind::TenantObject(key.kind), Box::new(object)).into());
            }
            Some((Target::TenantObject(key), Verb::Delete { .. })) => drop(state.observe(&gone_object(key))),
            _ => write_status(state, write),
        }
    }
    writes
}

/// The objects that are deleted, with their uids.
fn removed_objects(writes: &[Action]) -> Vec<(ObjectKey, String)> {
    let removed = |write: &Action| match written(write) {
        Some((Target::TenantObject(key), Verb::Delete { uid, .. })) => Some((key.clone(), uid.clone())),
        _ => None,
    };
    writes.iter().filter_map(removed).collect()
}

/// True if the namespace `fresh` gets the annotation with its pools.
fn lets_in_fresh(writes: &[Action]) -> bool {
    patch_of(writes, "fresh")
        .is_some_and(|patch| patch["metadata"]["annotations"][POOLS_ANNOTATION].is_string())
}

/// Two namespaces of an isolated tenant, whose policies are in place.
fn isolated_state() -> State {
    let mut state = reconciled_state();
    declare(&mut state, "networkIsolation", json!({"enabled": true}));
    let writes = pass(&mut state, NOW);
    assert!(writes.iter().any(|w| {
        matches!(written(w), Some((Target::TenantObject(made), Verb::Create(_))) if *made == key("tenant-a"))
            && events_of(w).is_empty()
    }));
    pass(&mut state, NOW);
    assert_eq!(
        condition_of(&state, "a", "ObjectsKept"),
        ("True".to_owned(), "1 objects in its namespaces are as declared".to_owned())
    );
    state
}

fn policy_of(state: &State, namespace: &str) -> Value {
    let (uid, tenant, content) = state.objects.parts_of(&key(namespace)).unwrap();
    json!({"metadata": {"name": NAME, "namespace": namespace, "uid": uid, "resourceVersion": "2",
        "labels": {"croft.dev/tenant": tenant}}, "spec": content["spec"]})
}

fn show(state: &mut State, object: &Value) {
    state.observe(
        &Object::Json(Kind::TenantObject(ObjectKind::NetworkPolicy), Box::new(object.clone())).into(),
    );
}

#[test]
fn namespace_whose_policy_is_missing_or_changed_counts_as_open() {
    let mut state = isolated_state();
    let open = |state: &mut State| {
        let _ = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        state.violations.get(&Violation::NamespaceOpen).copied()
    };
    assert_eq!(open(&mut state), Some(0));
    let mut changed = policy_of(&state, "tenant-a");
    changed["spec"]["ingress"] = json!([{}]);
    show(&mut state, &changed);
    assert_eq!(open(&mut state), Some(1));
    state.observe(&gone_object(&key("tenant-a")));
    assert_eq!(open(&mut state), Some(1));
    declare(&mut state, "networkIsolation", json!({"enabled": false}));
    assert_eq!(open(&mut state), Some(0));
}

#[test]
fn policies_are_there_before_the_annotation_of_a_new_namespace() {
    let mut state = isolated_state();
    declare(&mut state, "namespaces", json!(["tenant-a", "fresh"]));
    // It had belonged to no tenant: the label goes at once, since no policy is written where it is.
    state.observe(&namespace("fresh", json!({TENANCY_LABEL: "none"}), json!({})));
    let unlabelled = |writes: &[Action]| {
        patch_of(writes, "fresh").is_some_and(|patch| patch["metadata"]["labels"][TENANCY_LABEL].is_null())
    };
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert!(!lets_in_fresh(&writes) && unlabelled(&writes), "{writes:?}");
    let made: Vec<_> = writes
        .iter()
        .filter_map(|write| match written(write) {
            Some((Target::TenantObject(key), Verb::Create(_) | Verb::JsonPatch(_))) => {
                Some(key.namespace.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(made, ["fresh", "tenant-a"], "the namespace whose pods wait comes first");
    pass(&mut state, NOW);
    assert!(lets_in_fresh(&reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH)));
}

#[test]
fn changes_by_hand_are_undone_and_reported() {
    let mut state = isolated_state();
    let mut opened = policy_of(&state, "tenant-a");
    opened["spec"]["ingress"] = json!([{}]);
    opened["extra"] = json!({"a": 1});
    show(&mut state, &opened);
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let restored = writes.iter().find_map(|write| match written(write) {
        Some((_, Verb::JsonPatch(patch))) => Some((patch, events_of(write))),
        _ => None,
    });
    let (patch, events) = restored.unwrap();
    assert_eq!(events[0].0, "ObjectRestored");
    assert_eq!(
        (&patch[0]["path"], &patch[2]),
        (&json!("/metadata/uid"), &json!({"op": "remove", "path": "/extra"}))
    );
    assert_eq!(
        patch[3]["value"]["ingress"][0]["from"][0]["namespaceSelector"]["matchExpressions"][0]["values"],
        json!(["tenant-a"])
    );

    // A change of the Tenant is no change by hand.
    let mut state = isolated_state();
    declare(&mut state, "networkIsolation", json!({"enabled": true, "egress": "Restricted"}));
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let is_silent = |w: &Action| {
        matches!(written(w), Some((Target::TenantObject(_), Verb::JsonPatch(_)))) && events_of(w).is_empty()
    };
    assert!(writes.iter().any(is_silent), "{writes:?}");

    let mut state = isolated_state();
    state.observe(&gone_object(&key("tenant-a")));
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let is_told = |w: &Action| matches!(written(w), Some((_, Verb::Create(_)))) && !events_of(w).is_empty();
    assert!(writes.iter().any(is_told), "{writes:?}");
}

#[test]
fn policies_go_with_the_field_and_copies_of_users_stay() {
    let mut state = isolated_state();
    let mut copy = policy_of(&state, "tenant-a");
    copy["metadata"]["name"] = json!("my-copy");
    show(&mut state, &copy);
    declare(&mut state, "networkIsolation", json!({"enabled": false}));
    let removed = removed_objects(&pass(&mut state, NOW));
    assert_eq!(removed, [(key("tenant-a"), "u".to_owned())]);
    pass(&mut state, NOW);
    let conditions = state.tenants["a"].status.clone().unwrap().conditions;
    assert!(conditions.iter().all(|c| c.type_ != "ObjectsKept"), "{conditions:?}");
}

#[test]
fn policies_of_an_absent_tenant_stay_until_its_absence_is_confirmed() {
    let removed = |state: &mut State, mono: Duration| !removed_objects(&pass(state, mono)).is_empty();
    let mut state = isolated_state();
    // A while after the start, so that only the deletion counts.
    let later = NOW + Duration::from_secs(600);
    pass(&mut state, later);
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    assert!(!removed(&mut state, later) && !removed(&mut state, later + Duration::from_secs(59)));
    assert!(removed(&mut state, later + Duration::from_secs(61)));
}

#[test]
fn policies_of_a_tenant_that_cannot_be_read_stay() {
    let mut state = isolated_state();
    let mut tenant = Tenant::clone(&state.tenants["a"]);
    tenant.metadata.uid = Some("another".to_owned());
    tenant.spec.network_isolation = None;
    let flaw =
        croft_api::stored::Flaw { why: "spec.networkIsolation: bad".to_owned(), concerns_admission: true };
    state.observe(&Change::Version(Version { flaw: Some(Box::new(flaw)), ..Version::new(Box::new(tenant)) }));
    let writes = pass(&mut state, NOW);
    let of_objects = |w: &&Action| matches!(written(w), Some((Target::TenantObject(_), _)));
    assert_eq!(writes.iter().filter(of_objects).count(), 0, "{writes:?}");
}

#[test]
fn name_of_another_object_is_reported_and_left_alone() {
    let mut state = reconciled_state();
    declare(&mut state, "networkIsolation", json!({"enabled": true}));
    assert!(state.objects.observe_name_taken(key("tenant-a")));
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let said = events_of(writes.iter().find(|write| key_text(write) == "tenant a").unwrap());
    assert_eq!(said.len(), 1);
    assert!(
        said[0].0 == "NameTaken" && said[0].1.starts_with("NetworkPolicy tenant-a/croft-tenant-network: "),
        "{said:?}"
    );
    pass(&mut state, NOW);
    pass(&mut state, NOW);
    assert_eq!(condition_of(&state, "a", "ObjectsKept").0, "True", "it was created after all");
}

/// The objects that are created for tenant `a` after a field was written, by kind and name.
fn created(field: &str, value: Value) -> Vec<(String, Value)> {
    let mut state = reconciled_state();
    declare(&mut state, field, value);
    let writes = pass(&mut state, NOW);
    let made = writes.iter().filter_map(|write| match written(write) {
        Some((Target::TenantObject(key), Verb::Create(object))) => Some((key.to_string(), object.clone())),
        _ => None,
    });
    let made: Vec<(String, Value)> = made.collect();
    for (_, quota) in made.iter().filter(|(key, _)| key.starts_with("ResourceQuota ")) {
        let mut enforced = quota.clone();
        (enforced["metadata"]["uid"], enforced["metadata"]["resourceVersion"]) = (json!("u"), json!("2"));
        enforced["status"] = json!({"hard": quota["spec"]["hard"]});
        state
            .observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(enforced)).into());
    }
    pass(&mut state, NOW);
    assert_eq!(condition_of(&state, "a", "ObjectsKept").0, "True");
    made
}

#[test]
fn quota_defaults_and_owners_are_created() {
    let made = created("quota", json!({"perNamespace": {"pods": 5, "requests.cpu": "0.5"}}));
    assert_eq!(made[0].0, "ResourceQuota tenant-a/croft-tenant-quota");
    assert_eq!(made[0].1["spec"]["hard"], json!({"pods": "5", "requests.cpu": "0.5"}));
    let made = created("defaults", json!({"limits": {"memory": "1024Mi"}}));
    assert_eq!(made[0].0, "LimitRange tenant-a/croft-tenant-defaults");
    let made = created("owners", json!([{"kind": "User", "name": "jane"}]));
    assert_eq!(made[0].0, "RoleBinding tenant-a/croft-tenant-owners-admin");
    assert_eq!(made[0].1["roleRef"]["name"], "admin");
}

#[test]
fn quantities_in_the_form_of_the_api_server_are_as_declared() {
    let mut state = reconciled_state();
    declare(
        &mut state,
        "quota",
        json!({"perNamespace": {"requests.cpu": "0.5", "requests.memory": "1024Mi"}}),
    );
    pass(&mut state, NOW);
    let stored = |cpu: &str| {
        json!({"metadata": {"name": "croft-tenant-quota", "namespace": "tenant-a", "uid": "u", "resourceVersion": "2",
            "labels": {"croft.dev/tenant": "a"}}, "spec": {"hard": {"requests.cpu": cpu, "requests.memory": "1Gi"}}})
    };
    let restored = |state: &mut State, object: Value| {
        state.observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(object)).into());
        let writes = reconcile(state, NOW, Timestamp::UNIX_EPOCH);
        writes.iter().find_map(|write| match written(write) {
            Some((_, Verb::JsonPatch(patch))) => Some(patch.clone()),
            _ => None,
        })
    };
    assert_eq!(restored(&mut state, stored("500m")), None);
    pass(&mut state, NOW);
    let patch = restored(&mut state, stored("501m")).unwrap();
    assert_eq!(patch[2]["value"]["hard"], json!({"requests.cpu": "0.5", "requests.memory": "1024Mi"}));
}

#[test]
fn a_binding_of_another_role_is_replaced() {
    let mut state = reconciled_state();
    declare(&mut state, "owners", json!([{"kind": "User", "name": "jane"}]));
    pass(&mut state, NOW);
    let other = json!({"metadata": {"name": "croft-tenant-owners-admin", "namespace": "tenant-a", "uid": "other",
        "resourceVersion": "2", "labels": {"croft.dev/tenant": "a"}}, "roleRef": {"name": "cluster-admin"}});
    state.observe(&Object::Json(Kind::TenantObject(ObjectKind::RoleBinding), Box::new(other)).into());
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert!(removed_objects(&writes).iter().any(|(_, uid)| uid == "other"), "{writes:?}");
}

#[test]
fn a_refused_object_is_reported() {
    let mut state = reconciled_state();
    declare(
        &mut state,
        "owners",
        json!([{"kind": "User", "name": "jane", "clusterRoles": ["cluster-admin"]}]),
    );
    let key = ObjectKey {
        kind: ObjectKind::RoleBinding,
        namespace: "tenant-a".to_owned(),
        name: "croft-tenant-owners-cluster-admin".to_owned(),
    };
    assert!(state.objects.observe_refused(key, "attempting to grant RBAC permissions not currently held"));
    let writes = reconcile(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let (reason, note) = writes.iter().find_map(|write| events_of(write).into_iter().next()).unwrap();
    assert!(reason == "ObjectsRefused" && note.contains("RBAC permissions not currently held"), "{note}");
}

/// The quota controller may be behind or away: until it has written a status, admission lets everything in.
#[test]
fn a_namespace_is_not_let_in_before_its_quota_is_enforced() {
    let mut state = reconciled_state();
    declare(&mut state, "quota", json!({"perNamespace": {"pods": 5}}));
    declare(&mut state, "namespaces", json!(["tenant-a", "fresh"]));
    state.observe(&namespace("fresh", json!({}), json!({})));
    assert!(!lets_in_fresh(&pass(&mut state, NOW)));
    assert!(!lets_in_fresh(&pass(&mut state, NOW)), "the quota is there, and not enforced yet");
    let (status, said) = condition_of(&state, "a", "ObjectsKept");
    assert!(status == "False" && said.contains("fresh/croft-tenant-quota"), "{status} {said}");
    let enforced = json!({"metadata": {"name": "croft-tenant-quota", "namespace": "fresh", "uid": "u", "resourceVersion": "2",
        "labels": {"croft.dev/tenant": "a"}}, "spec": {"hard": {"pods": "5"}},
        "status": {"hard": {"pods": "5"}, "used": {"pods": "0"}}});
    state.observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(enforced)).into());
    assert!(lets_in_fresh(&pass(&mut state, NOW)));
}

#[test]
fn a_pool_is_taken_from_a_namespace_whatever_the_quota_controller_does() {
    let mut state = reconciled_state();
    declare(&mut state, "quota", json!({"perNamespace": {"pods": 5}}));
    declare(&mut state, "namespaces", json!(["tenant-a", "fresh"]));
    let pool = |name: &str| format!("node-pool={name}:NoSchedule:{name}");
    let both = format!("{};{}", pool("pool-a"), pool("lost"));
    state.observe(&namespace("fresh", json!({}), json!({POOLS_ANNOTATION: both})));
    pass(&mut state, NOW);
    assert!(lets_in_fresh(&pass(&mut state, NOW)), "the quota is there, and not enforced yet");
    // Pools of another tenant, whose namespace it was, are taken away at once and not exchanged for these before that.
    state.observe(&namespace("fresh", json!({}), json!({POOLS_ANNOTATION: pool("lost")})));
    let writes = pass(&mut state, NOW);
    let written = patch_of(&writes, "fresh").unwrap()["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(written.get(POOLS_ANNOTATION), Some(&Value::Null));
}

#[test]
fn a_share_is_nothing_until_the_api_server_knows_it() {
    let mut state = reconciled_state();
    declare(&mut state, "quota", json!({"total": {"pods": 10}}));
    declare(&mut state, "namespaces", json!(["tenant-a", "fresh"]));
    state.observe(&namespace("fresh", json!({}), json!({})));
    let share = |version: &str, hard: &str, status: Value| {
        json!({"metadata": {"name": "croft-tenant-share", "namespace": "fresh", "uid": "u", "resourceVersion": version,
            "labels": {"croft.dev/tenant": "a"}}, "spec": {"hard": {"pods": hard}}, "status": status})
    };
    let writes = pass(&mut state, NOW);
    let first: Vec<&Value> = writes
        .iter()
        .filter_map(|write| match written(write) {
            Some((_, Verb::Create(object))) => Some(&object["spec"]["hard"]["pods"]),
            _ => None,
        })
        .collect();
    assert_eq!(first, ["0", "0"]);
    assert!(!lets_in_fresh(&writes));
    assert!(!lets_in_fresh(&pass(&mut state, NOW)), "the quota controller hasn't seen it");
    let mut seen = share("2", "0", json!({"hard": {"pods": "0"}, "used": {"pods": "0"}}));
    state
        .observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(seen.clone())).into());
    assert!(lets_in_fresh(&pass(&mut state, NOW)));
    // A user's scopes can't be taken away; their amounts can.
    seen["spec"]["hard"]["pods"] = json!("500");
    seen["metadata"]["namespace"] = json!("tenant-a");
    state.observe(&Object::Json(Kind::TenantObject(ObjectKind::ResourceQuota), Box::new(seen)).into());
    let later = NOW + Duration::from_secs(60);
    let lowered = (0..20).find_map(|second| {
        pass(&mut state, later + Duration::from_secs(second)).iter().find_map(|write| match written(write) {
            Some((Target::TenantObject(key), Verb::JsonPatch(patch))) if key.namespace == "tenant-a" => {
                Some(patch.clone())
            }
            _ => None,
        })
    });
    let lowered = lowered.unwrap();
    assert_eq!(lowered[1]["path"], "/metadata/resourceVersion");
    let pods: i64 = lowered[3]["value"]["hard"]["pods"].as_str().unwrap().parse().unwrap();
    assert!(pods <= 10, "{lowered}");
}

#[test]
fn pod_security_goes_back_once_the_absence_of_the_tenant_is_confirmed() {
    const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
    let enforced = |writes: &[Action]| {
        patch_of(writes, "tenant-a").map(|patch| patch["metadata"]["labels"][ENFORCE].clone())
    };
    let mut state = reconciled_state();
    declare(&mut state, "podSecurity", json!({"enforce": "restricted"}));
    assert_eq!(enforced(&pass(&mut state, NOW)), Some(json!("restricted")));
    let annotations = json!({POOLS_ANNOTATION: "node-pool=pool-a:NoSchedule:pool-a",
        "policy.croft.dev/pod-security-enforce": "restricted:baseline"});
    state.observe(&namespace("tenant-a", json!({ENFORCE: "restricted"}), annotations));
    let later = NOW + Duration::from_secs(600);
    assert_eq!(enforced(&pass(&mut state, later)), None);
    state.observe(&Change::Gone(ObjectId::new(Kind::Tenant, "", "a")));
    assert_eq!(enforced(&pass(&mut state, later)), None);
    assert_eq!(enforced(&pass(&mut state, later + Duration::from_secs(61))), Some(json!("baseline")));
}
