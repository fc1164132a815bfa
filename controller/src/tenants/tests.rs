//! Facts in, actions out.

use croft_api::{Tenant, TenantPool, TenantStatus, config::Misplaced};
use croft_policy::seen::{Report, Seen};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, Pod},
};
use serde::de::DeserializeOwned;

use super::{super::state::News, *};
use crate::snapshot::Change;

const NOW: Duration = Duration::from_secs(100);

fn read<T: DeserializeOwned>(value: Value) -> Box<T> {
    Box::new(serde_json::from_value(value).unwrap())
}

fn tenant(name: &str, created: &str, namespaces: &[&str], pools: &[&str]) -> Change {
    Change::Tenant(read::<Tenant>(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant",
        "metadata": {"name": name, "uid": format!("uid-of-{name}-"), "generation": 1, "creationTimestamp": created},
        "spec": {"namespaces": namespaces, "pools": pools},
    })))
}

fn namespace(name: &str, labels: Value, annotations: Value) -> Change {
    Change::Namespace(read::<Namespace>(
        json!({"metadata": {"name": name, "labels": labels, "annotations": annotations}}),
    ))
}

fn pod(namespace: &str, name: &str, spec: Value, owner: Option<&str>) -> Change {
    let mut pod =
        json!({"metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": {"containers": []}});
    pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    if let Some(kind) = owner {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true}]);
    }
    Change::Pod(read::<Pod>(pod))
}

/// Two tenants, one pool each, a node each, and everything that is to be written already written.
fn settled() -> State {
    let mut state = State::default();
    let pool = |name: &str, provisioner: &str| {
        Change::Pool(read::<TenantPool>(json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"key": "node-pool", "provisioner": provisioner},
        })))
    };
    let node = |name: &str, pool: &str| {
        Change::Node(read::<Node>(
            json!({"metadata": {"name": name, "labels": {"node-pool": pool, MARK_KEY: pool}},
                "spec": {"taints": [{"key": "node-pool", "value": pool, "effect": "NoSchedule"}]}}),
        ))
    };
    let marks = |pool: &str| json!({POOLS_ANNOTATION: format!("node-pool={pool}:NoSchedule:{pool}")});
    for change in [
        pool("pool-a", "None"),
        pool("pool-b", "None"),
        tenant("a", "2026-01-01T00:00:00Z", &["tenant-a"], &["pool-a"]),
        tenant("b", "2026-01-02T00:00:00Z", &["tenant-b"], &["pool-b"]),
        namespace("tenant-a", json!({}), marks("pool-a")),
        namespace("tenant-b", json!({}), marks("pool-b")),
        namespace("nobody", json!({TENANCY_LABEL: "none"}), json!({})),
        namespace("kube-system", json!({}), json!({})),
        node("a-1", "pool-a"),
        node("b-1", "pool-b"),
    ] {
        state.observe(&change);
    }
    for kind in ["Pod", "Node", "NodeClaim", "TenantPool", "Tenant", "DaemonSet", "Namespace"] {
        assert!(
            decide(&mut state, NOW, Timestamp::UNIX_EPOCH).is_empty(),
            "nothing is done before all is known"
        );
        state.observe(&Change::Synced(kind));
    }
    for kind in ["CroftConfig", "Replica", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"] {
        state.learn(News::Synced(kind), NOW);
    }
    let mut seen = Seen::default();
    seen.insert("uid-of-a-", 1);
    seen.insert("uid-of-b-", 1);
    state.learn(News::Replica("r".to_owned(), Some(Report { seen, trouble: None })), NOW);
    for _ in 0..3 {
        write(&mut state);
    }
    state
}

/// Does to the facts what the writes would do.
fn write(state: &mut State) -> Vec<Action> {
    let actions = decide(state, NOW, Timestamp::UNIX_EPOCH);
    for action in &actions {
        match action {
            Action::Policy(document) => {
                let text = |pointer: &str| document.pointer(pointer).unwrap().as_str().unwrap().to_owned();
                let (kind, name) = (text("/kind"), text("/metadata/name"));
                state.learn(News::Policy(kind, name, Some(Box::new(document.clone()))), NOW);
            }
            Action::PoolStatus { pool, conditions, .. } => {
                let mut object = TenantPool::clone(&state.pools[pool]);
                object.status.get_or_insert_default().conditions.clone_from(conditions);
                state.observe(&Change::Pool(Box::new(object)));
            }
            Action::Status { tenant, status, .. } => {
                let mut object = Tenant::clone(&state.tenants[tenant]);
                object.status = Some(TenantStatus::clone(status));
                state.observe(&Change::Tenant(Box::new(object)));
            }
            _ => {}
        }
    }
    actions
}

fn said(state: &State, tenant: &str, kind: &str) -> (String, String) {
    let status = state.tenants[tenant].status.clone().unwrap();
    let condition = status.conditions.into_iter().find(|c| c.type_ == kind).unwrap();
    (condition.status, condition.message)
}

#[test]
fn nothing_is_written_twice() {
    let mut state = settled();
    assert_eq!(decide(&mut state, NOW, Timestamp::UNIX_EPOCH), Vec::new());
    for kind in ["Accepted", "Ready", "Isolated"] {
        assert_eq!(said(&state, "a", kind).0, "True", "{kind}");
    }
}

#[test]
fn what_somebody_changed_is_put_right() {
    let mut state = settled();
    state.observe(&namespace("tenant-a", json!({TENANCY_LABEL: "none"}), json!({})));
    state.observe(&namespace("fresh", json!({}), json!({})));
    let document = state.policies.keys().next().unwrap().clone();
    state.learn(News::Policy(document.0.clone(), document.1.clone(), None), NOW);
    let keys: Vec<String> = decide(&mut state, NOW, Timestamp::UNIX_EPOCH).iter().map(Action::key).collect();
    assert!(keys.contains(&format!("policy {} {}", document.0, document.1)), "{keys:?}");
    assert!(
        keys.contains(&"namespace tenant-a".to_owned()) && keys.contains(&"namespace fresh".to_owned()),
        "{keys:?}"
    );
    write(&mut state);
    assert_eq!(said(&state, "a", "Ready").0, "False", "not before its namespaces are marked");
}

#[test]
fn the_younger_claim_and_the_missing_pool_are_told() {
    let mut state = settled();
    state.observe(&tenant("c", "2026-01-03T00:00:00Z", &["tenant-a", "kube-system"], &["pool-a"]));
    state.observe(&tenant("d", "2026-01-03T00:00:00Z", &["d"], &["gone"]));
    let told: Vec<_> = write(&mut state)
        .into_iter()
        .filter_map(|action| match action {
            Action::Status { tenant, tell, .. } => Some((tenant, tell)),
            _ => None,
        })
        .flat_map(|(tenant, tell)| tell.into_iter().map(move |(reason, _)| (tenant.clone(), reason)))
        .collect();
    assert_eq!(told, [("c".to_owned(), "NamespaceConflict"), ("d".to_owned(), "PoolNotFound")]);
    assert!(said(&state, "c", "Accepted").1.contains("exempt"), "{:?}", said(&state, "c", "Accepted"));
    assert!(said(&state, "d", "Ready").1.contains("gone"));
    assert_eq!(said(&state, "a", "Accepted").0, "True", "nothing else stops");
}

#[test]
fn a_pool_with_an_older_ones_label_says_so() {
    let mut state = settled();
    let of = |state: &State, pool: &str| {
        let conditions = state.pools[pool].status.clone().unwrap().conditions;
        conditions.into_iter().find(|c| c.type_ == "Accepted").map(|c| (c.status, c.message)).unwrap()
    };
    assert_eq!(of(&state, "pool-a").0, "True");
    state.observe(&Change::Pool(read::<TenantPool>(json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
        "metadata": {"name": "twin", "creationTimestamp": "2026-02-01T00:00:00Z"},
        "spec": {"key": "node-pool", "value": "pool-a", "provisioner": "None"},
    }))));
    let told = write(&mut state).into_iter().find_map(|action| match action {
        Action::PoolStatus { tell, .. } => tell,
        _ => None,
    });
    assert_eq!(told.unwrap().0, "LabelTaken");
    let (status, message) = of(&state, "twin");
    assert!(status == "False" && message.contains("older TenantPool pool-a"), "{message}");
    assert_eq!(of(&state, "pool-a").0, "True");
    assert_eq!(state.violations[&Broken::PoolCollides], 1);
    assert_eq!(decide(&mut state, NOW, Timestamp::UNIX_EPOCH), Vec::new());
}

#[test]
fn nodes_that_let_others_in_are_counted_and_named() {
    let mut state = settled();
    assert!(state.violations.values().all(|count| *count == 0), "{:?}", state.violations);
    state.observe(&Change::Node(read::<Node>(
        json!({"metadata": {"name": "a-2", "labels": {"node-pool": "pool-a", MARK_KEY: "pool-a"}}}),
    )));
    write(&mut state);
    assert_eq!(state.violations[&Broken::NodeUntainted], 1);
    let (status, message) = said(&state, "a", "Isolated");
    assert!(
        status == "False" && message.contains("1 nodes of its pools let others' pods in (a-2)"),
        "{message}"
    );
    assert_eq!(said(&state, "b", "Isolated").0, "True");
    // The pool goes: a node with its labels is in no pool.
    state.observe(&Change::PoolGone("pool-a".to_owned()));
    write(&mut state);
    assert_eq!(state.violations[&Broken::NodeOfNoPool], 2, "a-1 and a-2");
    state.observe(&Change::NodeGone("a-2".to_owned()));
    write(&mut state);
    assert_eq!(state.violations[&Broken::NodeOfNoPool], 1);
}

#[test]
fn a_tenant_is_ready_when_every_replica_that_lives_has_seen_it() {
    let mut state = settled();
    state.learn(News::Replica("late".to_owned(), Some(Report::default())), NOW);
    write(&mut state);
    let (status, message) = said(&state, "a", "Ready");
    assert!(status == "False" && message.contains("late"), "{message}");
    // It has caught up, but API servers can't reach it: what it enforces helps nobody.
    let seen = ["a", "b"].map(|name| (format!("uid-of-{name}-"), 1));
    let mut report = Report { trouble: Some("the Secret isn't there".to_owned()), ..Report::default() };
    seen.iter().for_each(|(uid, generation)| report.seen.insert(uid, *generation));
    state.learn(News::Replica("late".to_owned(), Some(report)), NOW);
    write(&mut state);
    let (status, message) = said(&state, "a", "Ready");
    assert!(
        status == "False" && message.contains("late of croft-webhook: the Secret isn't there"),
        "{message}"
    );
    // It fell silent, and so did the other: nobody enforces anything.
    let actions = decide(&mut state, NOW + Duration::from_secs(60), Timestamp::UNIX_EPOCH);
    let reasons = actions.iter().filter_map(|a| match a {
        Action::Status { status, .. } => {
            status.conditions.iter().find(|c| c.type_ == "Ready").map(|c| c.reason.clone())
        }
        _ => None,
    });
    assert_eq!(reasons.collect::<Vec<_>>(), ["NoWebhook", "NoWebhook"]);
}

#[test]
fn waiting_pods_of_one_owner_are_held_once_while_they_are_the_same() {
    let mut state = State::default();
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
fn pods_from_before_are_made_anew_or_reported() {
    let mut state = settled();
    for change in [
        pod("tenant-a", "waits", json!({}), Some("ReplicaSet")),
        pod("tenant-a", "bare", json!({}), None),
        pod("tenant-a", "gated", json!({"schedulingGates": [{"name": "g"}]}), Some("ReplicaSet")),
        pod("tenant-a", "agent", json!({}), Some("DaemonSet")),
        pod("tenant-a", "placed", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
        pod("tenant-a", "outside", json!({"nodeName": "b-1"}), Some("ReplicaSet")),
        pod("nobody", "inside", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
        pod("nobody", "fine", json!({}), Some("ReplicaSet")),
        pod("kube-system", "exempt", json!({"nodeName": "a-1"}), Some("ReplicaSet")),
    ] {
        state.observe(&change);
    }
    let remedies = |actions: Vec<Action>| -> Vec<String> {
        let of = |a: &Action| matches!(a, Action::Recreate { .. } | Action::Evict { .. });
        actions.iter().filter(|a| of(a)).map(Action::key).collect()
    };
    assert_eq!(remedies(write(&mut state)), ["pod waits"]);
    let (status, message) = said(&state, "a", "Isolated");
    assert_eq!(status, "False");
    for part in [
        "1 pods outside",
        "tenant-a/outside on node b-1",
        "1 pods of others",
        "nobody/inside",
        "4 pods waiting",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    state.config.misplaced = Misplaced::Recreate;
    assert_eq!(
        remedies(decide(&mut state, NOW, Timestamp::UNIX_EPOCH)),
        ["pod waits", "pod inside", "pod outside"]
    );
    // Without a webhook they would come again as they are.
    state.replicas.clear();
    assert_eq!(remedies(decide(&mut state, NOW, Timestamp::UNIX_EPOCH)), Vec::<String>::new());
}

#[test]
fn daemonsets_that_aren_t_planned_are_touched() {
    let mut state = settled();
    let daemonset = |namespace: &str, selector: Value| {
        Change::DaemonSet(read::<DaemonSet>(json!({
            "metadata": {"name": "d", "namespace": namespace},
            "spec": {"selector": {}, "template": {"spec": {"containers": [], "nodeSelector": selector}}},
        })))
    };
    state.observe(&daemonset("tenant-a", json!({})));
    state.observe(&daemonset("nobody", json!({})));
    // It would be refused, and a touch wouldn't change that.
    state.observe(&daemonset("tenant-b", json!({"node-pool": "pool-a"})));
    let touched = decide(&mut state, NOW, Timestamp::UNIX_EPOCH);
    assert_eq!(touched, [Action::Touch(("tenant-a".to_owned(), "d".to_owned()))]);
}

#[test]
fn nodes_that_others_made_get_the_mark() {
    let mut state = settled();
    let node = json!({"metadata": {"name": "a-2", "labels": {"node-pool": "pool-a"}}});
    state.observe(&Change::Node(read::<Node>(node)));
    let actions = decide(&mut state, NOW, Timestamp::UNIX_EPOCH);
    let marked = Action::MarkNode { node: "a-2".to_owned(), mark: "pool-a".to_owned() };
    assert!(actions.contains(&marked), "{actions:?}");
}
