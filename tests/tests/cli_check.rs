//! `croft check` on a whole installation: healthy, and with each failure that it detects. Also other commands on a
//! running cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use croft_testkit::{
    Part,
    wait::{Seen, until},
};
use croft_tests::{
    cli::croft,
    stack::{Stack, node_of, running},
};
use kube::ResourceExt as _;

/// A Lease has expired after twice its duration, 20 s; the rest is margin.
const SOON: Duration = Duration::from_secs(90);

/// Waits until `croft check` writes all of `words`, and no other check fails.
async fn says(stack: &Stack, words: &[&str]) {
    until(&words.join(", "), SOON, async || {
        let (code, text) = croft(&stack.plane, "check").await?;
        let all = words.iter().all(|word| text.contains(word));
        let failed = text.lines().filter(|line| line.starts_with("fail")).count();
        let ill = words.iter().filter(|word| word.starts_with("fail")).count();
        anyhow::Ok(Seen::from_option((all && failed == ill && code == u8::from(ill > 0)).then_some(()), text))
    })
    .await
    .unwrap();
}

async fn healthy(stack: &Stack) {
    says(stack, &["the installation is healthy"]).await;
}

async fn kubectl(stack: &Stack, arguments: &str) {
    stack.plane.kubectl(arguments.split(' ')).await.unwrap();
}

/// The webhooks are removed first: in this lab their client config has a URL, which excludes a Service.
async fn reinstall(stack: &Stack) {
    let folder = stack.croft.manifests().join("install");
    kubectl(stack, &format!("delete --ignore-not-found -f {}", folder.join("webhooks.yaml").display())).await;
    kubectl(stack, &format!("apply --server-side --force-conflicts -k {}", folder.display())).await;
}

const ODD: &str = "
apiVersion: croft.dev/v1alpha1
kind: EC2NodeClass
metadata: {name: nowhere}
spec:
  role: croft-node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {no-such: tag}}]
  securityGroupSelectorTerms: [{tags: {croft.dev/discovery: croft}}]
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: classless}
spec: {key: node-pool, template: {spec: {nodeClassRef: {name: no-such-class}}}}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: latecomer}
spec: {namespaces: [tenant-a], pools: [pool-a]}
";

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one cluster, broken and mended step by step")]
async fn check_finds_every_failure_with_its_remedy() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    for file in ["platform.yaml", "workloads.yaml"] {
        let manifest = stack.manifest(&format!("examples/two-tenants/{file}")).unwrap();
        stack.plane.apply(&manifest).await.unwrap();
    }
    let pods = running(&client, "tenant-a", 6).await.unwrap();
    running(&client, "tenant-b", 3).await.unwrap();
    healthy(&stack).await;

    // Pods, nodes and cost.
    let (code, text) = croft(&stack.plane, "top --nodes").await.unwrap();
    assert_eq!(code, 0, "{text}");
    let row = text.lines().find(|line| line.starts_with("tenant-a ")).unwrap_or_else(|| panic!("{text}"));
    let row: Vec<_> = row.split_whitespace().collect();
    // tenant, pools, namespaces, pods, pending
    assert_eq!(row[..5], ["tenant-a", "pool-a", "1", "6", "0"], "{text}");
    assert_ne!(row[6], "0", "{text}");
    for pod in &pods {
        assert!(text.contains(&node_of(pod)), "{text}");
    }
    let (pod, node) = (pods[0].name_any(), node_of(&pods[0]));
    let (code, text) = croft(&stack.plane, &format!("explain pod {pod} -n tenant-a")).await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(&format!("runs on node {node} of pool pool-a")), "{text}");
    assert!(text.contains("placement ok"), "{text}");
    let (code, text) = croft(&stack.plane, "audit").await.unwrap();
    assert_eq!(code, 0, "{text}");

    // Faults that the webhook repairs, while it is down.
    stack.croft.process(Part::Webhook).unwrap().freeze();
    let patch = r#"patch mutatingwebhookconfiguration croft-webhook --type=json -p=[{"op":"replace","path":"/webhooks/0/clientConfig/caBundle","value":"b2RkCg=="}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  configurations: their caBundles differ", "certs/README.md"]).await;
    kubectl(&stack, "delete mutatingwebhookconfiguration croft-webhook").await;
    says(
        &stack,
        &["fail  configurations: there is no MutatingWebhookConfiguration croft-webhook: no pod is placed in its pool"],
    )
    .await;
    stack.croft.process(Part::Webhook).unwrap().thaw();
    reinstall(&stack).await;
    healthy(&stack).await;
    stack.croft.process(Part::Webhook).unwrap().freeze();
    let patch = r#"patch mutatingwebhookconfiguration croft-webhook --type=json -p=[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  configurations:", "don't fail closed"]).await;
    // The webhook repairs what differs from its own output.
    stack.croft.process(Part::Webhook).unwrap().thaw();
    healthy(&stack).await;

    // Faults that the controller repairs, while it is down.
    stack.croft.process(Part::Controller).unwrap().freeze();
    kubectl(&stack, "delete validatingadmissionpolicy croft-pod-placement-keys").await;
    let (code, text) = croft(&stack.plane, "check").await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("fail  policies: the policy croft-pod-placement-keys doesn't exist"), "{text}");
    assert!(text.contains("kubectl apply -f manifests/install/policies.yaml"), "{text}");
    stack.croft.process(Part::Controller).unwrap().thaw();
    reinstall(&stack).await;
    healthy(&stack).await;

    // User errors.
    stack.plane.apply(ODD).await.unwrap();
    says(
        &stack,
        &[
            "fail  classes: EC2NodeClass nowhere isn't ready",
            "fail  pools: TenantPool classless isn't ready",
            "fail  tenants: Tenant latecomer isn't ready",
        ],
    )
    .await;
    kubectl(&stack, "delete tenant latecomer").await;
    kubectl(&stack, "delete tenantpool classless").await;
    kubectl(&stack, "delete ec2nodeclass nowhere").await;
    healthy(&stack).await;

    // An old CRD.
    let patch = r#"patch crd tenants.croft.dev --type=json -p=[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/onConflict"}]"#;
    kubectl(&stack, patch).await;
    says(&stack, &["fail  crds: tenants.croft.dev are of another version than this command"]).await;
    reinstall(&stack).await;
    healthy(&stack).await;

    // No process runs.
    stack.croft.kill(Part::Webhook).unwrap();
    stack.croft.kill(Part::Controller).unwrap();
    says(
        &stack,
        &[
            "fail  webhook: no replica of the webhook renews its Lease: pods of tenants can't be created",
            "fail  controller: no controller leads: no instance is launched or terminated",
        ],
    )
    .await;
    for part in [Part::Webhook, Part::Controller] {
        stack.croft.resume(&stack.plane, part).await.unwrap();
    }
    healthy(&stack).await;
}
