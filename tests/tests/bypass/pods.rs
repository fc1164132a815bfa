//! Bypass attempts with the permissions of a namespace's admin, by pods, bindings and their subresources, on the real
//! API server with scheduler, controllers and kubelets. `CROFT_MUTATION` chooses the mode.

use std::collections::BTreeMap;

use croft_testkit::{
    ControlPlane, Options,
    wait::{Seen, until},
};
use croft_tests::arena::{Answer, SOON, create, marked_arena, misplaced_pods, of_croft, pod, pods};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const MARK: &str = "node-restriction.kubernetes.io/pool";

/// The expected result of an attack.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// Denied with this message.
    Refused(&'static str),
    /// Admitted, but scheduled only where allowed, or nowhere.
    Harmless,
}
pub(crate) use End::{Harmless, Refused};

fn exists() -> Value {
    json!([{"operator": "Exists"}])
}

fn terms(terms: Value) -> Value {
    json!({"tolerations": exists(), "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn annotated(mut pod: Value, key: &str, value: &str) -> Value {
    pod["metadata"]["annotations"] = json!({key: value});
    pod
}

#[expect(clippy::too_many_lines, reason = "a table of attacks")]
pub(crate) fn attacks() -> Vec<(&'static str, Value, End)> {
    let to_b =
        || json!([{"matchExpressions": [{"key": "node-pool", "operator": "In", "values": ["pool-b"]}]}]);
    let field =
        |node: &str| json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    let unnamed = |namespace: &str| {
        let mut pod = pod(namespace, "", json!({"nodeSelector": {"node-pool": "pool-b"}}));
        pod["metadata"] = json!({"generateName": "x-", "namespace": namespace});
        pod
    };
    let b =
        || pod("tenant-a", "x", json!({"nodeSelector": {"node-pool": "pool-b"}, "tolerations": exists()}));
    vec![
        ("an ordinary pod", pod("tenant-a", "ordinary", json!({})), Harmless),
        ("a foreign pool", b(), Refused("may not use")),
        (
            "a foreign pool by its mark",
            pod("tenant-a", "x", json!({"nodeSelector": {MARK: "pool-b"}})),
            Refused("may not use"),
        ),
        (
            "a pool that isn't",
            pod("tenant-a", "x", json!({"nodeSelector": {"node-pool": "later"}})),
            Refused("may not use"),
        ),
        (
            "two own pools",
            pod("tenant-a", "x", json!({"nodeSelector": {"node-pool": "pool-a", "other-key": "two"}})),
            Refused("two pools"),
        ),
        ("a generated name", unnamed("tenant-a"), Refused("may not use")),
        (
            "a foreign annotation",
            annotated(pod("tenant-a", "x", json!({})), "croft.dev/pool", "pool-b"),
            Refused("may not use"),
        ),
        (
            "a foreign annotation beside the right selector",
            annotated(
                pod("tenant-a", "x", json!({"nodeSelector": {"node-pool": "pool-a"}})),
                "croft.dev/pool",
                "pool-b",
            ),
            Refused("may not use"),
        ),
        (
            "a foreign node",
            pod("tenant-a", "x", json!({"nodeName": "b-1"})),
            Refused("run in its pools only"),
        ),
        (
            "a node without pool",
            pod("tenant-a", "x", json!({"nodeName": "free-1"})),
            Refused("run in its pools only"),
        ),
        ("a node that isn't", pod("tenant-a", "x", json!({"nodeName": "ghost"})), Refused("doesn't know")),
        ("an own node", pod("tenant-a", "named", json!({"nodeName": "a-1"})), Harmless),
        (
            "an own node of the second pool",
            pod("tenant-a", "named-two", json!({"nodeName": "two-1"})),
            Harmless,
        ),
        (
            "an own node against the own selector",
            pod("tenant-a", "x", json!({"nodeName": "two-1", "nodeSelector": {"node-pool": "pool-a"}})),
            Refused("keep one"),
        ),
        (
            "a forged mirror pod",
            annotated(pod("tenant-a", "x", json!({"nodeName": "b-1"})), "kubernetes.io/config.mirror", "x"),
            Refused(""),
        ),
        ("all tolerations", pod("tenant-a", "tolerant", json!({"tolerations": exists()})), Harmless),
        ("affinity to a foreign pool", pod("tenant-a", "affine", terms(to_b())), Harmless),
        ("affinity to a foreign node by field", pod("tenant-a", "fielded", terms(field("b-1"))), Harmless),
        (
            "affinity by one term of two",
            pod(
                "tenant-a",
                "either",
                terms(json!([{"matchExpressions": [{"key": MARK, "operator": "DoesNotExist"}]}, to_b()[0]])),
            ),
            Harmless,
        ),
        (
            "an unknown operator",
            pod("tenant-a", "x", json!({"tolerations": [{"key": "node-pool", "operator": "exists"}]})),
            Refused(""),
        ),
        (
            "a RuntimeClass of a foreign pool",
            pod("tenant-a", "x", json!({"runtimeClassName": "far"})),
            Refused("may not use"),
        ),
        (
            "a RuntimeClass with all tolerations",
            pod("tenant-a", "runtime", json!({"runtimeClassName": "near"})),
            Harmless,
        ),
        (
            "priority",
            pod("tenant-a", "urgent", json!({"priorityClassName": "urgent", "tolerations": exists()})),
            Harmless,
        ),
        ("a gate", pod("tenant-a", "gated", json!({"schedulingGates": [{"name": "x.dev/y"}]})), Harmless),
        (
            "a gate and a foreign pool",
            pod(
                "tenant-a",
                "x",
                json!({"schedulingGates": [{"name": "x.dev/y"}], "nodeSelector": {"node-pool": "pool-b"}}),
            ),
            Refused("may not use"),
        ),
        ("another scheduler", pod("tenant-a", "other-scheduler", json!({"schedulerName": "mine"})), Harmless),
        (
            "a non-tenant pod with all tolerations",
            pod("no-tenant", "tolerant", json!({"tolerations": exists()})),
            Harmless,
        ),
        (
            "a non-tenant pod with one pool's",
            pod("no-tenant", "one", json!({"tolerations": [{"key": "node-pool", "value": "pool-b"}]})),
            Harmless,
        ),
        ("a non-tenant pod to a node by field", pod("no-tenant", "fielded", terms(field("b-1"))), Harmless),
        (
            "a non-tenant pod by one term of two",
            pod(
                "no-tenant",
                "either",
                terms(json!([{"matchExpressions": [{"key": MARK, "operator": "DoesNotExist"}]}, to_b()[0]])),
            ),
            Harmless,
        ),
        (
            "a non-tenant pod with an empty term",
            pod("no-tenant", "empty-term", terms(json!([{}, to_b()[0]]))),
            Harmless,
        ),
        (
            "a non-tenant pod that selects",
            pod("no-tenant", "x", json!({"nodeSelector": {"node-pool": "pool-b"}})),
            Refused("belongs to no tenant"),
        ),
        (
            "a non-tenant pod that selects by the pool-name label",
            pod("no-tenant", "x", json!({"nodeSelector": {MARK: "pool-b"}})),
            Refused("belongs to no tenant"),
        ),
        (
            "a non-tenant pod on a node",
            pod("no-tenant", "x", json!({"nodeName": "a-1"})),
            Refused("belongs to no tenant"),
        ),
        (
            "a non-tenant pod's RuntimeClass",
            pod("no-tenant", "x", json!({"runtimeClassName": "far"})),
            Refused("belongs to no tenant"),
        ),
        (
            "a non-tenant pod's RuntimeClass with tolerations",
            pod("no-tenant", "runtime", json!({"runtimeClassName": "near"})),
            Harmless,
        ),
        (
            "an agent in its pool",
            pod(
                "agents",
                "shared",
                json!({"nodeSelector": {"node-pool": "pool-b"}, "tolerations": exists()}),
            ),
            Harmless,
        ),
        (
            "an agent in another",
            pod("agents", "x", json!({"nodeSelector": {"node-pool": "pool-a"}})),
            Refused("belongs to no tenant"),
        ),
        ("an agent everywhere", pod("agents", "everywhere", json!({"tolerations": exists()})), Harmless),
    ]
}

/// Waits until every pod is bound or unschedulable, except those of no scheduler.
pub(crate) async fn scheduled(admin: &Client) {
    until("every pod tried", SOON, async || {
        let untried: Vec<String> = pods(admin)
            .await?
            .into_iter()
            .filter(|p| {
                let spec = p.spec.as_ref().unwrap();
                let conditions = p.status.iter().flat_map(|s| s.conditions.iter().flatten());
                let tried = conditions.into_iter().any(|c| c.type_ == "PodScheduled");
                spec.node_name.is_none()
                    && !tried
                    && spec.scheduler_name.as_deref() == Some("default-scheduler")
            })
            .map(|p| p.metadata.name.unwrap_or_default())
            .collect();
        anyhow::Ok(Seen::from_option(untried.is_empty().then_some(()), format!("{untried:?}")))
    })
    .await
    .unwrap();
}

/// Every attack, as a namespace's admin, on an arena whose namespaces carry their annotations.
async fn attack(plane: &ControlPlane) {
    let admin = plane.admin().await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    for (what, pod, end) in attacks() {
        // A dry run gets the same answer and has no effect.
        let dry = create(&jane, &pod, true).await.unwrap();
        let answer = create(&jane, &pod, false).await.unwrap();
        assert_eq!(dry.is_done(), answer.is_done(), "{what}: {} / {}", dry.sentence(), answer.sentence());
        match (end, &answer) {
            (Harmless, Answer::Done(_)) => {}
            (Refused(part), Answer::Refused(status)) if status.message.contains(part) => {}
            _ => panic!("{what}: {}", answer.sentence()),
        }
    }
    scheduled(&admin).await;
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());
    let bound =
        pods(&admin).await.unwrap().iter().filter(|p| p.spec.as_ref().unwrap().node_name.is_some()).count();
    assert!(bound >= 10, "the scheduler bound what it could: {bound}");

    bind(plane, &jane, &admin).await;
    subresources(&jane, &admin).await;
    namespaces(plane).await;
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());
}

/// Bindings, by both APIs and by every user who may write them.
async fn bind(plane: &ControlPlane, jane: &Client, admin: &Client) {
    let maker = plane.client_for("maker", &[]).await.unwrap();
    let forged = plane.client_for("system:kube-schedule", &["system:masters"]).await.unwrap();
    let cases = [
        ("tenant-a", "other-scheduler", "b-1", Some("run in its pools only")),
        ("tenant-a", "other-scheduler", "free-1", Some("run in its pools only")),
        ("tenant-a", "other-scheduler", "ghost", Some("doesn't know")),
        ("no-tenant", "unscheduled", "a-1", Some("belongs to no tenant")),
        ("no-tenant", "unscheduled", "free-1", None),
        ("agents", "unscheduled", "a-1", Some("belongs to no tenant")),
        ("agents", "unscheduled", "b-1", None),
        ("tenant-a", "other-scheduler", "a-2", None),
    ];
    for namespace in ["no-tenant", "agents"] {
        let waiting = pod(namespace, "unscheduled", json!({"schedulerName": "mine"}));
        assert!(create(jane, &waiting, false).await.unwrap().is_done());
    }
    for (namespace, name, node, refused) in cases {
        let pods: Api<Pod> = Api::namespaced(maker.clone(), namespace);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
        if let Some(part) = refused {
            for client in [&maker, &forged] {
                let legacy = create(client, &binding, false).await.unwrap();
                assert!(
                    !legacy.is_done() && legacy.sentence().contains(part),
                    "{namespace} {node}: {}",
                    legacy.sentence()
                );
            }
        }
        let result =
            pods.create_subresource::<_, Value>("binding", name, &PostParams::default(), &binding).await;
        match (refused, result) {
            (None, Ok(_)) => {}
            (Some(part), Err(kube::Error::Api(status))) if status.message.contains(part) => {}
            (_, other) => panic!("{namespace}/{name} to {node}: {other:?}"),
        }
    }
    // The default role may not write bindings at all.
    let pods: Api<Pod> = Api::namespaced(jane.clone(), "tenant-a");
    let body = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "gated"}, "target": {"name": "b-1"}});
    assert!(
        pods.create_subresource::<_, Value>("binding", "gated", &PostParams::default(), &body).await.is_err()
    );
    assert_eq!(misplaced_pods(admin).await.unwrap(), Vec::<String>::new());
}

/// Updates of existing pods, by every kind of patch and every subresource.
async fn subresources(jane: &Client, admin: &Client) {
    let pods: Api<Pod> = Api::namespaced(jane.clone(), "tenant-a");
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let apply = PatchParams { dry_run: true, ..PatchParams::apply("jane").force() };
    let foreign = json!({"spec": {"nodeSelector": {"node-pool": "pool-b"}}});
    let merge = |patch: &Value| Patch::Merge(patch.clone());
    let refused = |what: &str, result: Result<Pod, kube::Error>| {
        assert!(
            matches!(&result, Err(kube::Error::Api(s)) if (400..500).contains(&s.code)),
            "{what}: {result:?}"
        );
    };
    refused("merge", pods.patch("gated", &dry, &merge(&foreign)).await);
    refused("strategic", pods.patch("gated", &dry, &Patch::Strategic(&foreign)).await);
    let operations = json!([{"op": "replace", "path": "/spec/nodeSelector/node-pool", "value": "pool-b"}]);
    refused(
        "json",
        pods.patch("gated", &dry, &Patch::Json::<()>(serde_json::from_value(operations).unwrap())).await,
    );
    let applied =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"}, "spec": foreign["spec"]});
    refused("apply", pods.patch("gated", &apply, &Patch::Apply(&applied)).await);
    // Server-side apply of a pod that doesn't exist creates it.
    let fresh = pod("tenant-a", "applied", foreign["spec"].clone());
    refused("apply again", pods.patch("applied", &apply, &Patch::Apply(&fresh)).await);
    let dropped = json!({"spec": {"nodeSelector": null}});
    refused("drop", pods.patch("gated", &dry, &merge(&dropped)).await);
    refused("replace", {
        let mut whole = pods.get("gated").await.unwrap();
        whole.spec.as_mut().unwrap().node_selector = None;
        pods.replace("gated", &PostParams { dry_run: true, ..PostParams::default() }, &whole).await
    });
    // Allowed requests.
    pods.patch("gated", &dry, &merge(&json!({"spec": {"schedulingGates": null}}))).await.unwrap();
    pods.patch("gated", &dry, &merge(&json!({"metadata": {"annotations": {"croft.dev/pool": "pool-b"}}})))
        .await
        .unwrap();
    pods.patch("ordinary", &dry, &merge(&json!({"spec": {"tolerations": null}}))).await.unwrap_err();
    let bare = pods.get("ordinary").await.unwrap();
    let mut tolerations = json!(bare.spec.unwrap().tolerations.unwrap());
    tolerations.as_array_mut().unwrap().push(json!({"operator": "Exists"}));
    refused(
        "a bare toleration",
        pods.patch("ordinary", &dry, &merge(&json!({"spec": {"tolerations": tolerations}}))).await,
    );
    // Ephemeral containers don't affect placement, and status is written by others.
    let ephemeral = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "d"}]}});
    // The default role may not write these.
    let as_admin: Api<Pod> = Api::namespaced(admin.clone(), "tenant-a");
    as_admin
        .patch_subresource("ephemeralcontainers", "ordinary", &dry, &Patch::Strategic(&ephemeral))
        .await
        .unwrap();
    let status: Result<Pod, _> = pods.patch_status("ordinary", &dry, &merge(&foreign)).await;
    assert!(status.is_err() || status.unwrap().spec.unwrap().node_selector.unwrap()["node-pool"] == "pool-a");
    // A pod that is being deleted is let through, including its finalizers.
    let finalizer = json!({"metadata": {"finalizers": ["x.dev/y"]}});
    pods.patch("gated", &PatchParams::default(), &merge(&finalizer)).await.unwrap();
    pods.delete("gated", &DeleteParams::default()).await.unwrap();
    pods.patch("gated", &PatchParams::default(), &merge(&json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
}

/// By namespaces that are created, moved and created again.
async fn namespaces(plane: &ControlPlane) {
    let maker = plane.client_for("maker", &[]).await.unwrap();
    let api: Api<Namespace> = Api::all(maker.clone());
    let namespace = |name: &str, labels: Value, annotations: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels, "annotations": annotations}});
    let answer = create(&maker, &namespace("n1", json!({"team": "a"}), json!({})), false).await.unwrap();
    assert!(!answer.is_done() && answer.sentence().contains("needs the verb assign"), "{answer:?}");
    // Metadata of Croft's is taken back: off the webhook, and with another's pools.
    for (name, labels, annotations) in [
        ("n2", json!({"croft.dev/tenancy": "none"}), json!({})),
        ("n3", json!({}), json!({"policy.croft.dev/pools": "node-pool=pool-b:NoSchedule:pool-b"})),
    ] {
        match create(&maker, &namespace(name, labels, annotations), false).await.unwrap() {
            Answer::Done(made) => assert_eq!(of_croft(&made.metadata), BTreeMap::new(), "{name}"),
            refused @ Answer::Refused(_) => panic!("{name}: {}", refused.sentence()),
        }
    }
    let team = json!({"metadata": {"labels": {"team": "a"}}});
    let result = api.patch("no-tenant", &PatchParams::default(), &Patch::Merge(&team)).await;
    assert!(matches!(&result, Err(kube::Error::Api(s)) if s.code == 403), "{result:?}");
    let onto = json!({"metadata": {"labels": {"croft.dev/tenancy": null}}});
    let kept = api.patch("no-tenant", &PatchParams::default(), &Patch::Merge(&onto)).await.unwrap();
    assert_eq!(of_croft(&kept.metadata).get("croft.dev/tenancy").map(String::as_str), Some("none"));
    // A namespace may choose a default pool among its tenant's.
    let default = |pool: &str| json!({"metadata": {"annotations": {"croft.dev/pool": pool}}});
    api.patch("tenant-a", &PatchParams::default(), &Patch::Merge(default("pool-b"))).await.unwrap();
    until("the default refused", SOON, async || {
        let said = create(&maker, &pod("tenant-a", "defaulted", json!({})), true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains("makes the default").then_some(()), said))
    })
    .await
    .unwrap();
    api.patch("tenant-a", &PatchParams::default(), &Patch::Merge(default("pool-a2"))).await.unwrap();
    until("the default used", SOON, async || {
        let said = create(&maker, &pod("tenant-a", "defaulted", json!({})), true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains("\"other-key\":\"two\"").then_some(()), said))
    })
    .await
    .unwrap();
    // A namespace and a pod in it, at the same time: whichever tenant owns it, the pod never selects a pool
    // unevaluated.
    let own = namespace("fresh", json!({}), json!({}));
    assert!(create(&maker, &own, false).await.unwrap().is_done());
    let reaching =
        pod("fresh", "x", json!({"nodeSelector": {"node-pool": "pool-b"}, "tolerations": exists()}));
    let answer = create(&maker, &reaching, false).await.unwrap();
    assert!(!answer.is_done(), "{}", answer.sentence());
}

#[tokio::test]
async fn no_pod_of_a_namespace_admin_is_misplaced() {
    let (plane, _croft) = marked_arena(Options::default()).await.unwrap();
    attack(&plane).await;
}
