//! The commands that read a cluster, on the real API server.

use croft_testkit::{Component, ControlPlane, Options};
use croft_tests::cli::croft;

const OBJECTS: &str = "\
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: shop}}
---
apiVersion: croft.dev/v1alpha1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{id: sg-1}]
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: shop}
spec:
  nodeSelector: {node-pool: shop}
  tolerations: [{key: node-pool, value: shop, effect: NoSchedule}]
  containers: [{name: a, image: nginx, resources: {requests: {cpu: 1}}}]
";

/// An agent for every node, whose namespace no pool is shared with.
const AGENT: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: logging}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: logging}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: agent, image: agent}]
";

/// Commands in a cluster that Croft isn't installed in: exit code and what they say.
const WITHOUT_CROFT: [(&str, u8, &str); 5] = [
    ("tenant add shop --pool p --apply", 1, "this cluster has no Tenants: install Croft's CRDs"),
    ("tenant remove shop", 1, "this cluster has no Tenants: install Croft's CRDs"),
    ("pause p --reason x", 1, "this cluster has no Tenants: install Croft's CRDs"),
    ("break-glass on", 1, "nothing was changed: there is no ClusterRole croft-break-glass"),
    ("page", 1, "there is no page in namespace croft-system: set page.enabled"),
];

/// Names that there aren't, while there is the Tenant `shop` with a pool of that name.
const WRONG_NAMES: [(&str, u8, &str); 5] = [
    ("tenant remove shpo", 2, "there is no Tenant shpo; did you mean shop?"),
    ("tenant add other --pool shpo --apply", 2, "there is no TenantPool shpo: write one of shop for --pool"),
    ("pause shpo --reason x", 2, "there is no TenantPool shpo; did you mean shop?"),
    ("explain pod waits", 2, "there is one in shop: croft explain pod waits --namespace shop"),
    ("explain pod shop/waits", 2, "there is one in shop: croft explain pod waits --namespace shop"),
];

async fn answers(plane: &ControlPlane, expected: &[(&str, u8, &str)]) -> anyhow::Result<()> {
    for (command, expected, words) in expected {
        let (code, text) = croft(plane, command).await?;
        assert!(code == *expected && text.contains(words), "{command}: {code} {text}");
    }
    Ok(())
}

/// DaemonSets that are kept off pools are named, with what to share. A tenant's own are none of them: sharing the pools with its namespace
/// would open all pools to it.
async fn agents_are_named(plane: &ControlPlane) -> anyhow::Result<()> {
    plane.apply(AGENT).await?;
    plane.apply(&AGENT.replace("logging", "shop")).await?;
    let agents = "warn  node agents: 1 DaemonSet tolerate the taints of pools, and are kept off the pools' nodes: logging/agent";
    for command in ["check", "check --preflight --skip-aws"] {
        let (code, text) = croft(plane, command).await?;
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(agents) && text.contains("sharedWith: [logging]\n"), "{command}: {text}");
        assert!(!text.contains("shop/agent"), "{command}: {text}");
    }
    Ok(())
}

/// A field that `kubectl` wrote is shown before it is changed, too, and changed by --replace.
async fn others_fields_are_replaced(plane: &ControlPlane) -> anyhow::Result<()> {
    let patch = r#"{"spec":{"limits":{"nodes":"5"}}}"#;
    plane.kubectl(["patch", "tenant", "shop", "--type=merge", "-p", patch]).await?;
    let add = "tenant add shop --class default --key node-pool --namespaces shop --limit nodes=7 --apply";
    let shown = r#"spec.limits: {"nodes":"5"} becomes {"nodes":"7"}"#;
    let replace = format!("{add} --replace");
    answers(plane, &[(add, 1, shown), (replace.as_str(), 0, shown)]).await?;
    answers(plane, &[(add, 0, "applied Tenant shop")]).await
}

#[tokio::test]
async fn tenant_is_added_shown_explained_checked_and_removed() -> anyhow::Result<()> {
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Scheduler)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await?;

    let (code, text) = croft(&plane, "check").await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("ok    cluster: Kubernetes v1."), "{text}");
    assert!(text.contains("fail  crds: tenants.croft.dev isn't installed"), "{text}");
    assert!(text.contains("skip  tenants: needs crds"), "{text}");
    let (code, text) = croft(&plane, "top").await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("this cluster has no Tenants: install Croft's CRDs"), "{text}");

    answers(&plane, &WITHOUT_CROFT).await?;
    for crd in croft_api::crds() {
        plane.apply(&serde_json::to_string(&crd)?).await?;
    }
    plane.kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"]).await?;
    plane.apply(OBJECTS).await?;
    let (code, text) = croft(&plane, "check").await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("ok    crds: 5 CRDs, as in this version"), "{text}");
    assert!(text.contains("fail  namespace: there is no namespace croft-system"), "{text}");
    assert!(text.contains("fail  classes: EC2NodeClass default has no status yet"), "{text}");

    let add = "tenant add shop --class default --key node-pool --limit nodes=3 --apply";
    let (code, text) = croft(&plane, add).await?;
    assert_eq!((code, text.as_str()), (0, "applied TenantPool shop\napplied Tenant shop\n"));
    let (code, text) = croft(&plane, add).await?;
    assert_eq!(code, 0, "applying twice is applying once: {text}");
    let wider = "tenant add shop --class default --key node-pool --namespaces shop --limit nodes=9 --apply";
    let (code, text) = croft(&plane, wider).await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains(r#"spec.limits: {"nodes":"3"} becomes {"nodes":"9"}"#), "{text}");
    assert!(text.contains("nothing was applied"), "{text}");
    let limits = ["get", "tenant", "shop", "-o", "jsonpath={.spec.limits.nodes}"];
    assert_eq!(plane.kubectl(limits).await?, "3");
    let (code, text) = croft(&plane, &format!("{wider} --replace")).await?;
    assert_eq!(code, 0, "{text}");
    assert_eq!(plane.kubectl(limits).await?, "9");
    answers(&plane, &WRONG_NAMES).await?;
    others_fields_are_replaced(&plane).await?;
    let (code, text) = croft(&plane, "tenant add shop --class default --key other --apply").await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("key is immutable"), "{text}");

    let (code, text) = croft(&plane, "events --about Pod/absent -n shop").await?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("there is no Pod/absent in shop, and no Event about it"), "{text}");

    agents_are_named(&plane).await?;

    let (code, text) = croft(&plane, "audit -n absent").await?;
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("there is no namespace absent"), "{text}");
    let (code, text) = croft(&plane, "-n shop explain pod waits").await?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("belongs to tenant shop"), "the namespace is named before the command: {text}");
    let (code, text) = croft(&plane, "explain pod waits -n shop").await?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("belongs to tenant shop"), "{text}");
    assert!(text.contains("an instance can be launched for it"), "{text}");
    let (code, text) = croft(&plane, "top").await?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("TENANT") && text.contains("POOL"), "{text}");
    let (code, text) = croft(&plane, "explain tenant missing").await?;
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("there is no Tenant missing"), "{text}");

    let (code, text) = croft(&plane, "tenant remove shop --pools").await?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("Tenant shop would be deleted") && text.contains("nothing was changed"), "{text}");
    plane.kubectl(["get", "tenant", "shop"]).await?;
    let (code, text) = croft(&plane, "tenant remove shop --pools --apply").await?;
    assert_eq!(code, 0, "{text}");
    assert!(plane.kubectl(["get", "tenant", "shop"]).await.is_err());
    assert!(plane.kubectl(["get", "tenantpool", "shop"]).await.is_err());
    plane.stop()?;
    Ok(())
}
