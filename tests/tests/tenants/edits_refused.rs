//! A bad edit is refused at once: by the API server, and by `croft plan` for files, with a sentence that says what to
//! write. `croft_tests::bad_edits` has a bad value for each field of each kind; a field without one fails the test.

use std::collections::BTreeSet;

use croft_api::rules;
use croft_testkit::{Component, ControlPlane, Croft, CroftOptions, Options};
use croft_tests::bad_edits::{Case, base, cases, create, edited};
use serde_json::{Value, json};

fn says(case: &Case, message: &str) {
    for word in case.3 {
        assert!(message.contains(word), "{} {} = {}: {word:?} isn't in: {message}", case.0, case.1, case.2);
    }
}

#[test]
fn files_are_refused_by_the_same_rules() {
    for kind in ["Tenant", "CroftConfig", "TenantPool", "EC2NodeClass", "NodeClaim"] {
        let found = rules::of(kind).unwrap().check_value(&base(kind));
        assert!(found.is_empty(), "{kind}: {found:?}");
    }
    for case in cases() {
        let (kind, path, value, _) = &case;
        if path.starts_with("/metadata") {
            continue;
        }
        let found = rules::of(kind).unwrap().check_value(&edited(kind, path, value).unwrap());
        let text: Vec<String> = found.iter().map(|(path, message)| format!("{path}: {message}")).collect();
        says(&case, &text.join("\n"));
    }
    // Rules of crontabs that a regular expression can't express.
    let reversed =
        edited("TenantPool", "/spec/disruption/budgets/0/schedule", &json!("0 9-5 * * *")).unwrap();
    let found = rules::of("TenantPool").unwrap().check_value(&reversed);
    assert!(found.iter().any(|(path, _)| path.ends_with("budgets[0].schedule")), "{found:?}");
}

/// Every field of a kind's spec except booleans, as in [`Case`], with `0` for an item.
fn fields(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    if let Some(properties) = schema["properties"].as_object() {
        for (name, inner) in properties {
            fields(inner, &format!("{path}/{name}"), found);
        }
    } else if schema["items"]["properties"].is_object() {
        fields(&schema["items"], &format!("{path}/0"), found);
    } else if schema["type"] != "boolean" {
        found.insert(path.to_owned());
    }
}

#[test]
fn every_field_has_an_invalid_value() {
    let cases = cases();
    for crd in croft_api::crds() {
        let kind = crd.spec.names.kind.clone();
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let mut wanted = BTreeSet::new();
        fields(&schema["openAPIV3Schema"]["properties"]["spec"], "/spec", &mut wanted);
        // Of the same types as those of the short form, which have the cases.
        let is_of_template = |field: &str| {
            ["metadata", "spec"].iter().any(|part| field.starts_with(&format!("/spec/templates/0/{part}/")))
        };
        wanted.retain(|field| !is_of_template(field));
        for (_, path, ..) in cases.iter().filter(|case| case.0 == kind) {
            wanted.retain(|field| field != path && !path.starts_with(&format!("{field}/")));
        }
        assert!(wanted.is_empty(), "{kind} has fields without a case here: {wanted:?}");
    }
}

#[tokio::test]
async fn api_server_refusals_say_what_to_write() {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::ControllerManager)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await.unwrap();
    Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    let client = plane.admin().await.unwrap();
    for kind in ["Tenant", "CroftConfig", "TenantPool", "EC2NodeClass", "NodeClaim"] {
        create(&client, kind, &base(kind)).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    for case in cases() {
        let (kind, path, value, _) = &case;
        let answer = create(&client, kind, &edited(kind, path, value).unwrap()).await;
        says(&case, &answer.err().unwrap_or_else(|| "accepted".to_owned()));
    }

    // The command line, with the same objects in files.
    let folder = tempfile::tempdir().unwrap();
    let mut written = Vec::new();
    for (number, case) in cases().into_iter().enumerate() {
        let (kind, path, value, _) = &case;
        let mut object = edited(kind, path, value).unwrap();
        if *path != "/metadata/name" {
            object["metadata"]["name"] =
                json!(if *kind == "CroftConfig" { "default".to_owned() } else { format!("case-{number}") });
        }
        let file = folder.path().join(format!("case-{number}.json"));
        std::fs::write(&file, object.to_string()).unwrap();
        written.push((case, file));
    }
    for (case, file) in written.iter().step_by(17) {
        let (code, text) =
            croft_tests::cli::croft(&plane, &format!("plan -f {}", file.display())).await.unwrap();
        assert_eq!(code, 2, "{} {}: {text}", case.0, case.1);
    }
}
