#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use croft_api::TenantPool;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};

use super::*;
use crate::{mistakes::every_error, tree::read};

fn pod(text: &str) -> Result<Pod, (u32, String)> {
    let tree = read(text, &mut Vec::new()).unwrap().pop().unwrap();
    decode::<Pod>(&tree).map_err(|e| (e.line, e.to_string()))
}

const HEAD: &str = "apiVersion: v1\nkind: Pod\n";

#[test]
fn invalid_values_are_refused_with_line_and_field() {
    for (body, line, message) in [
        (
            "metadata: {labels: {a: 1}}",
            3,
            "metadata.labels.a: expected a string, found the number 1; quote it if text is meant: \"1\"",
        ),
        (
            "metadata: {labels: {a: yes}}",
            3,
            "metadata.labels.a: expected a string, found the boolean true; quote it if text is meant: \"true\"",
        ),
        ("spec:\n  containrs: []", 4, "spec.containrs: there is no such field; did you mean \"containers\"?"),
        ("spec:\n  zzz: []", 4, "spec.zzz: there is no such field"),
        ("spec:\n  containers: {}", 4, "spec.containers: expected a list, found an object"),
        (
            "spec:\n  containers:\n  - name: a\n    resources: {limits: {cpu: lots}}",
            6,
            "spec.containers[0].resources.limits.cpu: \"lots\" isn't a quantity; write a number with an optional suffix, such as \"500m\", \"2\" or \"64Gi\"",
        ),
        (
            "spec:\n  containers:\n  - ports:\n    - containerPort: \"80\"",
            6,
            "spec.containers[0].ports[0].containerPort: expected a 32-bit integer, found the string \"80\"",
        ),
        (
            "spec:\n  priority: 99999999999",
            4,
            "spec.priority: 99999999999 is out of range, expected a 32-bit integer",
        ),
        ("spec: []", 3, "spec: expected an object, found a list"),
    ] {
        assert_eq!(pod(&format!("{HEAD}{body}\n")).unwrap_err(), (line, message.to_owned()), "{body}");
    }
}

#[test]
fn null_numbers_as_quantities_and_int_or_string_are_decoded() {
    let got = pod(&format!(
        "{HEAD}metadata: {{name: a, labels: {{empty: }}, annotations: null}}\nspec:\n  hostNetwork: null\n  containers:\n  \
         - name: a\n    resources: {{requests: {{cpu: 0.5, memory: 1e9, ephemeral-storage: 5}}}}\n    livenessProbe: {{httpGet: {{port: 80}}}}\n"
    ))
    .unwrap();
    let requests = got.spec.as_ref().unwrap().containers[0].resources.clone().unwrap().requests.unwrap();
    assert_eq!(requests["cpu"].0, "0.5");
    assert_eq!(requests["memory"].0, "1000000000");
    assert_eq!(got.metadata.labels.unwrap()["empty"], "");
    assert_eq!(got.metadata.annotations, None);
}

#[test]
fn unknown_fields_are_left_out_with_line_and_path_and_the_rest_is_decoded() {
    let text = format!(
        "{HEAD}metadata: {{name: a}}\nspec:\n  containrs: []\n  containers:\n  - name: a\n  - name: b\n    ports:\n    \
         - {{containerPort: 80, weight: {{a: 1}}}}\n    imag: x\n  nodeSelector: {{any: key}}\nzzz: 1\n"
    );
    let tree = read(&text, &mut Vec::new()).unwrap().pop().unwrap();
    let mut unknown = Vec::new();
    let pod: Pod = decode_known(&tree, &mut unknown).unwrap();
    let spec = pod.spec.unwrap();
    assert_eq!(spec.containers[1].ports.as_ref().unwrap()[0].container_port, 80);
    assert_eq!(spec.node_selector.unwrap()["any"], "key");
    let found: Vec<(u32, String)> = unknown.iter().map(|e| (e.line, e.field())).collect();
    let expected = [
        (5, "spec.containrs"),
        (10, "spec.containers[1].ports[0].weight"),
        (11, "spec.containers[1].imag"),
        (13, "zzz"),
    ];
    assert_eq!(found, expected.map(|(line, field)| (line, field.to_owned())));
    // A value of another type is an error all the same.
    let text = format!("{HEAD}spec:\n  containrs: []\n  priority: high\n");
    let tree = read(&text, &mut Vec::new()).unwrap().pop().unwrap();
    let error = decode_known::<Pod>(&tree, &mut unknown).unwrap_err();
    assert_eq!((error.line, error.field().as_str()), (5, "spec.priority"));
}

#[test]
fn integral_float_decodes_as_integer() {
    let tree = read(
        "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: 3.0, selector: {}, template: {}}\n",
        &mut Vec::new(),
    )
    .unwrap()
    .pop()
    .unwrap();
    assert_eq!(decode::<Deployment>(&tree).unwrap().spec.unwrap().replicas, Some(3));
}

#[test]
fn every_mistake_of_an_object_is_found() {
    let text = format!(
        "{HEAD}metadata: {{labels: {{a: 1}}}}
spec:
  replicaz: 1
  priority: high
  containers:
  - {{name: a, resources: {{requests: {{cpu: lots, memory: more}}}}}}
  - {{name: 3, ports: [{{containerPort: x}}]}}
"
    );
    let tree = read(&text, &mut Vec::new()).unwrap().pop().unwrap();
    let first = decode::<Pod>(&tree).unwrap_err();
    let (errors, object) = every_error(first, &tree, |tree| decode::<Pod>(tree));
    let fields: Vec<String> = errors.iter().map(DecodeError::field).collect();
    let expected = [
        "metadata.labels.a",
        "spec.replicaz",
        "spec.priority",
        "spec.containers[0].resources.requests.cpu",
        "spec.containers[0].resources.requests.memory",
        "spec.containers[1].name",
        "spec.containers[1].ports[0].containerPort",
    ];
    assert_eq!(fields, expected);
    assert!(object.is_some());
}

#[test]
fn a_missing_field_hides_no_other_mistake() {
    let text = "apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: p}
spec:
  template:
    spec:
      nodeClassRef: {}
      requirements:
      - {operator: In}
      - {key: 1}
  weight: heavy
";
    let tree = read(text, &mut Vec::new()).unwrap().pop().unwrap();
    let first = decode::<TenantPool>(&tree).unwrap_err();
    let (errors, object) = every_error(first, &tree, |tree| decode::<TenantPool>(tree));
    let mut found: Vec<(u32, String, &str)> =
        errors.iter().map(|e| (e.line, e.field(), e.message())).collect();
    found.sort();
    let required = "this is required";
    let expected = [
        (7, "spec.template.spec.nodeClassRef.name", required),
        (9, "spec.template.spec.requirements[0].key", required),
        (
            10,
            "spec.template.spec.requirements[1].key",
            "expected a string, found the number 1; quote it if text is meant: \"1\"",
        ),
        (10, "spec.template.spec.requirements[1].operator", required),
        (11, "spec.weight", "expected a 32-bit integer, found the string \"heavy\""),
    ];
    assert_eq!(found, expected.map(|(line, field, text)| (line, field.to_owned(), text)));
    assert!(object.is_some());
}

#[test]
fn a_mistake_that_nothing_replaces_ends_the_search() {
    let tree = read("spec: {containers: 3}", &mut Vec::new()).unwrap().pop().unwrap();
    let refuse =
        |_: &Tree| Err::<(), _>(DecodeError::new("no".to_owned()).inside(Step::Key("spec".to_owned())));
    let (errors, object) = every_error(refuse(&tree).unwrap_err(), &tree, refuse);
    assert_eq!((errors.len(), object), (1, None));
}
