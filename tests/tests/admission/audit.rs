//! Every kind of violation, created before webhook and policies were installed: `croft audit` finds each, and the
//! controller counts the same and writes them into the conditions of tenants and pools.

use std::{
    collections::BTreeMap,
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use clap::Parser as _;
use croft_cli::{Cli, Output};
use croft_policy::Violation;
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{arena::SOON, stack::condition_of};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingWebhookConfiguration,
    },
    core::v1::Namespace,
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::Value;

/// A DaemonSet outside every tenant is planned again after its namespace has had no Tenant for a minute.
const AFTER_ABSENCE: std::time::Duration = std::time::Duration::from_secs(150);

/// With Croft running, these objects would be denied or repaired.
const PLANTED: &str = r"
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-a}
spec: {key: node-pool, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: pool-b}
spec: {key: other-key, value: b, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: a}
spec: {namespaces: [tenant-a], pools: [pool-a]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: b}
spec: {namespaces: [tenant-b], pools: [pool-b], networkIsolation: {enabled: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-a, labels: {croft.dev/tenancy: none}}
---
apiVersion: v1
kind: Namespace
metadata: {name: tenant-b, annotations: {policy.croft.dev/pools: 'node-pool=pool-a:NoSchedule:pool-a'}}
---
apiVersion: v1
kind: Namespace
metadata: {name: no-tenant, labels: {croft.dev/tenancy: none}}
---
apiVersion: v1
kind: Node
metadata: {name: free-1}
---
apiVersion: v1
kind: Node
metadata: {name: a-1, labels: {node-pool: pool-a, node-restriction.kubernetes.io/pool: pool-a}}
spec: {taints: [{key: node-pool, value: pool-a, effect: NoSchedule}]}
---
apiVersion: v1
kind: Node
metadata: {name: a-bare, labels: {node-pool: pool-a, node-restriction.kubernetes.io/pool: pool-a}}
---
apiVersion: v1
kind: Node
metadata: {name: both, labels: {node-pool: pool-a, other-key: b, node-restriction.kubernetes.io/pool: pool-a}}
spec: {taints: [{key: node-pool, value: pool-a, effect: NoSchedule}]}
---
apiVersion: v1
kind: Node
metadata: {name: ghost, labels: {node-restriction.kubernetes.io/pool: gone}}
---
apiVersion: v1
kind: Node
metadata: {name: unmarked, labels: {node-restriction.kubernetes.io/pool: pool-b}}
spec: {taints: [{key: other-key, value: b, effect: NoSchedule}]}
";

/// Younger than the objects that they collide with: creation timestamps have a resolution of one second.
const YOUNGER: &str = r"
apiVersion: croft.dev/v1alpha1
kind: TenantPool
metadata: {name: twin}
spec: {key: node-pool, value: pool-a, provisioner: None}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: young}
spec: {namespaces: [tenant-a], pools: [pool-a]}
---
apiVersion: croft.dev/v1alpha1
kind: Tenant
metadata: {name: lost}
spec: {namespaces: [lost], pools: [nowhere]}
";

/// Namespace, name and spec of the pods.
const PODS: [(&str, &str, &str); 6] = [
    ("tenant-a", "outside", "nodeName: free-1"),
    ("no-tenant", "inside", "nodeName: a-1"),
    ("tenant-b", "both", "nodeName: a-1"),
    ("tenant-a", "unpinned", "schedulerName: mine"),
    ("no-tenant", "not-kept-out", "schedulerName: mine, tolerations: [{operator: Exists}]"),
    ("no-tenant", "fine", "schedulerName: mine"),
];

/// Rule, kind, and the object's name with its namespace.
fn expected() -> Vec<(&'static str, &'static str, &'static str)> {
    let mut all = vec![
        ("PodOutside", "Pod", "tenant-a/outside"),
        ("PodOutside", "Pod", "tenant-b/both"),
        ("PodInside", "Pod", "no-tenant/inside"),
        ("PodInside", "Pod", "tenant-b/both"),
        ("PodUnpinned", "Pod", "tenant-a/unpinned"),
        ("PodNotKeptOut", "Pod", "no-tenant/not-kept-out"),
        ("DaemonSetUnplanned", "DaemonSet", "tenant-a/agent"),
        ("DaemonSetUnplanned", "DaemonSet", "no-tenant/agent"),
        ("NamespaceMetadataStale", "Namespace", "tenant-a"),
        ("NamespaceMetadataStale", "Namespace", "tenant-a"),
        ("NamespaceMetadataStale", "Namespace", "tenant-b"),
        ("NamespaceOpen", "Namespace", "tenant-b"),
        ("NodeUntainted", "Node", "a-bare"),
        ("NodeUnlabelled", "Node", "unmarked"),
        ("NodeInTwoPools", "Node", "both"),
        ("NodeOfNoPool", "Node", "ghost"),
        ("PoolMissing", "Tenant", "lost"),
        ("PoolCollides", "TenantPool", "twin"),
        ("ClaimLost", "Tenant", "young"),
    ];
    all.sort_unstable();
    all
}

/// The output of a command.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The violations that `croft audit` finds, and its exit code.
async fn audited(kubeconfig: PathBuf, format: &'static str) -> (String, bool) {
    let run = move || {
        let kubeconfig = kubeconfig.display().to_string();
        let cli = Cli::parse_from(["croft", "audit", "--kubeconfig", &kubeconfig, "-o", format]);
        let (out, said) = (Written::default(), Written::default());
        let code = croft_cli::run(&cli, &mut Output::to(Box::new(out.clone()), Box::new(said.clone())));
        let text = |written: &Written| String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let clean = format!("{code:?}") == format!("{:?}", std::process::ExitCode::SUCCESS);
        assert_eq!(text(&said), "");
        (text(&out), !clean)
    };
    tokio::task::spawn_blocking(run).await.unwrap()
}

fn found(json: &str) -> Vec<(String, String, String)> {
    let findings: Vec<Value> = serde_json::from_str(json).unwrap();
    let text = |finding: &Value, field: &str| finding[field].as_str().unwrap_or_default().to_owned();
    let mut all: Vec<_> = findings
        .iter()
        .map(|finding| {
            assert!(text(finding, "message").len() > 20, "{finding}");
            let name = match text(finding, "namespace") {
                namespace if namespace.is_empty() => text(finding, "name"),
                namespace => format!("{namespace}/{}", text(finding, "name")),
            };
            (text(finding, "rule"), text(finding, "kind"), name)
        })
        .collect();
    all.sort_unstable();
    all
}

fn by_rule(found: &[(String, String, String)]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> =
        Violation::ALL.iter().map(|rule| (rule.as_str().to_owned(), 0)).collect();
    found.iter().for_each(|(rule, ..)| *counts.get_mut(rule).expect("a rule of the closed set") += 1);
    counts
}

fn daemonset(namespace: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: agent, namespace: {namespace}}}, spec: {{selector: \
         {{matchLabels: {{app: agent}}}}, template: {{metadata: {{labels: {{app: agent}}}}, spec: {{tolerations: [{{operator: \
         Exists}}], containers: [{{name: c, image: c}}]}}}}}}}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one cluster, broken and mended step by step")]
async fn violations_from_before_croft_are_found_and_counted() {
    croft_runtime::process::install_crypto();
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await.unwrap();
    let mut croft = Croft::install(&plane, CroftOptions::find().unwrap()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    plane
        .kubectl([
            "delete",
            "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,\
             mutatingadmissionpolicies,mutatingadmissionpolicybindings",
            "--all",
        ])
        .await
        .unwrap();
    let left = async || {
        let all = Default::default();
        Ok::<_, kube::Error>(
            Api::<MutatingWebhookConfiguration>::all(admin.clone()).list(&all).await?.items.len()
                + Api::<ValidatingWebhookConfiguration>::all(admin.clone()).list(&all).await?.items.len()
                + Api::<ValidatingAdmissionPolicy>::all(admin.clone()).list(&all).await?.items.len(),
        )
    };
    assert_eq!(left().await.unwrap(), 0);
    // The API server takes a moment to forget deleted policies, those that change objects too.
    until("a namespace to keep its label", SOON, async || {
        let namespace: Namespace = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "probe", "labels": {"croft.dev/tenancy": "none"}}}))
        .unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = Api::<Namespace>::all(admin.clone()).create(&dry, &namespace).await?;
        let kept = made.labels().contains_key("croft.dev/tenancy");
        Ok::<_, kube::Error>(Seen::from_option(kept.then_some(()), format!("{:?}", made.labels())))
    })
    .await
    .unwrap();
    until("the planting to go through", SOON, async || {
        let applied = plane.apply(PLANTED).await;
        Ok::<_, String>(Seen::from_option(applied.is_ok().then_some(()), format!("{:?}", applied.err())))
    })
    .await
    .unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    plane.apply(YOUNGER).await.unwrap();
    for namespace in ["tenant-a", "tenant-b", "no-tenant"] {
        let account = format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {namespace}}}}}"
        );
        plane.apply(&account).await.unwrap();
    }
    for namespace in ["tenant-a", "no-tenant"] {
        plane.apply(&daemonset(namespace)).await.unwrap();
    }
    for (namespace, name, spec) in PODS {
        let pod = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{{spec}, containers: [{{name: \
             c, image: c}}]}}}}"
        );
        plane.apply(&pod).await.unwrap();
    }

    // Without any process of Croft.
    let kubeconfig = plane.admin_kubeconfig();
    let (json, broken) = audited(kubeconfig.clone(), "json").await;
    let all = found(&json);
    let shown: Vec<_> =
        all.iter().map(|(rule, kind, name)| (rule.as_str(), kind.as_str(), name.as_str())).collect();
    assert_eq!(shown, expected());
    assert!(broken, "the exit code says that something was found");
    assert!(by_rule(&all).values().all(|count| *count > 0), "every rule was broken: {:?}", by_rule(&all));
    let (text, broken) = audited(kubeconfig.clone(), "text").await;
    assert!(broken && text.contains("19 violations"), "{text}");

    // Croft is installed. It repairs what it owns, reports the rest, and counts the same violations as the command.
    plane
        .kubectl([
            "apply",
            "--server-side",
            "--force-conflicts",
            "-k",
            croft.manifests().join("install").to_str().unwrap(),
        ])
        .await
        .unwrap();
    for part in [Part::Cloud, Part::Webhook, Part::Controller] {
        croft.resume(&plane, part).await.unwrap();
    }
    let health = croft.health(Part::Controller).unwrap();
    until("the controller to count what the command finds", AFTER_ABSENCE, async || {
        let (json, _) = audited(kubeconfig.clone(), "json").await;
        let listed = by_rule(&found(&json));
        let metrics = croft_testkit::http::get(health, "/metrics").await?.body;
        let counted: BTreeMap<String, usize> = metrics
            .lines()
            .filter_map(|line| {
                let (rule, count) = line.strip_prefix("croft_violations{rule=\"")?.split_once("\"} ")?;
                Some((rule.to_owned(), count.parse().ok()?))
            })
            .collect();
        let mended = ["NamespaceMetadataStale", "NamespaceOpen", "DaemonSetUnplanned"]
            .iter()
            .all(|rule| listed.get(*rule) == Some(&0));
        let same = counted == listed && mended;
        Ok::<_, croft_testkit::Error>(Seen::from_option(
            same.then_some(()),
            format!("{counted:?} {listed:?}"),
        ))
    })
    .await
    .unwrap();
    for (tenant, kind, part) in [
        ("a", "Isolated", "1 pods outside its pools (tenant-a/outside on node free-1)"),
        ("a", "Isolated", "2 pods of others in its pools"),
        ("b", "Isolated", "tenant-b/both on node a-1"),
        ("young", "Accepted", "older Tenant a"),
        ("lost", "Accepted", "TenantPool nowhere not found"),
    ] {
        let condition = condition_of::<croft_api::Tenant>(&admin, tenant, kind, "False").await.unwrap();
        assert!(condition.message.contains(part), "{tenant}: {}", condition.message);
    }
    let twin = condition_of::<croft_api::TenantPool>(&admin, "twin", "Accepted", "False").await.unwrap();
    assert!(twin.message.contains("older TenantPool pool-a"), "{}", twin.message);
}
