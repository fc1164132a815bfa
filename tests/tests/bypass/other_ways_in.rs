//! Ways onto a tenant's nodes and into its Services besides a pod's own placement, on the real API server with all of
//! Croft: what is denied, what is restored, and what holds with the webhook stopped.

use std::{collections::BTreeMap, time::Duration};

use croft_testkit::{
    ControlPlane, Croft, Options, Part,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{SOON, answer, create, kept_arena, misplaced_pods, of_croft, pod},
    manifests::daemon_set,
    stack::{event_about, log_tail},
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Namespace, Node, Pod},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};

const MARK: &str = "node-restriction.kubernetes.io/pool";
const GRACE: Duration = Duration::from_secs(15);

struct Setup {
    plane: ControlPlane,
    croft: Croft,
    admin: Client,
}

#[tokio::test]
async fn no_other_way_bypasses_isolation() {
    let (plane, croft) = kept_arena(Options::default()).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let mut setup = Setup { plane, croft, admin };
    marked(&setup.admin, "tenant-a").await;
    exempt_namespaces_add(&setup).await;
    taints_stay(&setup).await;
    taints_are_restored(&setup).await;
    names_need_the_verb(&setup).await;
    unregistered_nodes_take_no_tolerant_pod(&setup).await;
    nodes_leave_by_their_label(&setup).await;
    deleted_objects_are_evaluated(&setup).await;
    created_objects_are_not_deleted(&setup).await;
    mirror_pods(&mut setup).await;
    assert_eq!(misplaced_pods(&setup.admin).await.unwrap(), Vec::<String>::new());
}

impl Setup {
    async fn user(&self, name: &str) -> Client {
        self.plane.client_for(name, &[]).await.unwrap()
    }

    async fn kubelet(&self, node: &str) -> Client {
        self.plane.client_for(&format!("system:node:{node}"), &["system:nodes"]).await.unwrap()
    }

    async fn node(&self, name: &str) -> Node {
        Api::all(self.admin.clone()).get(name).await.unwrap()
    }

    async fn kubectl(&self, arguments: &str) -> Result<(), String> {
        let done = self.plane.kubectl(arguments.split(' ')).await;
        done.map(drop).map_err(|error| error.to_string())
    }
}

/// Waits until the controller has written a tenant's pools onto its namespace.
async fn marked(admin: &Client, namespace: &str) {
    let api: Api<Namespace> = Api::all(admin.clone());
    until("the namespace is marked", SOON, async || {
        let found = api.get(namespace).await?.annotations().get("policy.croft.dev/pools").cloned();
        Ok::<_, kube::Error>(Seen::from_option(found, "no annotation"))
    })
    .await
    .unwrap();
}

fn tainted(node: &Node, key: &str) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == key)
}

/// `exemptNamespaces` adds to the namespaces that are always exempt: a DaemonSet of kube-system is unchanged.
async fn exempt_namespaces_add(setup: &Setup) {
    let config = r#"{"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"exemptNamespaces": ["left-alone"]}}"#;
    setup.plane.apply(config).await.unwrap();
    setup.plane.apply(CLOSED).await.unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "left-alone"}});
    assert!(create(&setup.admin, &namespace, false).await.unwrap().is_done());
    let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
    let kept_out = |text: &str| text.contains("DoesNotExist");
    until("the setting is in force", SOON, async || {
        let said = create(&setup.admin, &pod("left-alone", "x", tolerant.clone()), true).await?.sentence();
        let done = said.starts_with("allowed") && !kept_out(&said);
        anyhow::Ok(Seen::from_option(done.then_some(()), said))
    })
    .await
    .unwrap();
    for namespace in ["kube-system", "kube-public", "kube-node-lease", "croft-system"] {
        let agent = daemon_set(namespace, "agent", tolerant.clone());
        let said = create(&setup.admin, &agent, true).await.unwrap().sentence();
        assert!(said.starts_with("allowed") && !kept_out(&said), "{namespace}: {said}");
        if namespace == "kube-system" {
            assert!(create(&setup.admin, &agent, false).await.unwrap().is_done());
        }
    }
    // The controller has planned all DaemonSets once it has planned one that was created later.
    let later = daemon_set("no-tenant", "later", tolerant);
    assert!(kept_out(&create(&setup.admin, &later, false).await.unwrap().sentence()));
    let agent = Api::<DaemonSet>::namespaced(setup.admin.clone(), "kube-system").get("agent").await.unwrap();
    assert_eq!(agent.metadata.generation, Some(1), "nothing has rewritten it: {:?}", agent.spec);
}

/// No user can remove or change a pool's taint while its label is present.
async fn taints_stay(setup: &Setup) {
    for taint in
        ["b-1 node-pool-", "two-1 other-key:NoExecute-", "--overwrite b-1 node-pool=other:NoSchedule"]
    {
        let command = format!("taint node {taint}");
        until(&command, SOON, async || {
            let said = setup.kubectl(&format!("{command} --dry-run=server")).await;
            let refused = said.as_ref().is_err_and(|said| said.contains("so its taint stays"));
            anyhow::Ok(Seen::from_option(refused.then_some(()), format!("{said:?}")))
        })
        .await
        .unwrap();
        assert!(setup.kubectl(&command).await.is_err(), "{taint}");
    }
    setup.kubectl("taint node b-1 example.com/other=x:NoSchedule").await.unwrap();
    setup.kubectl("taint node b-1 example.com/other-").await.unwrap();
    assert!(tainted(&setup.node("b-1").await, "node-pool"));
}

const BREAK_GLASS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-break-glass}
rules: [{apiGroups: [croft.dev], resources: [croftconfigs], verbs: [break-glass]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-break-glass}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-break-glass}
subjects: [{kind: ServiceAccount, namespace: croft-break-glass, name: 'on'}]
";

/// A pool's taint that was removed while enforcement was stopped is restored, with all its effects.
async fn taints_are_restored(setup: &Setup) {
    let api: Api<Node> = Api::all(setup.admin.clone());
    for (node, key, effects) in [("b-1", "node-pool", 1), ("two-1", "other-key", 2)] {
        setup.plane.apply(BREAK_GLASS).await.unwrap();
        until("the taints can be removed", SOON, async || {
            let gone = json!({"spec": {"taints": null}});
            let removed = api.patch(node, &PatchParams::default(), &Patch::Merge(gone)).await;
            Ok::<_, kube::Error>(Seen::from_option(removed.as_ref().ok().map(drop), format!("{removed:?}")))
        })
        .await
        .unwrap();
        setup.kubectl("delete clusterrolebinding test-break-glass").await.unwrap();
        until("the taints are there again", SOON, async || {
            let node = api.get(node).await?;
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
            let of_pool = taints.iter().filter(|taint| taint.key == key).count();
            Ok::<_, kube::Error>(Seen::from_option((of_pool == effects).then_some(()), format!("{taints:?}")))
        })
        .await
        .unwrap();
    }
}

const ASSIGN: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: assigns-pool-b}
rules: [{apiGroups: [croft.dev], resources: [tenantpools], resourceNames: [pool-b], verbs: [assign]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: assigns-pool-b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: assigns-pool-b}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: maker}]
";

/// A tenant with a closed network, whose prefix claims one of the names in it.
const CLOSED: &str = r#"{"apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "closed"}, "spec": {
    "namespaces": ["closed"], "pools": ["pool-b"], "namespaceCreation": {"prefix": "closed-", "maximum": 1},
    "owners": [{"kind": "ServiceAccount", "name": "ci", "namespace": "later-builds"}],
    "networkIsolation": {"enabled": true, "egress": "Restricted",
        "allowFrom": [{"namespace": "later-ingress"}, {"namespace": "closed-web"}],
        "allowTo": [{"namespace": "later-database"}]}}}"#;

/// Only a user who may assign the pools creates a namespace to which they are open by name; and so it is with Tenants.
async fn names_need_the_verb(setup: &Setup) {
    let maker = setup.user("maker").await;
    let shared = r#"{"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "pool-b"},
        "spec": {"key": "node-pool", "provisioner": "None", "sharedWith": ["agents", "later-agents"]}}"#;
    let config = r#"{"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"},
        "spec": {"exemptNamespaces": ["left-alone", "later-exempt"], "sharedWith": ["later-shared"]}}"#;
    setup.plane.apply(shared).await.unwrap();
    setup.plane.apply(config).await.unwrap();
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let says = async |name: &str, part: &str| {
        until(&format!("{name}: {part}"), SOON, async || {
            let said = create(&maker, &namespace(name), true).await?.sentence();
            anyhow::Ok(Seen::from_option(said.contains(part).then_some(()), said))
        })
        .await
        .unwrap();
    };
    says("later-agents", "assign on tenantpools/pool-b").await;
    says("later-exempt", "assign on croftconfigs/default").await;
    says("later-shared", "assign on croftconfigs/default").await;
    // A closed network that names them, and an owner from there.
    says("later-ingress", "assign on tenants/closed").await;
    says("later-database", "assign on tenants/closed").await;
    says("later-builds", "assign on tenants/closed").await;
    says("closed-web", "into or out of tenant closed").await;
    for name in
        ["later-agents", "later-exempt", "later-shared", "later-ingress", "later-database", "later-builds"]
    {
        assert!(!create(&maker, &namespace(name), false).await.unwrap().is_done(), "{name}");
    }
    assert!(create(&maker, &namespace("ordinary"), false).await.unwrap().is_done());
    setup.plane.apply(ASSIGN).await.unwrap();
    says("later-agents", "allowed").await;
    says("later-ingress", "assign on tenants/closed").await;
    says("later-exempt", "assign on croftconfigs/default").await;
    assert!(create(&maker, &namespace("later-agents"), false).await.unwrap().is_done());
    assert!(create(&setup.admin, &namespace("later-exempt"), false).await.unwrap().is_done());
    assert!(create(&setup.admin, &namespace("later-ingress"), false).await.unwrap().is_done());
}

/// A node that Croft launched registers with its taints, but without its pool's label: a non-tenant pod that tolerates
/// every taint stays off it.
async fn unregistered_nodes_take_no_tolerant_pod(setup: &Setup) {
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "early-1", "labels": {"lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": "early-1",
            "wave": "early", "croft.dev/unregistered": "true"}},
        "spec": {"taints": [{"key": "node-pool", "value": "pool-a", "effect": "NoSchedule"},
            {"key": "croft.dev/unregistered", "effect": "NoExecute"}]}});
    assert!(create(&setup.admin, &node, false).await.unwrap().is_done());
    // Its kubelet can't open it before it is labelled, whichever way it writes.
    let kubelet: Api<Node> = Api::all(setup.kubelet("early-1").await);
    let opened = Patch::Merge(json!({"metadata": {"labels": {"croft.dev/unregistered": null}}}));
    let params = PatchParams::default();
    for result in [
        kubelet.patch("early-1", &params, &opened).await,
        kubelet.patch_status("early-1", &params, &opened).await,
    ] {
        let message = result.expect_err("the starting label is removed").to_string();
        assert!(message.contains("or croft.dev/unregistered, on its node"), "{message}");
    }
    let spec = json!({"nodeSelector": {"wave": "early"}, "tolerations": [{"operator": "Exists"}]});
    assert!(create(&setup.admin, &pod("no-tenant", "early", spec), false).await.unwrap().is_done());
    let api: Api<Pod> = Api::namespaced(setup.admin.clone(), "no-tenant");
    until("kube-scheduler to find no node for it", SOON, async || {
        let status = api.get("early").await?.status.unwrap_or_default();
        let said = status.conditions.into_iter().flatten().find(|c| c.type_ == "PodScheduled");
        let message = said.and_then(|c| c.message).unwrap_or_default();
        Ok::<_, kube::Error>(Seen::from_option(
            message.contains("didn't match Pod's node affinity/selector").then_some(()),
            message,
        ))
    })
    .await
    .unwrap();
    let placed = api.get("early").await.unwrap().spec.unwrap().node_name;
    assert_eq!(placed, None);
    api.delete("early", &DeleteParams::default()).await.unwrap();
    Api::<Node>::all(setup.admin.clone()).delete("early-1", &DeleteParams::default()).await.unwrap();
}

/// A node of another provisioner leaves its pool with the pool's label; its pool-name label is removed, and an event
/// reports it.
async fn nodes_leave_by_their_label(setup: &Setup) {
    setup.kubectl("label node a-2 node-pool-").await.unwrap();
    let api: Api<Node> = Api::all(setup.admin.clone());
    until("the pool-name label is gone", SOON, async || {
        let labels = api.get("a-2").await?.labels().clone();
        Ok::<_, kube::Error>(Seen::from_option(
            (!labels.contains_key(MARK)).then_some(()),
            format!("{labels:?}"),
        ))
    })
    .await
    .unwrap();
    let said = match event_about(&setup.admin, "Node", "a-2", "NodeLeftPool").await {
        Ok(said) => said,
        Err(error) => panic!("{error}\n{}", log_tail(&setup.plane, "croft-controller")),
    };
    assert!(said.contains("TenantPool pool-a"), "{said}");
    assert!(tainted(&setup.node("a-2").await, "node-pool"), "it stays closed until its taint is removed");
    // Back in the pool, and labelled again.
    setup.kubectl("label node a-2 node-pool=pool-a").await.unwrap();
    until("the pool-name label is back", SOON, async || {
        let mark = api.get("a-2").await?.labels().get(MARK).cloned();
        Ok::<_, kube::Error>(Seen::from_option(mark.filter(|mark| mark == "pool-a"), "none"))
    })
    .await
    .unwrap();
}

/// An object that is being deleted but held by a finalizer can't change its tenant: pods are bound to such a node.
async fn deleted_objects_are_evaluated(setup: &Setup) {
    let nodes: Api<Node> = Api::all(setup.admin.clone());
    let held = |finalizers: Value| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let params = PatchParams::default();
    nodes.patch("b-2", &params, &held(json!(["example.com/held"]))).await.unwrap();
    nodes.delete("b-2", &DeleteParams::default()).await.unwrap();
    assert!(setup.node("b-2").await.metadata.deletion_timestamp.is_some());
    let kubelet: Api<Node> = Api::all(setup.kubelet("b-2").await);
    for (what, patch) in [
        ("another pool", json!({"metadata": {"labels": {"node-pool": "pool-a"}}})),
        ("no pool", json!({"metadata": {"labels": {"node-pool": null}}})),
    ] {
        for status in [false, true] {
            let patch = Patch::Merge(&patch);
            let result = if status {
                kubelet.patch_status("b-2", &params, &patch).await
            } else {
                kubelet.patch("b-2", &params, &patch).await
            };
            let message = result.expect_err(what).to_string();
            assert!(message.contains("may not"), "{what}: {message}");
        }
    }

    let namespaces: Api<Namespace> = Api::all(setup.user("maker").await);
    let leaving = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "leaving", "finalizers": ["example.com/held"]}});
    assert!(create(&setup.admin, &leaving, false).await.unwrap().is_done());
    let all: Api<Namespace> = Api::all(setup.admin.clone());
    all.delete("leaving", &DeleteParams::default()).await.unwrap();
    for (what, patch) in [
        ("annotation", json!({"metadata": {"annotations": {"policy.croft.dev/shared": "*"}}})),
        ("label", json!({"metadata": {"labels": {"croft.dev/tenancy": "other"}}})),
    ] {
        let before = all.get("leaving").await.unwrap();
        let after = namespaces.patch("leaving", &params, &Patch::Merge(patch)).await.expect(what);
        assert_eq!(of_croft(&after.metadata), of_croft(&before.metadata), "{what}: it is taken back");
    }
    let message = namespaces
        .patch("leaving", &params, &Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}})))
        .await
        .expect_err("a claimed label")
        .to_string();
    assert!(message.contains("assign"), "{message}");
    all.patch("leaving", &params, &held(json!(null))).await.unwrap();
    nodes.patch("b-2", &params, &held(json!(null))).await.unwrap();
}

/// Server-side apply stores the deletionTimestamp of an object that it creates. That object is evaluated nevertheless.
async fn created_objects_are_not_deleted(setup: &Setup) {
    let maker = setup.user("maker").await;
    let far = "2099-01-02T03:04:05Z";
    let apply = PatchParams::apply("attack").force();
    let exists = json!([{"operator": "Exists"}]);
    for (what, namespace, spec, part) in [
        (
            "a node of a pool that isn't shared",
            "agents",
            json!({"nodeName": "a-1", "tolerations": exists}),
            "belongs to no tenant",
        ),
        ("a foreign node", "tenant-a", json!({"nodeName": "b-1"}), "run in its pools only"),
        ("a foreign pool", "tenant-a", json!({"nodeSelector": {"node-pool": "pool-b"}}), "may not use"),
    ] {
        let mut pod = pod(namespace, "undead", spec);
        pod["metadata"]["deletionTimestamp"] = json!(far);
        let pods: Api<DynamicObject> =
            Api::namespaced_with(maker.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        let said = answer(pods.patch("undead", &apply, &Patch::Apply(&pod)).await).unwrap();
        assert!(!said.is_done() && said.sentence().contains(part), "{what}: {}", said.sentence());
    }
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "undead", "deletionTimestamp": far, "labels": {"croft.dev/tenancy": "none"}}});
    let namespaces: Api<DynamicObject> = Api::all_with(maker, &ApiResource::erase::<Namespace>(&()));
    let dry = PatchParams { dry_run: true, ..apply };
    let made = namespaces.patch("undead", &dry, &Patch::Apply(&namespace)).await.unwrap();
    assert_eq!(of_croft(&made.metadata), BTreeMap::new(), "the label is taken back");
}

/// A mirror pod of `node`, as its kubelet creates it, with the labels of another tenant's Service.
async fn mirror(setup: &Setup, namespace: &str, node: &str) -> String {
    let uid = setup.node(node).await.uid().unwrap();
    let mut pod = pod(
        namespace,
        &format!("web-{node}"),
        json!({"nodeName": node, "tolerations": [{"operator": "Exists"}]}),
    );
    pod["metadata"]["annotations"] =
        json!({"kubernetes.io/config.mirror": "hash", "kubernetes.io/config.source": "file"});
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": true}]);
    let kubelet = setup.kubelet(node).await;
    let said = create(&kubelet, &pod, false).await.unwrap();
    let sentence = said.sentence();
    if said.is_done() {
        let api: Api<Pod> = Api::namespaced(kubelet, namespace);
        match api.delete(&format!("web-{node}"), &DeleteParams::default().grace_period(0)).await {
            // kube's client sends a deletion again after 503 and 504, which the API server may have carried out.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            done => drop(done.unwrap()),
        }
    }
    sentence
}

async fn mirror_pods(setup: &mut Setup) {
    for (namespace, node, refused) in [
        ("tenant-a", "b-1", true),
        ("tenant-a", "free-1", true),
        ("tenant-a", "a-1", false),
        ("tenant-a", "two-1", false),
        ("tenant-b", "b-1", false),
        ("no-tenant", "b-1", false),
        ("kube-system", "b-1", false),
    ] {
        let said = mirror(setup, namespace, node).await;
        if refused {
            assert!(said.contains("static pod"), "{namespace} {node}: {said}");
        } else {
            assert!(said.starts_with("allowed"), "{namespace} {node}: {said}");
        }
    }
    // Without the webhook no mirror pod is created in a tenant's namespace; elsewhere the platform's own are.
    setup.croft.stop(Part::Webhook, GRACE).await.unwrap();
    for (namespace, node, refused) in [
        ("tenant-a", "b-1", true),
        ("tenant-a", "a-1", true),
        ("no-tenant", "b-1", false),
        ("kube-system", "b-1", false),
    ] {
        let said = mirror(setup, namespace, node).await;
        assert_eq!(!said.starts_with("allowed"), refused, "{namespace} {node}: {said}");
    }
    setup.croft.resume(&setup.plane, Part::Webhook).await.unwrap();
}
