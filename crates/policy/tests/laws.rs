//! Properties of random worlds: the invariant against an independent feasibility check, applying twice equals applying
//! once, patch and outcome agree, and no input panics.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod world;

use croft_policy::{
    Config, NonTenantPods, Phase, Tenants,
    definitions::{POOL_NAME_LABEL, TEMPLATE_LABEL},
    evaluate, review,
    taint::{Effect, Taint},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

const KEYS: [&str; 6] = ["node-pool", "example.com/gpu", POOL_NAME_LABEL, "zone", TEMPLATE_LABEL, ""];
const VALUES: [&str; 10] =
    ["pool-a", "pool-b", "pool-c", "pool-d", "pool-a-gpu", "team", "second", "a", "z", "later"];
const NAMESPACES: [&str; 10] = [
    "tenant-a",
    "tenant-a-gpu",
    "tenant-b",
    "labelled",
    "tenant-c",
    "tenant-d",
    "tenant-e",
    "non-tenant",
    "agents",
    "kube-system",
];

/// The checks of kube-scheduler and the kubelet, written from their documentation, independently of the policy's code:
/// (selector, tolerations, required terms) against (labels, taints, name).
mod feasibility {
    use super::*;

    pub struct Place {
        pub name: String,
        pub labels: Vec<(String, String)>,
        pub taints: Vec<Taint>,
    }

    fn text<'v>(value: &'v Value, field: &str) -> &'v str {
        value.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    fn list<'v>(value: &'v Value, pointer: &str) -> Vec<&'v Value> {
        value.pointer(pointer).and_then(Value::as_array).map(|a| a.iter().collect()).unwrap_or_default()
    }

    pub fn tolerated(spec: &Value, taint: &Taint) -> bool {
        list(spec, "/tolerations").iter().any(|t| {
            let (key, effect) = (text(t, "key"), text(t, "effect"));
            let same_effect = effect.is_empty() || effect == taint.effect.as_str();
            let same_key = key.is_empty() || key == taint.key;
            same_effect
                && same_key
                && match text(t, "operator") {
                    "Exists" => true,
                    "" | "Equal" => text(t, "value") == taint.value,
                    _ => false,
                }
        })
    }

    fn holds(expression: &Value, actual: Option<&str>) -> bool {
        let values: Vec<&str> = list(expression, "/values").iter().filter_map(|v| v.as_str()).collect();
        match text(expression, "operator") {
            "In" => actual.is_some_and(|a| values.contains(&a)),
            "NotIn" => actual.is_none_or(|a| !values.contains(&a)),
            "Exists" => actual.is_some(),
            "DoesNotExist" => actual.is_none(),
            other => unreachable!("not generated: {other}"),
        }
    }

    pub fn fits(spec: &Value, place: &Place) -> bool {
        let label = |key: &str| place.labels.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
        let name = spec.get("nodeName").and_then(Value::as_str).unwrap_or_default();
        if !name.is_empty() {
            return name == place.name;
        }
        let selected = spec
            .get("nodeSelector")
            .and_then(Value::as_object)
            .is_none_or(|selector| selector.iter().all(|(key, value)| label(key) == value.as_str()));
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let wanted = spec.pointer(terms).is_none()
            || list(spec, terms).iter().any(|term| {
                let (labels, fields) = (list(term, "/matchExpressions"), list(term, "/matchFields"));
                !(labels.is_empty() && fields.is_empty())
                    && labels.iter().all(|e| holds(e, label(text(e, "key"))))
                    && fields.iter().all(|e| holds(e, Some(&place.name)))
            });
        let hard = |t: &&Taint| t.effect != Effect::PreferNoSchedule;
        selected && wanted && place.taints.iter().filter(hard).all(|t| tolerated(spec, t))
    }
}

use feasibility::{Place, fits};

fn toleration() -> impl Strategy<Value = Value> {
    // Half of them are about labels that nodes of pools have, so that some equal what Croft itself would write.
    let about = prop_oneof![
        (select(&KEYS[..]), select(&["Exists", "Equal", ""][..]), select(&VALUES[..])),
        select(
            &[
                ("node-pool", "Equal", "pool-a"),
                ("example.com/gpu", "Equal", "a"),
                ("example.com/gpu", "Exists", "")
            ][..]
        ),
    ];
    (about, select(&["", "NoSchedule", "NoExecute", "PreferNoSchedule"][..]), option::of(0..600_i64))
        .prop_map(|((key, operator, value), effect, seconds)| {
            let mut t = json!({"effect": effect});
            // The API server refuses other values, so the scheduler never sees them.
            if key.is_empty() || operator == "Exists" {
                t["operator"] = json!("Exists");
            } else {
                t["operator"] = json!(operator);
                t["value"] = json!(value);
            }
            t["key"] = json!(key);
            if let (Some(seconds), "" | "NoExecute") = (seconds, effect) {
                t["tolerationSeconds"] = json!(seconds);
            }
            t
        })
}

fn expression() -> impl Strategy<Value = Value> {
    (
        select(&KEYS[..5]),
        select(&["In", "NotIn", "Exists", "DoesNotExist"][..]),
        vec(select(&VALUES[..]), 1..4),
    )
        .prop_map(|(key, operator, values)| match operator {
            "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
            _ => json!({"key": key, "operator": operator}),
        })
}

fn term() -> impl Strategy<Value = Value> {
    (option::of(vec(expression(), 0..3)), option::of(select(&["free-1", "a-1", "b-1"][..]))).prop_map(
        |(labels, field)| {
            let mut term = json!({});
            if let Some(labels) = labels {
                term["matchExpressions"] = json!(labels);
            }
            if let Some(name) = field {
                term["matchFields"] = json!([{"key": "metadata.name", "operator": "In", "values": [name]}]);
            }
            term
        },
    )
}

fn spec() -> impl Strategy<Value = Value> {
    let selector = option::of(proptest::collection::btree_map(select(&KEYS[..5]), select(&VALUES[..]), 0..3));
    let node = prop_oneof![8 => Just(""), 1 => select(&["free-1", "a-1", "gpu-1", "b-1", "c-1", "d-1", "b-2", "nowhere"][..])];
    (selector, option::of(vec(toleration(), 0..5)), option::of(vec(term(), 1..4)), node).prop_map(
        |(selector, tolerations, terms, node)| {
            let mut spec = json!({"containers": []});
            if let Some(selector) = selector {
                spec["nodeSelector"] = json!(selector);
            }
            if let Some(tolerations) = tolerations {
                spec["tolerations"] = json!(tolerations);
            }
            if let Some(terms) = terms {
                spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
            }
            if !node.is_empty() {
                spec["nodeName"] = json!(node);
            }
            spec
        },
    )
}

fn metadata() -> impl Strategy<Value = Value> {
    option::weighted(0.3, select(&["pool-a", "pool-b", "pool-a-gpu", "pool-c", "", "typo"][..])).prop_map(
        |pool| match pool {
            Some(pool) => json!({"name": "p", "annotations": {"croft.dev/pool": pool}}),
            None => json!({"name": "p"}),
        },
    )
}

fn review_of(namespace: &str, kind: &str, operation: &str, object: &Value, old: &Value) -> Vec<u8> {
    let group = if kind == "DaemonSet" { "apps" } else { "" };
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "1", "kind": {"group": group, "version": "v1", "kind": kind}, "namespace": namespace,
            "operation": operation, "userInfo": {"username": "jane"}, "object": object, "oldObject": old},
    }))
    .unwrap()
}

/// The object as it would be stored, and whether anything was patched; `None` if it is refused.
fn admitted(tenants: &Tenants, namespace: &str, kind: &str, object: &Value) -> Option<(Value, bool)> {
    let body = review_of(namespace, kind, "CREATE", object, &Value::Null);
    let outcome = evaluate(tenants, &review::parse(&body).unwrap(), Phase::Mutate);
    if !outcome.allowed() {
        assert!(outcome.patch.is_empty());
        return None;
    }
    let changed = !outcome.patch.is_empty();
    let patch: json_patch::Patch = serde_json::from_str(&outcome.patch.into_json()).unwrap();
    let mut stored = object.clone();
    json_patch::patch(&mut stored, &patch).expect("the patch applies to what it was made of");
    Some((stored, changed))
}

/// Every node of the world as the scheduler sees it, and its pool.
fn places() -> Vec<(Place, Option<String>)> {
    let pools = world::pools();
    let mut places = Vec::new();
    for (name, pool) in [
        ("free-1", None),
        ("a-1", Some("pool-a")),
        ("gpu-1", Some("pool-a-gpu")),
        ("b-1", Some("pool-b")),
        ("c-1", Some("pool-c")),
        ("d-1", Some("pool-d")),
        ("x86-1", Some("x86")),
        ("team-1", Some("team")),
    ] {
        let mut node = world::node(name, pool.and_then(|p| pools.iter().find(|x| x.name == p)));
        if pool == Some("team") {
            // Of its second template. Without the template's taint, it is open to more.
            node.labels.insert(TEMPLATE_LABEL.to_owned(), "second".to_owned());
        }
        places.push((
            Place {
                name: node.name,
                labels: node.labels.into_iter().chain([("zone".to_owned(), "z".to_owned())]).collect(),
                taints: node.taints,
            },
            pool.map(str::to_owned),
        ));
    }
    places
}

/// The pools of a namespace, by hand; `None` for a non-tenant namespace.
fn allowed(namespace: &str) -> Option<&'static [&'static str]> {
    match namespace {
        "tenant-a" | "tenant-a-gpu" => Some(&["pool-a", "pool-a-gpu"]),
        "tenant-b" | "labelled" => Some(&["pool-b"]),
        "tenant-c" => Some(&["pool-c", "pool-a-gpu"]),
        "tenant-d" => Some(&["pool-d"]),
        "tenant-e" => Some(&["x86", "team", "arm", "gpu", "spot"]),
        _ => None,
    }
}

fn check_invariant(namespace: &str, spec: &Value) -> Result<(), TestCaseError> {
    if namespace == "kube-system" {
        return Ok(());
    }
    for (place, pool) in places() {
        let right = match (allowed(namespace), pool.as_deref()) {
            (Some(pools), Some(pool)) => pools.contains(&pool),
            (Some(_), None) => false,
            (None, None) => true,
            (None, Some(pool)) => namespace == "agents" && pool == "pool-c",
        };
        prop_assert!(right || !fits(spec, &place), "{namespace}: fits on {} in {pool:?}: {spec}", place.name);
    }
    Ok(())
}

/// Without empty lists and maps: removing the last injected entry leaves its list behind.
fn pruned(value: Value) -> Value {
    let something =
        |v: &Value| v.as_object().is_none_or(|o| !o.is_empty()) && v.as_array().is_none_or(|a| !a.is_empty());
    match value {
        Value::Object(o) => {
            o.into_iter().map(|(k, v)| (k, pruned(v))).filter(|(_, v)| something(v)).collect()
        }
        Value::Array(a) => a.into_iter().map(pruned).filter(something).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pod_fits_where_it_must_not(namespace in select(&NAMESPACES[..]), metadata in metadata(), spec in spec(), reject: bool) {
        let non_tenant_pods = if reject { NonTenantPods::Reject } else { NonTenantPods::KeepOut };
        let tenants = world::world(Config { non_tenant_pods, ..Config::default() });
        let pod = json!({"metadata": metadata, "spec": spec});
        if let Some((stored, changed)) = admitted(&tenants, namespace, "Pod", &pod) {
            check_invariant(namespace, &stored["spec"])?;
            let (again, more) = admitted(&tenants, namespace, "Pod", &stored).expect("what Croft made is allowed");
            prop_assert!(!more && again == stored, "applied twice is not once: {stored}");
            // Everything that the tenant wrote is still there.
            let kept = |field: &str| spec[field].as_array().is_none_or(|list| {
                list.iter().all(|item| stored["spec"][field].as_array().unwrap().contains(item))
            });
            prop_assert!(kept("tolerations"));
            let body = review_of(namespace, "Pod", "CREATE", &stored, &Value::Null);
            let last = evaluate(&tenants, &review::parse(&body).unwrap(), Phase::Validate);
            prop_assert!(last.allowed(), "{:?}", last.denial);
            // Validation refuses an object that mutation would still change.
            let body = review_of(namespace, "Pod", "CREATE", &pod, &Value::Null);
            prop_assert_eq!(evaluate(&tenants, &review::parse(&body).unwrap(), Phase::Validate).allowed(), !changed);
        }
    }

    #[test]
    fn no_pod_of_a_daemonset_fits_where_it_must_not(
        first in select(&NAMESPACES[..]), second in select(&NAMESPACES[..]), metadata in metadata(), mut spec in spec(),
    ) {
        let tenants = world::world(Config::default());
        spec.as_object_mut().unwrap().remove("nodeName");
        let object = json!({"metadata": {"name": "d"}, "spec": {"template": {"metadata": metadata, "spec": spec}}});
        let Some((stored, _)) = admitted(&tenants, first, "DaemonSet", &object) else { return Ok(()) };
        check_invariant(first, &stored["spec"]["template"]["spec"])?;
        let (again, more) = admitted(&tenants, first, "DaemonSet", &stored).expect("what Croft made is allowed");
        prop_assert!(!more && again == stored, "applied twice is not once: {stored}");
        // The mapping changes, and with it the owner of the namespace: the result is the same as if it had been so from
        // the start. An exempt namespace stays as it is; Override has dropped what it overrode.
        if second == "kube-system" || first == "tenant-c" {
            return Ok(());
        }
        let fresh = admitted(&tenants, second, "DaemonSet", &object);
        let moved = admitted(&tenants, second, "DaemonSet", &stored);
        prop_assert_eq!(fresh.is_some(), moved.is_some(), "{}", stored);
        if let (Some((fresh, _)), Some((moved, _))) = (fresh, moved) {
            check_invariant(second, &moved["spec"]["template"]["spec"])?;
            prop_assert_eq!(pruned(fresh), pruned(moved), "{}", stored);
        }
    }

    #[test]
    fn an_update_never_widens(namespace in select(&NAMESPACES[..]), before in spec(), after in spec()) {
        let tenants = world::world(Config::default());
        let Some((old, _)) = admitted(&tenants, namespace, "Pod", &json!({"metadata": {"name": "p"}, "spec": before})) else {
            return Ok(());
        };
        // The changes that the API server permits on a bound or pending pod: tolerations are added, and a gated pod's
        // selector is extended.
        let mut new = old.clone();
        let spec = new["spec"].as_object_mut().unwrap();
        for toleration in after["tolerations"].as_array().into_iter().flatten() {
            spec.entry("tolerations").or_insert(json!([])).as_array_mut().unwrap().push(toleration.clone());
        }
        for (key, value) in after["nodeSelector"].as_object().into_iter().flatten() {
            spec.entry("nodeSelector").or_insert(json!({})).as_object_mut().unwrap().entry(key).or_insert(value.clone());
        }
        let body = review_of(namespace, "Pod", "UPDATE", &new, &old);
        let outcome = evaluate(&tenants, &review::parse(&body).unwrap(), Phase::Both);
        prop_assert!(outcome.patch.is_empty(), "an update is never patched");
        if outcome.allowed() {
            check_invariant(namespace, &new["spec"])?;
        }
    }

    #[test]
    fn whatever_is_sent_is_answered(bytes in vec(any::<u8>(), 0..400), cut in 0..600_usize, flip in any::<u8>(), spec in spec()) {
        let _ = review::parse(&bytes);
        let tenants = world::world(Config::default());
        let mut body = review_of("tenant-a", "Pod", "CREATE", &json!({"metadata": {}, "spec": spec}), &Value::Null);
        let at = cut % body.len();
        body[at] = flip;
        if let Ok(request) = review::parse(&body) {
            let _ = evaluate(&tenants, &request, Phase::Both);
        }
        body.truncate(at);
        prop_assert!(review::parse(&body).is_err(), "half a review is none");
    }
}

#[test]
fn update_with_a_comparison_that_reaches_a_pool_is_refused() {
    // Values that Kubernetes reads as integers, and values that it doesn't.
    let values = ["007", "+5", "8", "x", "40", "100"];
    let pools: Vec<_> =
        values.iter().map(|v| world::pool(&format!("pool-{v}"), "size", v, &[Effect::NoSchedule])).collect();
    let tenants = Tenants::offline(
        Config::default(),
        vec![world::tenant("forty", &["forty"], &["pool-40"])],
        pools,
        vec![world::namespace("forty", None), world::namespace("non-tenant", None)],
        Vec::new(),
    );
    for (namespace, reachable) in [("forty", &[8, 100][..]), ("non-tenant", &[8, 40, 100][..])] {
        let selector = if namespace == "forty" { json!({"size": "40"}) } else { json!({}) };
        let old = json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeSelector": selector}});
        for own in -2..=102 {
            for (operator, reaches) in [
                ("Lt", reachable.iter().any(|value| *value < own)),
                ("Gt", reachable.iter().any(|value| *value > own)),
                ("Equal", reachable.contains(&own)),
            ] {
                let mut new = old.clone();
                new["spec"]["tolerations"] = json!([{"key": "size", "operator": operator, "value": own.to_string(), "effect": "NoSchedule"}]);
                let body = review_of(namespace, "Pod", "UPDATE", &new, &old);
                let allowed = evaluate(&tenants, &review::parse(&body).unwrap(), Phase::Both).allowed();
                assert_eq!(allowed, !reaches, "{namespace}: {operator} {own}");
            }
        }
    }
}

#[test]
fn update_that_extends_the_selector_by_a_foreign_pool_is_refused_and_an_old_selector_is_not_evaluated_again()
{
    let pools = [("pool-own", "size", "40"), ("pool-other", "disk", "ssd")];
    let tenants = Tenants::offline(
        Config::default(),
        vec![
            world::tenant("own", &["own"], &["pool-own"]),
            world::tenant("other", &["other"], &["pool-other"]),
        ],
        pools.map(|(name, key, value)| world::pool(name, key, value, &[Effect::NoSchedule])).to_vec(),
        vec![world::namespace("own", None), world::namespace("other", None)],
        Vec::new(),
    );
    let pod = |selector: Value| json!({"metadata": {"name": "p"}, "spec": {"containers": [], "nodeSelector": selector}});
    let own = json!({"size": "40"});
    for (before, after, allowed) in [
        (own.clone(), json!({"size": "40", "zone": "a"}), true),
        (own.clone(), json!({"size": "40", "disk": "ssd"}), false),
        (own, json!({"size": "40", "disk": "hdd"}), false),
        // Its tenant had that key before another one declared a pool with it.
        (json!({"size": "40", "disk": "ssd"}), json!({"size": "40", "disk": "ssd", "zone": "a"}), true),
    ] {
        let body = review_of("own", "Pod", "UPDATE", &pod(after.clone()), &pod(before));
        let outcome = evaluate(&tenants, &review::parse(&body).unwrap(), Phase::Both);
        assert_eq!(outcome.allowed(), allowed, "{after}: {:?}", outcome.denial);
    }
}
