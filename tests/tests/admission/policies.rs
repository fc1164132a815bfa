//! The generated policies alone, on the real API server, with all of Croft down: what they enforce, and what they
//! allow.

use croft_policy::{
    Mutation, NamespaceCreation, Owner, Pool, Provisioner, Subject, Tenant,
    definitions::{POOL_NAME_LABEL, UNREGISTERED_LABEL},
    selector::{Requirement, Selector, Test},
    taint::{Effect, Effects},
};
use croft_testkit::ControlPlane;
use croft_tests::arena::{self, Answer, create, enforced, mark, mark_for, pod, pool, rules, tenant};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

const NO_SCHEDULE: [Effect; 1] = [Effect::NoSchedule];

fn pools() -> Vec<Pool> {
    let hard: Effects = [Effect::NoSchedule, Effect::NoExecute].into_iter().collect();
    let soft: Effects = NO_SCHEDULE.into_iter().collect();
    let mut watched = pool("pool-w", "node-pool", "pool-w", soft, Provisioner::None);
    watched.shared_with = vec!["agents".to_owned()];
    vec![
        pool("pool-a", "node-pool", "pool-a", soft, Provisioner::Croft),
        pool("pool-a2", "other-key", "two", hard, Provisioner::Croft),
        pool("pool-b", "node-pool", "pool-b", soft, Provisioner::Croft),
        pool("pool-k", "by-karpenter", "k", soft, Provisioner::Karpenter),
        watched,
    ]
}

fn tenants() -> Vec<Tenant> {
    vec![
        tenant("a", &["tenant-a", "tenant-new"], &["pool-a", "pool-a2"]),
        tenant("b", &["tenant-b"], &["pool-b"]),
        tenant("lost", &["tenant-lost"], &["pool-gone"]),
    ]
}

/// Creates a namespace without anything of Croft's, with the account that the controller manager would create.
async fn unlabelled(plane: &ControlPlane, name: &str) {
    let account =
        format!("{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {name}}}}}");
    plane
        .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}\n---\n{account}"))
        .await
        .unwrap();
}

async fn start() -> (ControlPlane, Client) {
    let (plane, _) = arena::quiet().await.unwrap();
    // Croft's webhooks fail closed without a server, so they are removed: only the policies are left.
    let webhooks = ["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all"];
    plane.kubectl(webhooks).await.unwrap();
    mark(
        &plane,
        &rules(&tenants(), &pools()),
        &["tenant-a", "tenant-b", "tenant-lost", "no-tenant", "agents"],
    )
    .await
    .unwrap();
    let admin = plane.admin().await.unwrap();
    unlabelled(&plane, "unmarked").await;
    for namespace in ["tenant-a", "tenant-b", "tenant-lost", "no-tenant", "agents"] {
        // The controller manager would create it.
        plane
            .apply(&format!("{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {namespace}}}}}"))
            .await
            .unwrap();
    }
    enforced(&admin, &pod("tenant-a", "x", json!({})), "selects none of the pools").await.unwrap();
    enforced(
        &admin,
        &pod("no-tenant", "x", json!({"tolerations": [{"operator": "Exists"}]})),
        "belongs to no tenant",
    )
    .await
    .unwrap();
    (plane, admin)
}

fn toleration(key: &str, value: &str) -> Value {
    json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
}

fn placed() -> Value {
    json!({"nodeSelector": {"node-pool": "pool-a"}, "tolerations": [toleration("node-pool", "pool-a")]})
}

fn with(mut spec: Value, key: &str, value: Value) -> Value {
    spec[key] = value;
    spec
}

fn selector(requirements: &[(&str, Test)]) -> Selector {
    let requirement = |(key, test): &(&str, Test)| Requirement { key: (*key).to_owned(), test: test.clone() };
    Selector::new(requirements.iter().map(requirement).collect())
}

fn expect(what: &str, answer: &Answer, refused_with: Option<&str>) {
    match refused_with {
        None => assert!(answer.is_done(), "{what}: {}", answer.sentence()),
        Some(part) => {
            assert!(!answer.is_done() && answer.sentence().contains(part), "{what}: {}", answer.sentence());
        }
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn final_pods_are_correct_or_denied() {
    let (plane, admin) = start().await;
    let affinity = |terms: Value| {
        json!({"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let out = json!({"key": POOL_NAME_LABEL, "operator": "DoesNotExist"});
    let early = json!({"key": UNREGISTERED_LABEL, "operator": "DoesNotExist"});
    let off = |key: &str| json!({"key": key, "operator": "DoesNotExist"});
    let (first, other, last) = (off("node-pool"), off("other-key"), off("by-karpenter"));
    let zone = json!({"key": "zone", "operator": "In", "values": ["z"]});
    let name = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    let second =
        |tolerations: Value| json!({"nodeSelector": {"other-key": "two"}, "tolerations": tolerations});
    let none = "selects none of the pools";
    let foreign = "may not use what spec.nodeSelector asks for: ";
    let lacks = "does not tolerate the taints";
    let no_tenant = "belongs to no tenant";
    let cases: Vec<(&str, &str, Value, Option<&str>)> = vec![
        ("as Croft leaves it", "tenant-a", placed(), None),
        ("no selector", "tenant-a", json!({"tolerations": [toleration("node-pool", "pool-a")]}), Some(none)),
        (
            "a foreign pool",
            "tenant-a",
            json!({"nodeSelector": {"node-pool": "pool-b"}}),
            Some(
                "may not use what spec.nodeSelector asks for: node-pool=pool-b; its pools are pool-a, pool-a2: remove \
                 node-pool from spec.nodeSelector, or choose one of them with the annotation croft.dev/pool",
            ),
        ),
        (
            "the value of another key",
            "tenant-a",
            json!({"nodeSelector": {"other-key": "pool-a"}}),
            Some(foreign),
        ),
        (
            "two pools",
            "tenant-a",
            json!({"nodeSelector": {"node-pool": "pool-a", "other-key": "two"}}),
            Some("asks for two pools at once, pool-a and pool-a2"),
        ),
        ("no toleration", "tenant-a", json!({"nodeSelector": {"node-pool": "pool-a"}}), Some(lacks)),
        (
            "a bare toleration",
            "tenant-a",
            with(placed(), "tolerations", json!([{"operator": "Exists"}])),
            None,
        ),
        (
            "another pool's toleration",
            "tenant-a",
            with(placed(), "tolerations", json!([toleration("node-pool", "pool-b")])),
            Some(lacks),
        ),
        ("only one of two effects", "tenant-a", second(json!([toleration("other-key", "two")])), Some(lacks)),
        ("both effects", "tenant-a", second(json!([{"key": "other-key", "value": "two"}])), None),
        (
            "one effect for a time",
            "tenant-a",
            second(json!([toleration("other-key", "two"),
                {"key": "other-key", "value": "two", "effect": "NoExecute", "tolerationSeconds": 60}])),
            Some(lacks),
        ),
        ("the other tenant's own", "tenant-b", placed(), Some(foreign)),
        // One policy knows the keys of pools, the other the tenant's own alone; either may refuse first.
        ("no pool exists", "tenant-lost", placed(), Some("pool-gone")),
        ("an ordinary non-tenant pod", "no-tenant", json!({}), None),
        (
            "a harmless toleration",
            "no-tenant",
            json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
            None,
        ),
        (
            "a preference only",
            "no-tenant",
            json!({"tolerations": [{"operator": "Exists", "effect": "PreferNoSchedule"}]}),
            None,
        ),
        (
            "a pool's key",
            "no-tenant",
            json!({"tolerations": [{"key": "node-pool", "operator": "Exists"}]}),
            Some(no_tenant),
        ),
        (
            "a pool's taint",
            "no-tenant",
            json!({"tolerations": [toleration("node-pool", "pool-a")]}),
            Some(no_tenant),
        ),
        (
            "the pool-name label's key",
            "no-tenant",
            json!({"tolerations": [toleration(POOL_NAME_LABEL, "later")]}),
            Some(no_tenant),
        ),
        (
            "kept out",
            "no-tenant",
            affinity(json!([{"matchExpressions": [out, early, first, other, last]}])),
            None,
        ),
        (
            "kept out, but for a pool's own key",
            "no-tenant",
            affinity(json!([{"matchExpressions": [out, early, first, other]}])),
            Some(no_tenant),
        ),
        (
            "kept out of nodes with a label only",
            "no-tenant",
            affinity(json!([{"matchExpressions": [out]}])),
            Some(no_tenant),
        ),
        (
            "kept out, with a toleration of one key",
            "no-tenant",
            with(
                affinity(json!([{"matchExpressions": [out, early, first]}])),
                "tolerations",
                json!([{"key": "node-pool", "operator": "Exists"}]),
            ),
            None,
        ),
        (
            "kept out beside others",
            "no-tenant",
            affinity(
                json!([{"matchExpressions": [zone, last, other, first, early, out], "matchFields": name}]),
            ),
            None,
        ),
        (
            "kept out in one term of two",
            "no-tenant",
            affinity(json!([{"matchExpressions": [out, early]}, {"matchExpressions": [zone]}])),
            Some(no_tenant),
        ),
        ("kept out by a field", "no-tenant", affinity(json!([{"matchFields": name}])), Some(no_tenant)),
        (
            "kept out by Exists",
            "no-tenant",
            affinity(json!([{"matchExpressions": [{"key": POOL_NAME_LABEL, "operator": "Exists"}]}])),
            Some(no_tenant),
        ),
        (
            "an empty term matches nothing",
            "no-tenant",
            affinity(json!([{"matchExpressions": [out, early, first, other, last]}, {}])),
            None,
        ),
        (
            "a key that no pool has which is shared",
            "agents",
            json!({"tolerations": [{"key": "by-karpenter", "operator": "Exists"}]}),
            Some(no_tenant),
        ),
        (
            "a namespace that shares a pool",
            "agents",
            json!({"tolerations": [toleration("node-pool", "pool-w")]}),
            None,
        ),
        (
            "an exempt namespace",
            "kube-system",
            json!({"tolerations": [{"operator": "Exists"}], "serviceAccountName": "s"}),
            None,
        ),
        ("pinned before its namespace, which a tenant claims, is marked", "tenant-new", placed(), None),
        (
            "pinned before its namespace, which no tenant claims, is marked",
            "unmarked",
            placed(),
            Some(no_tenant),
        ),
        (
            "unpinned before its namespace is marked",
            "unmarked",
            json!({"tolerations": [{"operator": "Exists"}]}),
            Some(no_tenant),
        ),
    ];
    plane
        .apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: s, namespace: kube-system}}")
        .await
        .unwrap();
    unlabelled(&plane, "tenant-new").await;
    for (what, namespace, spec, refused) in cases {
        let answer = create(&admin, &pod(namespace, "case", spec), true).await.unwrap();
        expect(what, &answer, refused);
    }
}

/// Whatever other policies found at other moments of the namespace: no second policy is needed, and nothing that mutated.
#[tokio::test]
async fn one_policy_alone_evaluates_final_pods_in_policy_mode() {
    let (plane, admin) = start().await;
    let marked = ["tenant-a", "tenant-b", "no-tenant"];
    mark_for(&plane, &rules(&tenants(), &pools()), &marked, Mutation::Policy).await.unwrap();
    let mutating = ["delete", "mutatingadmissionpolicybindings", "croft-pods", "--ignore-not-found"];
    plane.kubectl(mutating).await.unwrap();
    // The other policy for created pods refuses nothing but a probe any more.
    let emptied = json!({"spec": {"validations": [
        {"expression": "object.metadata.name != 'probe'", "message": "emptied"}]}});
    Api::<ValidatingAdmissionPolicy>::all(admin.clone())
        .patch("croft-pod-placement", &PatchParams::default(), &Patch::Merge(emptied))
        .await
        .unwrap();
    enforced(&admin, &pod("no-tenant", "probe", json!({})), "emptied").await.unwrap();
    enforced(&admin, &pod("tenant-a", "p", json!({})), "selects none of the pools").await.unwrap();
    unlabelled(&plane, "tenant-new").await;
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let of_b =
        json!({"nodeSelector": {"node-pool": "pool-b"}, "tolerations": [toleration("node-pool", "pool-b")]});
    let built_in = json!({"tolerations": [{"key": POOL_NAME_LABEL, "operator": "Exists"}]});
    let unknown = Some("its pools are not written on it yet");
    let cases = [
        ("as Croft leaves it", "tenant-a", placed(), None),
        ("plain", "tenant-a", json!({}), Some("selects none of the pools")),
        ("tolerant", "tenant-a", tolerant.clone(), Some("selects none of the pools")),
        ("of another", "tenant-a", of_b.clone(), Some("may not use what spec.nodeSelector asks for")),
        ("plain", "tenant-new", json!({}), unknown),
        ("placed", "tenant-new", placed(), unknown),
        ("of another", "tenant-new", of_b.clone(), unknown),
        ("plain", "no-tenant", json!({}), None),
        ("of a tenant", "no-tenant", of_b, Some("belongs to no tenant")),
        ("tolerant", "no-tenant", tolerant, Some("belongs to no tenant")),
        ("of the built-in key", "no-tenant", built_in, Some("belongs to no tenant")),
    ];
    for (what, namespace, spec, refusal) in cases {
        let answer = create(&admin, &pod(namespace, "p", spec), true).await.unwrap();
        expect(&format!("{what} in {namespace}"), &answer, refusal);
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn pod_updates_cannot_widen_placement() {
    let (plane, admin) = start().await;
    let gated = with(placed(), "schedulingGates", json!([{"name": "example.com/wait"}]));
    let made = |namespace: &'static str, name: &'static str, spec: Value| {
        let admin = admin.clone();
        async move { expect(name, &create(&admin, &pod(namespace, name, spec), false).await.unwrap(), None) }
    };
    made("tenant-a", "placed", placed()).await;
    made("tenant-a", "gated", gated).await;
    made("no-tenant", "free", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    made("agents", "agent", json!({})).await;
    // A pod from before its tenant: remove the annotation, create, write it again.
    let early = json!({"schedulingGates": [{"name": "example.com/wait"}]});
    made("unmarked", "early", early).await;
    let mut known = tenants();
    known.push(tenant("late", &["unmarked"], &["pool-a"]));
    mark(&plane, &rules(&known, &pools()), &["unmarked"]).await.unwrap();
    enforced(&admin, &pod("unmarked", "x", json!({})), "selects none of the pools").await.unwrap();

    let base = json!([toleration("node-pool", "pool-a"),
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}]);
    let defaults = json!([base[1], base[2]]);
    let plus = |base: &Value, more: Value| {
        let mut list = base.clone();
        list.as_array_mut().unwrap().push(more);
        json!({"spec": {"tolerations": list}})
    };
    let adds = "adds a toleration";
    let lift = json!({"spec": {"schedulingGates": null}});
    let cases: Vec<(&str, &str, &str, Value, Option<&str>)> = vec![
        ("a label", "tenant-a", "placed", json!({"metadata": {"labels": {"x": "y"}}}), None),
        ("a deadline", "tenant-a", "placed", json!({"spec": {"activeDeadlineSeconds": 600}}), None),
        (
            "a harmless toleration",
            "tenant-a",
            "placed",
            plus(&base, json!({"key": "gpu", "operator": "Exists"})),
            None,
        ),
        ("the own other pool", "tenant-a", "placed", plus(&base, toleration("other-key", "two")), None),
        ("a foreign pool", "tenant-a", "placed", plus(&base, toleration("node-pool", "pool-b")), Some(adds)),
        ("a bare one", "tenant-a", "placed", plus(&base, json!({"operator": "Exists"})), Some(adds)),
        (
            "every value of a key",
            "tenant-a",
            "placed",
            plus(&base, json!({"key": "node-pool", "operator": "Exists"})),
            Some(adds),
        ),
        (
            "other seconds",
            "tenant-a",
            "placed",
            {
                let mut list = base.clone();
                list[1]["tolerationSeconds"] = json!(30);
                json!({"spec": {"tolerations": list}})
            },
            None,
        ),
        (
            "a non-tenant pod's bare one",
            "no-tenant",
            "free",
            plus(&defaults, json!({"operator": "Exists"})),
            Some(adds),
        ),
        (
            "a non-tenant pod's pool",
            "no-tenant",
            "free",
            plus(&defaults, toleration("node-pool", "pool-w")),
            Some(adds),
        ),
        ("an agent's pool", "agents", "agent", plus(&defaults, toleration("node-pool", "pool-w")), None),
        (
            "an agent's other pool",
            "agents",
            "agent",
            plus(&defaults, toleration("node-pool", "pool-a")),
            Some(adds),
        ),
        (
            "a non-tenant pod selects",
            "no-tenant",
            "free",
            json!({"spec": {"nodeSelector": {"node-pool": "pool-a"}}}),
            Some("selects a pool that is not"),
        ),
        (
            "a gated pod selects a foreign pool",
            "tenant-a",
            "gated",
            json!({"spec": {"nodeSelector": {"by-karpenter": "k"}}}),
            Some("selects a pool that is not"),
        ),
        ("a gated pod tightens", "tenant-a", "gated", json!({"spec": {"nodeSelector": {"zone": "z"}}}), None),
        ("a placed pod is let go", "tenant-a", "gated", lift.clone(), None),
        ("a non-tenant pod's gate is lifted", "no-tenant", "free", lift.clone(), None),
        ("an unplaced pod is let go", "unmarked", "early", lift, Some("lifts the last scheduling gate")),
        (
            "an unplaced pod is placed and let go",
            "unmarked",
            "early",
            json!({"spec": {"nodeSelector": {"node-pool": "pool-a"}, "schedulingGates": null, "tolerations": base}}),
            None,
        ),
    ];
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    for (what, namespace, name, patch, refused) in cases {
        let api: Api<Pod> = Api::namespaced(admin.clone(), namespace);
        let result = api.patch(name, &dry, &Patch::Merge(&patch)).await;
        match (refused, result) {
            (None, Ok(_)) => {}
            (Some(part), Err(kube::Error::Api(status))) if status.message.contains(part) => {}
            (_, other) => panic!("{what}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn kubelets_register_and_report_but_cannot_choose_a_pool() {
    let (plane, admin) = start().await;
    let kubelet = plane.client_for("system:node:n1", &["system:nodes"]).await.unwrap();
    let node = |labels: Value, taints: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}});
    let taint = |key: &str, value: &str| json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
    let refused = "register its node with the label";
    let ordinary = json!({"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "z"});
    let cases = [
        ("ordinary labels", node(ordinary.clone(), json!([])), None),
        ("with the pool's taint", node(ordinary.clone(), taint("node-pool", "pool-a")), None),
        (
            "with the label of a pool of Croft's",
            node(json!({"node-pool": "pool-a"}), json!([])),
            Some(refused),
        ),
        ("with any value of its key", node(json!({"node-pool": "later"}), json!([])), Some(refused)),
        (
            "with the label of a pool of others under that key",
            node(json!({"node-pool": "pool-w"}), json!([])),
            None,
        ),
        ("with Karpenter's own label", node(json!({"by-karpenter": "k"}), json!([])), None),
        ("with any value of Karpenter's own key", node(json!({"by-karpenter": "l"}), json!([])), None),
        (
            "with the pool-name label",
            node(json!({POOL_NAME_LABEL: "pool-k"}), json!([])),
            Some("not allowed"),
        ),
    ];
    enforced(&kubelet, &cases[2].1, refused).await.unwrap();
    for (what, node, refused) in &cases {
        expect(what, &create(&kubelet, node, true).await.unwrap(), *refused);
    }
    expect(
        "n1",
        &create(&kubelet, &node(ordinary, taint("node-pool", "pool-a")), false).await.unwrap(),
        None,
    );
    let nodes: Api<Node> = Api::all(kubelet);
    let as_admin: Api<Node> = Api::all(admin);
    let labels = json!({"metadata": {"labels": {"node-pool": "pool-a", POOL_NAME_LABEL: "pool-a"}}});
    as_admin.patch("n1", &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();

    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let label = |value: Value| json!({"metadata": {"labels": {"node-pool": value}}});
    let changes = "add, change or remove the label";
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "m"}]}});
    let cases = [
        ("an ordinary label", json!({"metadata": {"labels": {"a": "b"}}}), None),
        ("another pool", label(json!("pool-b")), Some(changes)),
        ("no pool", label(Value::Null), Some(changes)),
        ("another pool beside", json!({"metadata": {"labels": {"by-karpenter": "k"}}}), Some(changes)),
        (
            "the label of a node that registers",
            json!({"metadata": {"labels": {UNREGISTERED_LABEL: "true"}}}),
            Some(changes),
        ),
    ];
    for (what, patch, refused) in &cases {
        for through_status in [false, true] {
            let result = if through_status {
                nodes.patch_status("n1", &dry, &Patch::Merge(patch)).await
            } else {
                nodes.patch("n1", &dry, &Patch::Merge(patch)).await
            };
            match (refused, result) {
                (None, Ok(_)) => {}
                (Some(part), Err(kube::Error::Api(status))) if status.message.contains(part) => {}
                (_, other) => panic!("{what}, through status {through_status}: {other:?}"),
            }
        }
    }
    nodes.patch_status("n1", &dry, &Patch::Strategic(status)).await.expect("a kubelet posts its status");
    // NodeRestriction protects the taints of nodes in general; the policy those of pools.
    let untainted = json!({"spec": {"taints": null}});
    assert!(nodes.patch("n1", &dry, &Patch::Merge(untainted)).await.is_err());
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn only_users_with_assign_move_namespaces() {
    let (plane, admin) = start().await;
    plane
        .apply(
            r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: namespaces}
rules: [{apiGroups: [''], resources: [namespaces, namespaces/status, namespaces/finalize], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: assign-a}
rules: [{apiGroups: [croft.dev], resources: [tenants], resourceNames: [a], verbs: [assign]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: namespaces}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: namespaces}
subjects: [{kind: User, name: maker}, {kind: User, name: assigner}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: assign-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: assign-a}
subjects: [{kind: User, name: assigner}]
",
        )
        .await
        .unwrap();
    // Among many others, to show that their number has no relevant cost.
    let mut known: Vec<Tenant> = (0..300)
        .map(|n| {
            let mut other = tenant(
                &format!("other-{n}"),
                &[&format!("other-{n}-dev"), &format!("other-{n}-prod")],
                &["pool-b"],
            );
            other.selector = Some(selector(&[
                ("team", Test::In(vec![format!("other-{n}")])),
                ("old", Test::DoesNotExist),
            ]));
            other
        })
        .chain(tenants())
        .collect();
    for tenant in &mut known {
        match tenant.name.as_str() {
            "a" => {
                let team = Test::In(vec!["a".to_owned()]);
                tenant.selector =
                    Some(selector(&[("team", team), ("stage", Test::NotIn(vec!["test".to_owned()]))]));
            }
            "b" => tenant.selector = Some(selector(&[("b", Test::Exists)])),
            _ => {}
        }
    }
    mark(&plane, &rules(&known, &pools()), &[]).await.unwrap();
    let maker = plane.client_for("maker", &[]).await.unwrap();
    let assigner = plane.client_for("assigner", &[]).await.unwrap();
    let namespace = |name: &str, labels: Value, annotations: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels, "annotations": annotations}});
    let needs = "needs the verb assign";
    let guarded = "kept by Croft alone";
    let caught = namespace("x", json!({"team": "a"}), json!({}));
    enforced(&maker, &caught, needs).await.unwrap();
    // With the webhook and that policy away, nothing of Croft's that is brought is taken back.
    arena::end_taking_back(&plane).await.unwrap();
    let marked = namespace("x", json!({"croft.dev/tenancy": "none"}), json!({}));
    enforced(&maker, &marked, guarded).await.unwrap();
    let created = [
        ("a non-tenant one", &maker, namespace("x", json!({"team": "c"}), json!({})), None),
        ("caught by name", &maker, namespace("tenant-new", json!({}), json!({})), Some(needs)),
        ("caught by name, by one who may", &assigner, namespace("tenant-new", json!({}), json!({})), None),
        ("caught by label", &maker, caught.clone(), Some(needs)),
        ("caught by label, by one who may", &assigner, caught, None),
        (
            "caught by another's name",
            &assigner,
            namespace("other-299-prod", json!({}), json!({})),
            Some(needs),
        ),
        (
            "not all of the selector",
            &maker,
            namespace("x", json!({"team": "a", "stage": "test"}), json!({})),
            None,
        ),
        (
            "another tenant's, by one who may for one",
            &assigner,
            namespace("x", json!({"b": ""}), json!({})),
            Some(needs),
        ),
        ("known to belong to no tenant", &maker, marked, Some(guarded)),
        (
            "with pools",
            &assigner,
            namespace("x", json!({}), json!({"policy.croft.dev/pools": "p"})),
            Some(guarded),
        ),
        (
            "with shared pools",
            &assigner,
            namespace("x", json!({}), json!({"policy.croft.dev/shared": "*"})),
            Some(guarded),
        ),
        ("with a default pool", &maker, namespace("x", json!({}), json!({"croft.dev/pool": "p"})), None),
    ];
    for (what, client, namespace, refused) in &created {
        expect(what, &create(client, namespace, true).await.unwrap(), *refused);
    }

    let metadata = |labels: Value, annotations: Value| json!({"metadata": {"labels": labels, "annotations": annotations}});
    let updated = [
        ("an ordinary label", "no-tenant", &maker, metadata(json!({"x": "y"}), json!({})), None),
        ("into a tenant", "no-tenant", &maker, metadata(json!({"team": "a"}), json!({})), Some(needs)),
        (
            "into a tenant, by one who may",
            "no-tenant",
            &assigner,
            metadata(json!({"team": "a"}), json!({})),
            None,
        ),
        ("claimed by name already", "tenant-a", &maker, metadata(json!({"team": "a"}), json!({})), None),
        ("into a second tenant", "tenant-a", &maker, metadata(json!({"b": "x"}), json!({})), Some(needs)),
        (
            "off the webhook",
            "tenant-a",
            &assigner,
            metadata(json!({"croft.dev/tenancy": "none"}), json!({})),
            Some(guarded),
        ),
        (
            "back on",
            "no-tenant",
            &maker,
            metadata(json!({"croft.dev/tenancy": null}), json!({})),
            Some(guarded),
        ),
        (
            "other pools",
            "tenant-a",
            &maker,
            metadata(json!({}), json!({"policy.croft.dev/pools": "node-pool=pool-b:NoSchedule:pool-b"})),
            Some(guarded),
        ),
        (
            "no pools",
            "tenant-a",
            &maker,
            metadata(json!({}), json!({"policy.croft.dev/pools": null})),
            Some(guarded),
        ),
    ];
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    for (what, name, client, patch, refused) in &updated {
        let api: Api<Namespace> = Api::all((*client).clone());
        let direct = api.patch(name, &dry, &Patch::Merge(patch)).await;
        let status = api.patch_status(name, &dry, &Patch::Merge(patch)).await;
        for (through, result) in [("namespaces", direct), ("namespaces/status", status)] {
            match (refused, result) {
                (None, Ok(_)) => {}
                (Some(part), Err(kube::Error::Api(status))) if status.message.contains(part) => {}
                (_, other) => panic!("{what}, through {through}: {other:?}"),
            }
        }
    }
    // The subresource finalize accepts the whole object.
    let api: Api<DynamicObject> =
        Api::all_with(maker.clone(), &kube::discovery::ApiResource::erase::<Namespace>(&()));
    let mut whole = api.get("no-tenant").await.unwrap();
    whole.metadata.labels.get_or_insert_default().insert("team".to_owned(), "a".to_owned());
    let result = api.replace_subresource("finalize", "no-tenant", &PostParams::default(), &whole).await;
    assert!(matches!(&result, Err(kube::Error::Api(status)) if status.message.contains(needs)), "{result:?}");
    drop(admin);
}

/// An owner who creates namespaces by another role, before the controller has bound the owner's own, or where it can't.
#[tokio::test]
async fn listed_owners_keep_to_their_prefix_while_their_own_role_is_not_bound() {
    let (plane, _) = start().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "makers"},
        "rules": [{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "makers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "makers"},
        "subjects": [{"kind": "User", "name": "carla"}, {"kind": "User", "name": "other"}]});
    plane.apply(&format!("{role}\n---\n{binding}")).await.unwrap();
    let mut known = tenants();
    let weavers = known.iter_mut().find(|tenant| tenant.name == "a").unwrap();
    weavers.creation = Some(NamespaceCreation { prefix: "loom-".to_owned(), maximum: 3 });
    weavers.owners =
        vec![Owner { subject: Subject::User("carla".to_owned()), roles: vec!["admin".to_owned()] }];
    mark(&plane, &rules(&known, &pools()), &[]).await.unwrap();
    let [carla, other] = ["carla", "other"].map(|user| plane.client_for(user, &[]));
    let (carla, other) = (carla.await.unwrap(), other.await.unwrap());
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    enforced(&carla, &namespace("x", json!({})), "choose a name that begins with loom-").await.unwrap();
    let level = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    for (what, client, namespace, refused) in [
        ("a level", &carla, namespace("loom-1", level.clone()), Some("may not give the label")),
        ("their own", &carla, namespace("loom-1", json!({})), None),
        ("of another user", &other, namespace("loom-1", json!({})), Some("into or out of tenant a")),
        ("outside, of another user", &other, namespace("x", level), None),
    ] {
        let answer = create(client, &namespace, true).await.unwrap();
        expect(what, &answer, refused);
    }
}
