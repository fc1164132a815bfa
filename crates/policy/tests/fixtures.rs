//! One file per case: the object, the patch, the object with the patch applied, or the refusal. `UPDATE_FIXTURES=1`
//! writes the results for review.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::{fs, path::Path};

use croft_policy::{
    Config, Phase, Tenants, Violation,
    audit::{self, Recreation},
    evaluate, review, view,
};
use serde_json::{Value, json};

fn review_of(case: &Value, object: &Value) -> Vec<u8> {
    let kind = object["kind"].as_str().unwrap();
    let group = object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "kind": {"group": group, "version": "v1", "kind": kind},
            "namespace": case["namespace"], "operation": "CREATE",
            "userInfo": {"username": "jane"}, "object": object,
        },
    });
    serde_json::to_vec(&review).unwrap()
}

fn outcome(tenants: &Tenants, case: &Value, object: &Value) -> Value {
    let body = review_of(case, object);
    let request = review::parse(&body).unwrap();
    let outcome = evaluate(tenants, &request, Phase::Both);
    let rule = outcome.rule.as_str();
    let mut found = json!({"namespace": case["namespace"], "object": case["object"], "rule": rule});
    let fields = found.as_object_mut().unwrap();
    if let Some(pool) = outcome.pool {
        fields.insert("pool".to_owned(), json!(pool));
    }
    if !outcome.warnings.is_empty() {
        fields.insert("warnings".to_owned(), json!(outcome.warnings));
    }
    if let Some(denial) = outcome.denial {
        assert!(outcome.patch.is_empty(), "a refusal has no patch");
        fields.insert("denial".to_owned(), json!(denial.message));
        return found;
    }
    let patch: json_patch::Patch = serde_json::from_str(&outcome.patch.into_json()).unwrap();
    let mut applied = object.clone();
    json_patch::patch(&mut applied, &patch).unwrap();
    fields.insert("patch".to_owned(), json!(patch));
    if !patch.0.is_empty() {
        fields.insert("applied".to_owned(), applied);
    }
    found
}

/// The violations that the audit finds in a pending pod.
fn audited(tenants: &Tenants, case: &Value, pod: &Value) -> Vec<Violation> {
    let (namespace, text) = (case["namespace"].as_str().unwrap(), pod.to_string());
    let pod: view::Pod<'_> = serde_json::from_str(&text).unwrap();
    let found = audit::pod(tenants, namespace, &pod, Recreation::None);
    found.into_iter().map(|finding| finding.violation).collect()
}

#[test]
fn every_fixture_is_as_written() {
    let tenants = world::world(Config::default());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 60, "the fixtures are there");
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        let case: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let found = outcome(&tenants, &case, &case["object"]);
        assert_eq!(name.starts_with("deny-"), found.get("denial").is_some(), "{name}: {found}");
        if std::env::var_os("UPDATE_FIXTURES").is_some() {
            fs::write(&file, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        } else if found != case {
            wrong.push(format!("{name}: {}", serde_json::to_string_pretty(&found).unwrap()));
        }
        if let Some(applied) = found.get("applied") {
            let again = outcome(&tenants, &case, applied);
            assert_eq!(again["patch"], json!([]), "{name}: applied twice is not once");
            let is_pending = applied["kind"] == "Pod" && applied["spec"]["nodeName"].is_null();
            if is_pending && found["rule"] == "Pinned" {
                assert_eq!(audited(&tenants, &case, applied), Vec::<Violation>::new(), "{name}");
                let before = audited(&tenants, &case, &case["object"]);
                assert_eq!(before, [Violation::PodUnpinned], "{name}");
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
