//! Invalid input shows as a condition and an event with a remedy, and affects nothing else.

use croft_api::{EC2NodeClass, Tenant, TenantPool};
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{self, class, deployment, joined},
    stack::{Stack, condition_of, event_about, pods, running},
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// A tenant with its namespace, pool and a Deployment of one pod with this request.
fn tenant(name: &str, class: &str, requirement: Value, cpu: &str) -> String {
    let template = json!({"spec": {"nodeClassRef": {"name": class}, "requirements": [requirement]}});
    let tenant = manifests::tenant(name, name, &json!({"key": "node-pool", "template": template}));
    joined(tenant.iter().chain([&deployment(name, "web", 1, cpu, "256M")]))
}

fn only(key: &str, value: &str) -> Value {
    json!({"key": key, "operator": "In", "values": [value]})
}

fn linux() -> Value {
    only("kubernetes.io/os", "linux")
}

fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "{word:?} isn't in: {message}");
    }
}

#[tokio::test]
async fn errors_show_on_their_object_and_affect_no_other() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let mut elsewhere = class("no-subnets");
    elsewhere["spec"]["subnetSelectorTerms"][0]["tags"]["croft.dev/discovery"] = json!("elsewhere");
    let wrong = [
        // A tenant whose pool doesn't exist.
        "{apiVersion: v1, kind: Namespace, metadata: {name: no-pool}}".to_owned(),
        "{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: no-pool}, spec: {namespaces: [no-pool], pools: [nowhere]}}".to_owned(),
        // A requirement that no type meets.
        tenant("impossible", "default", only("node.kubernetes.io/instance-type", "m5.humongous"), "500m"),
        // Subnet terms without a match.
        elsewhere.to_string(),
        tenant("no-subnets", "no-subnets", linux(), "500m"),
        // A pod too large for every type.
        tenant("too-large", "default", linux(), "10k"),
        class("default").to_string(),
    ];
    stack.plane.apply(&wrong.join("\n---\n")).await.unwrap();

    let ready = condition_of::<Tenant>(&client, "no-pool", "Accepted", "False").await.unwrap();
    says(&ready.message, &["nowhere"]);
    let event = event_about(&client, "Tenant", "no-pool", &ready.reason).await.unwrap();
    says(&event, &["nowhere"]);

    let valid =
        condition_of::<TenantPool>(&client, "impossible", "RequirementsValid", "False").await.unwrap();
    says(&valid.message, &["node.kubernetes.io/instance-type", "m5.humongous"]);
    event_about(&client, "TenantPool", "impossible", &valid.reason).await.unwrap();

    let subnets = condition_of::<EC2NodeClass>(&client, "no-subnets", "SubnetsReady", "False").await.unwrap();
    says(&subnets.message, &["elsewhere"]);
    event_about(&client, "EC2NodeClass", "no-subnets", &subnets.reason).await.unwrap();
    event_about(&client, "TenantPool", "no-subnets", "ClassNotReady").await.unwrap();

    let waiting = pods(&client, "too-large").await.unwrap();
    let [pod] = waiting.as_slice() else { panic!("{waiting:?}") };
    let why = event_about(&client, "Pod", &pod.name_any(), "InsufficientResources").await.unwrap();
    says(&why, &["too-large", "cpu"]);

    // A valid tenant, created after all of these, gets its instance.
    stack.plane.apply(&tenant("fine", "default", linux(), "500m")).await.unwrap();
    running(&client, "fine", 1).await.unwrap();

    // A namespace that two tenants claim stays with the older.
    stack.plane.apply("{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {name: usurper}, spec: {namespaces: [fine], pools: [fine]}}").await.unwrap();
    let accepted = condition_of::<Tenant>(&client, "usurper", "Accepted", "False").await.unwrap();
    says(&accepted.message, &["fine"]);
    event_about(&client, "Tenant", "usurper", &accepted.reason).await.unwrap();
    condition_of::<Tenant>(&client, "fine", "Ready", "True").await.unwrap();

    // Once corrected, pending pods run.
    stack.plane.apply(&class("no-subnets").to_string()).await.unwrap();
    running(&client, "no-subnets", 1).await.unwrap();
    stack.check().unwrap();
}

#[tokio::test]
async fn malformed_objects_are_refused_with_a_remedy() {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::ControllerManager)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await.unwrap();
    Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    let pool = |spec: &str| {
        format!("{{apiVersion: croft.dev/v1alpha1, kind: TenantPool, metadata: {{name: p}}, spec: {spec}}}")
    };
    let tenant = |spec: &str| {
        format!("{{apiVersion: croft.dev/v1alpha1, kind: Tenant, metadata: {{name: t}}, spec: {spec}}}")
    };
    let config = |name: &str| {
        format!(
            "{{apiVersion: croft.dev/v1alpha1, kind: CroftConfig, metadata: {{name: {name}}}, spec: {{}}}}"
        )
    };
    let template = "template: {spec: {nodeClassRef: {name: default}}}";
    for (manifest, words) in [
        (tenant("{pools: [p]}"), vec!["namespaces", "namespaceSelector"]),
        (tenant("{namespaces: [a], pools: []}"), vec!["spec.pools"]),
        (tenant("{namespaces: [a], pools: [p], onConflict: Maybe}"), vec!["Maybe", "Reject", "Override"]),
        (tenant("{namespaces: [a], pools: [p], poolz: [q]}"), vec!["poolz"]),
        (pool("{key: node-pool}"), vec!["spec.template", "provisioner: None"]),
        (pool(&format!("{{effects: [Sometimes], {template}}}")), vec!["Sometimes", "NoSchedule"]),
        (pool(&format!("{{limits: {{cpu: lots}}, {template}}}")), vec!["spec.limits"]),
        (config("other"), vec!["default"]),
    ] {
        let refused = plane.apply(&manifest).await;
        let message =
            refused.err().map(|error| error.to_string()).unwrap_or_else(|| format!("accepted: {manifest}"));
        says(&message, &words);
    }
    plane.apply(&pool(&format!("{{key: one, {template}}}"))).await.unwrap();
    let moved = plane.apply(&pool(&format!("{{key: other, {template}}}"))).await.unwrap_err().to_string();
    says(&moved, &["key is immutable", "make a new pool"]);
    until("the example accepted", croft_tests::stack::EVENTUALLY, async || {
        let folder = CroftOptions::find()?.manifests.join("examples/two-tenants");
        plane
            .kubectl([
                "apply".as_ref(),
                "--dry-run=server".as_ref(),
                "-f".as_ref(),
                folder.join("platform.yaml").as_os_str(),
            ])
            .await
            .map(Seen::Yes)
    })
    .await
    .unwrap();
}
