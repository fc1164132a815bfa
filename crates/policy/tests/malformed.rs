//! Malformed reviews: every shape is refused, and none is evaluated as another object.

use croft_policy::review;
use serde_json::{Value, json};

/// A review with a request as the API server writes it.
fn review(kind: &str, object: Value) -> Value {
    let group = match kind {
        "DaemonSet" | "Deployment" => "apps",
        "CronJob" => "batch",
        "RoleBinding" => "rbac.authorization.k8s.io",
        _ => "",
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "kind": {"group": group, "version": "v1", "kind": kind}, "namespace": "n",
            "operation": "CREATE", "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
            "object": object, "oldObject": null, "dryRun": false,
        },
    })
}

fn spec() -> Value {
    json!({
        "nodeName": "n", "nodeSelector": {"k": "v"},
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 3}],
        "schedulingGates": [{"name": "g"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
             "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}},
    })
}

fn pod() -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"croft.dev/pool": "a"}},
        "spec": spec(),
    })
}

/// One object of every kind that is evaluated.
fn objects() -> Vec<(&'static str, Value)> {
    let template = || json!({"metadata": {}, "spec": spec()});
    let meta = || json!({"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}, "deletionTimestamp": "2026-01-02T03:04:05Z"});
    vec![
        ("Pod", pod()),
        (
            "DaemonSet",
            json!({"kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"template": template()}}),
        ),
        (
            "Deployment",
            json!({"kind": "Deployment", "metadata": {"name": "x"}, "spec": {"template": template()}}),
        ),
        (
            "CronJob",
            json!({"kind": "CronJob", "metadata": {}, "spec": {"jobTemplate": {"spec": {"template": template()}}}}),
        ),
        ("PodTemplate", json!({"kind": "PodTemplate", "metadata": {}, "template": template()})),
        ("Binding", json!({"kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n"}})),
        (
            "RoleBinding",
            json!({"kind": "RoleBinding", "roleRef": {"kind": "ClusterRole", "name": "admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "ci", "namespace": "build"}]}),
        ),
        ("Namespace", json!({"kind": "Namespace", "metadata": meta()})),
        (
            "Node",
            json!({"kind": "Node", "metadata": meta(), "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
        ),
    ]
}

/// Pointers of every value below `path`.
fn places(value: &Value, path: &str, all: &mut Vec<String>) {
    all.push(path.to_owned());
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                places(value, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), all);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                places(value, &format!("{path}/{index}"), all);
            }
        }
        _ => {}
    }
}

fn read(review: &Value) -> Result<(), String> {
    review::parse(review.to_string().as_bytes()).map(drop).map_err(|error| error.to_string())
}

#[test]
fn value_of_another_type_is_refused_in_every_field() {
    for (kind, object) in objects() {
        let whole = review(kind, object);
        read(&whole).unwrap();
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for path in all.iter().filter(|path| !path.ends_with("/dryRun") && !path.ends_with("/oldObject")) {
            let was = whole.pointer(path).unwrap();
            let others = [json!([]), json!({}), json!("x"), json!(7), json!(true), json!([[]]), json!([was])];
            for other in others {
                let same_type = match (was, &other) {
                    (Value::Array(_), Value::Array(list)) => list.is_empty(),
                    (Value::Object(_), Value::Object(_))
                    | (Value::String(_), Value::String(_))
                    | (Value::Number(_), Value::Number(_)) => true,
                    _ => false,
                };
                if same_type {
                    continue;
                }
                let mut changed = whole.clone();
                *changed.pointer_mut(path).unwrap() = other.clone();
                assert!(read(&changed).is_err(), "{kind}: {path} as {other} was read");
            }
        }
    }
}

#[test]
fn request_without_a_required_field_is_refused() {
    for (kind, object) in objects() {
        let whole = review(kind, object);
        let must = |path: &str| {
            let parent = path.rsplit_once('/').unwrap();
            let mut without = whole.clone();
            without.pointer_mut(parent.0).unwrap().as_object_mut().unwrap().remove(parent.1);
            let error = read(&without).expect_err(path);
            assert!(error.starts_with("failed to read "), "{error}");
            let mut null = whole.clone();
            *null.pointer_mut(path).unwrap() = Value::Null;
            assert!(read(&null).is_err(), "{kind}: {path} null");
        };
        for path in
            ["/apiVersion", "/kind", "/request", "/request/uid", "/request/kind", "/request/kind/kind"]
        {
            must(path);
        }
        for path in
            ["/request/kind/version", "/request/operation", "/request/userInfo", "/request/userInfo/username"]
        {
            must(path);
        }
        must("/request/object");
        if !matches!(kind, "Node" | "Namespace") {
            must("/request/namespace");
        }
        for path in ["/request/object/spec", "/request/object/spec/template", "/request/object/template"] {
            if kind != "Node" && whole.pointer(path).is_some() {
                must(path);
            }
        }
    }
    let mut update = review("Pod", pod());
    update["request"]["operation"] = json!("UPDATE");
    assert!(read(&update).unwrap_err().contains("oldObject"));
}

#[test]
fn unknown_enum_values_are_refused() {
    let with = |path: &str, value: Value| {
        let mut review = review("Pod", pod());
        *review.pointer_mut(path).unwrap() = value;
        read(&review).unwrap_err()
    };
    for operation in ["", "create", "PATCH", "*"] {
        assert!(with("/request/operation", json!(operation)).contains("CREATE"), "{operation}");
    }
    assert!(with("/request/kind/version", json!("v2")).contains("only v1"));
    assert!(with("/request/object/kind", json!("DaemonSet")).contains("request.object is a DaemonSet"));
    assert!(with("/request/userInfo/username", json!("")).contains("userInfo.username"));
    for time in ["", "now", "2026-01-02", "2026-01-02T03:04Z", "2026-01-02T03:04:05"] {
        let mut review = review("Pod", pod());
        review["request"]["object"]["metadata"]["deletionTimestamp"] = json!(time);
        assert!(read(&review).is_err(), "{time:?}");
    }
}

#[test]
fn kind_without_rules_needs_only_an_operation() {
    let mut other = review("ConfigMap", json!({"data": []}));
    other["request"].as_object_mut().unwrap().remove("userInfo");
    read(&other).unwrap();
    other["request"].as_object_mut().unwrap().remove("operation");
    assert!(read(&other).is_err());
}
