//! Bypass attempts at a pool of several templates, with all of Croft, in both modes: by labels and taints of its templates, and while
//! its templates are changed. Its nodes are KWOK's, with what two templates give.

use croft_api::{TenantPool, condition::ACCEPTED};
use croft_policy::Mutation;
use croft_testkit::{
    Options,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{Answer, SOON, create, in_mode, kept_arena, may_be_on, pod, pods, settings},
    manifests::{daemon_set, joined},
};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::pods::{End, Harmless, Refused, scheduled};

const POOL: &str = "pool-k";
const NAMESPACE: &str = "tenant-k";
const MARK: &str = "node-restriction.kubernetes.io/pool";
const TEMPLATE: &str = "croft.dev/template";
/// The label, and the taint, that the first template gives.
const LANE: &str = "example.com/lane";

/// The templates of the pool, the first of this name and with these labels.
fn templates(first: &str, labels: &Value) -> Value {
    // The class isn't there: nothing is launched.
    let class = json!({"name": "none"});
    json!([
        {"name": first, "weight": 10, "metadata": {"labels": labels}, "spec": {"nodeClassRef": class,
            "taints": [{"key": LANE, "value": "fast", "effect": "NoSchedule"}]}},
        {"name": "rest", "spec": {"nodeClassRef": class}},
    ])
}

fn fast(first: &str) -> Value {
    templates(first, &json!({LANE: "fast"}))
}

fn node(name: &str, template: &str, is_fast: bool) -> Value {
    let mut taints = vec![json!({"key": "node-pool", "value": POOL, "effect": "NoSchedule"})];
    let mut labels = json!({"lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "node-pool": POOL, MARK: POOL, TEMPLATE: template});
    if is_fast {
        labels[LANE] = json!("fast");
        taints.push(json!({"key": LANE, "value": "fast", "effect": "NoSchedule"}));
    }
    let amounts = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints}, "status": {"capacity": amounts, "allocatable": amounts}})
}

fn platform() -> String {
    joined(&[
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": POOL},
            "spec": {"key": "node-pool", "templates": fast("fast")}}),
        json!({"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "k"},
            "spec": {"namespaces": [NAMESPACE], "pools": [POOL]}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "jane", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]}),
        node("k-fast", "fast", true),
        node("k-rest", "rest", false),
    ])
}

fn exists() -> Value {
    json!([{"operator": "Exists"}])
}

/// Tolerates all that the nodes of the first template have.
fn lane() -> Value {
    json!([{"key": "node-pool", "operator": "Equal", "value": POOL},
        {"key": LANE, "operator": "Equal", "value": "fast", "effect": "NoSchedule"}])
}

fn affine(key: &str, value: &str) -> Value {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]);
    json!({"tolerations": exists(), "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

/// What pods of others try. Names end with `round`.
fn attacks(template: &str, round: &str) -> Vec<(&'static str, Value, End)> {
    let by_template = || json!({TEMPLATE: template});
    let with_pool = json!({"node-pool": POOL, TEMPLATE: template});
    let mut all = Vec::new();
    for (namespace, selects, is_named) in [
        ("tenant-a", Refused("may not use"), Refused("run in its pools only")),
        ("no-tenant", Refused("belongs to no tenant"), Refused("belongs to no tenant")),
        ("agents", Refused("belongs to no tenant"), Refused("belongs to no tenant")),
    ] {
        let of = |name: &str, spec: Value| pod(namespace, &format!("{name}-{round}"), spec);
        let agent = json!({"nodeSelector": by_template(), "tolerations": exists()});
        all.extend([
            ("the template's name", of("name", json!({"nodeSelector": by_template()})), Harmless),
            (
                "the template's name, and all tolerations",
                of("name-all", json!({"nodeSelector": by_template(), "tolerations": exists()})),
                Harmless,
            ),
            (
                "the template's name, and its taints",
                of("name-taints", json!({"nodeSelector": by_template(), "tolerations": lane()})),
                Harmless,
            ),
            (
                "the template's label, and its taints",
                of("label", json!({"nodeSelector": {LANE: "fast"}, "tolerations": lane()})),
                Harmless,
            ),
            ("the template's taints alone", of("taints", json!({"tolerations": lane()})), Harmless),
            ("affinity to the template's name", of("affine", affine(TEMPLATE, template)), Harmless),
            ("affinity to the template's label", of("affine-label", affine(LANE, "fast")), Harmless),
            (
                "the pool and the template",
                of("x", json!({"nodeSelector": with_pool, "tolerations": lane()})),
                selects,
            ),
            (
                "the pool's mark",
                of("x", json!({"nodeSelector": {MARK: POOL}, "tolerations": exists()})),
                selects,
            ),
            ("a node of a template", of("x", json!({"nodeName": "k-fast"})), is_named),
            ("a DaemonSet", daemon_set(namespace, &format!("agent-{round}"), agent), Harmless),
        ]);
    }
    all
}

/// What pods of the tenant do.
fn own_pods(template: &str, round: &str) -> Vec<(&'static str, Value, End)> {
    let own = |name: &str, spec: Value| pod(NAMESPACE, &format!("{name}-{round}"), spec);
    let by_lane = || json!({LANE: "fast"});
    let elsewhere = json!({"node-pool": "pool-a", TEMPLATE: template});
    vec![
        ("a pod that asks for nothing", own("plain", json!({})), Harmless),
        (
            "a pod that asks for the lane",
            own("lane", json!({"nodeSelector": by_lane(), "tolerations": lane()})),
            Harmless,
        ),
        ("a pod that doesn't tolerate the lane", own("short", json!({"nodeSelector": by_lane()})), Harmless),
        ("a pod in another's pool", own("x", json!({"nodeSelector": elsewhere})), Refused("may not use")),
    ]
}

/// Namespace, name and node of each pod that has a node.
async fn bound(admin: &Client) -> Vec<(String, String, String)> {
    let of = |pod: Pod| {
        let metadata = pod.metadata;
        Some((metadata.namespace?, metadata.name?, pod.spec?.node_name?))
    };
    pods(admin).await.unwrap().into_iter().filter_map(of).collect()
}

async fn misplaced(admin: &Client) -> Vec<String> {
    let may_be_here = |namespace: &str, node: &str| match namespace {
        NAMESPACE => node.starts_with("k-"),
        _ => may_be_on(namespace, node),
    };
    let all = bound(admin).await.into_iter().filter(|(namespace, _, node)| !may_be_here(namespace, node));
    all.map(|(namespace, name, node)| format!("{namespace}/{name} on {node}")).collect()
}

async fn attack(jane: &Client, admin: &Client, template: &str, round: &str) {
    for (what, object, end) in attacks(template, round).into_iter().chain(own_pods(template, round)) {
        let answer = create(jane, &object, false).await.unwrap();
        match (end, &answer) {
            (Harmless, Answer::Done(_)) => {}
            (Refused(part), Answer::Refused(status)) if status.message.contains(part) => {}
            _ => panic!("{what}, {}: {}", object["metadata"]["namespace"], answer.sentence()),
        }
    }
    gated(jane, template, round).await;
    scheduled(admin).await;
    assert_eq!(misplaced(admin).await, Vec::<String>::new(), "{round}");
    let bound = bound(admin).await;
    let home = |name: &str| {
        let name = format!("{name}-{round}");
        let found = bound.iter().find(|(namespace, own, _)| namespace == NAMESPACE && *own == name);
        found.map(|(_, _, node)| node.as_str())
    };
    assert_eq!(
        [home("plain"), home("lane"), home("short")],
        [Some("k-rest"), Some("k-fast"), None],
        "{round}"
    );
}

/// A pod that selects the template once it was evaluated, before its gate is lifted. Whether that is refused or not, it stays off.
async fn gated(jane: &Client, template: &str, round: &str) {
    let name = format!("gated-{round}");
    let spec = json!({"schedulingGates": [{"name": "x.dev/y"}], "tolerations": [{"operator": "Exists"}]});
    for namespace in ["tenant-a", "no-tenant"] {
        assert!(create(jane, &pod(namespace, &name, spec.clone()), false).await.unwrap().is_done());
        let api: Api<Pod> = Api::namespaced(jane.clone(), namespace);
        for change in [json!({"nodeSelector": {TEMPLATE: template}}), json!({"schedulingGates": null})] {
            let patch = Patch::Merge(json!({"spec": change}));
            match api.patch(&name, &PatchParams::default(), &patch).await {
                Ok(_) | Err(kube::Error::Api(_)) => {}
                Err(error) => panic!("{namespace}/{name}: {error}"),
            }
        }
    }
}

async fn edit(client: &Client, spec: &Value, dry_run: bool) -> Result<(), String> {
    let params = PatchParams { dry_run, ..PatchParams::default() };
    let api: Api<TenantPool> = Api::all(client.clone());
    match api.patch(POOL, &params, &Patch::Merge(json!({"spec": spec}))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until the pool is accepted, or isn't, with these words.
async fn accepted(admin: &Client, status: &str, words: &str) {
    let api: Api<TenantPool> = Api::all(admin.clone());
    until(&format!("Accepted {status} {words}"), SOON, async || {
        let conditions = api.get(POOL).await?.status.map(|status| status.conditions).unwrap_or_default();
        let found = conditions.into_iter().find(|condition| condition.type_ == ACCEPTED);
        let is_it = found.as_ref().is_some_and(|c| c.status == status && c.message.contains(words));
        Ok::<_, kube::Error>(Seen::from_option(is_it.then_some(()), format!("{found:?}")))
    })
    .await
    .unwrap();
}

/// Edits of templates that would open the pool, or another one.
async fn edits(jane: &Client, admin: &Client) {
    let own = json!([{"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"}]);
    let class = json!({"name": "none"});
    let with = |key: &str, value: &Value| json!([{"name": "x", "spec": {"nodeClassRef": class, key: value}}]);
    for (what, spec, part) in [
        (
            "the pool's own label",
            json!({"templates": templates("x", &json!({"node-pool": "pool-a"}))}),
            "key already",
        ),
        (
            "the mark of another pool",
            json!({"templates": templates("x", &json!({MARK: "pool-a"}))}),
            "a key of your own",
        ),
        (
            "the label of a template",
            json!({"templates": templates("x", &json!({TEMPLATE: "y"}))}),
            "a key of your own",
        ),
        ("the pool's own taint", json!({"templates": with("taints", &own)}), "spec.effects"),
        (
            "the pool's own taint at the start",
            json!({"templates": with("startupTaints", &own)}),
            "spec.effects",
        ),
        ("no template", json!({"templates": null}), "needs spec.template"),
        ("both forms", json!({"template": {"spec": {"nodeClassRef": class}}}), "write one of the two"),
        ("no effect", json!({"effects": []}), "effects"),
    ] {
        let said = edit(admin, &spec, true).await;
        assert!(said.as_ref().is_err_and(|message| message.contains(part)), "{what}: {said:?}");
    }
    let said = edit(jane, &json!({"templates": fast("fast")}), true).await;
    assert!(said.as_ref().is_err_and(|message| message.contains("forbidden")), "{said:?}");

    // Pods of tenant-a that ask for its second pool would be bound to such nodes by the label alone.
    let taken = json!({"templates": templates("fast", &json!({"other-key": "two"}))});
    edit(admin, &taken, false).await.unwrap();
    accepted(admin, "False", "other-key=two of TenantPool pool-a2").await;
    edit(admin, &json!({"templates": fast("fast")}), false).await.unwrap();
    accepted(admin, "True", "").await;
}

#[tokio::test]
async fn templates_of_a_pool_open_it_to_nobody() {
    let (plane, _croft) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    plane.apply(&platform()).await.unwrap();
    until("the tenant's pods pinned", SOON, async || {
        let said = create(&admin, &pod(NAMESPACE, "probe", json!({})), true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains("\"node-pool\":\"pool-k\"").then_some(()), said))
    })
    .await
    .unwrap();
    accepted(&admin, "True", "").await;
    edits(&jane, &admin).await;
    attack(&jane, &admin, "fast", "first").await;

    // A template by another name: its nodes are of one that is gone, and nothing replaces them, since the class isn't there.
    edit(&admin, &json!({"templates": fast("quick")}), false).await.unwrap();
    attack(&jane, &admin, "fast", "gone").await;
    attack(&jane, &admin, "quick", "renamed").await;

    plane.apply(&settings(Mutation::Policy)).await.unwrap();
    in_mode(&admin, Mutation::Policy).await.unwrap();
    attack(&jane, &admin, "fast", "by-policy").await;
    assert_eq!(misplaced(&admin).await, Vec::<String>::new());
}
