//! Policy mode against the attacks of the other modules, on one arena: by a later webhook, by other mutating policies, and by
//! pods while no webhook runs; with server-side apply, records of an earlier version and generated names; and with a policy
//! that fails, until `croft break-glass on` stops it. `make policy-mode` runs the whole of the others in Policy mode.

use croft_policy::{Mutation, definitions::INJECTED_ANNOTATION, policies::BREAK_GLASS_SUBJECT};
use croft_testkit::{
    ControlPlane, Croft, Options, Part,
    wait::{Seen, until},
};
use croft_tests::arena::{Answer, SOON, create, marked_arena_in, misplaced_pods, pod, settled};
use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{later, pods};

/// Label of the pods that another policy changes: the name of the policy.
const LABEL: &str = "other.example.dev/policy";
/// The record of an earlier version, and what it records.
const EARLIER: &str = r#"{"nodeSelector":{"node-pool":"pool-a"},"tolerations":[{"key":"node-pool","value":"pool-a","effect":"NoSchedule"}]}"#;
const IN_A: &str = "pin:node-pool=pool-a;tolerate:node-pool=pool-a:NoSchedule";
const IN_TWO: &str = "pin:other-key=two;tolerate:other-key=two:NoSchedule;tolerate:other-key=two:NoExecute";

#[tokio::test]
async fn policy_mode_holds_against_every_bypass() {
    croft_runtime::process::install_crypto();
    let (plane, mut croft) = marked_arena_in(Options::default(), Mutation::Policy).await.unwrap();
    let admin = plane.admin().await.unwrap();
    later::attack(&plane, Mutation::Policy).await;
    other_policies(&plane, &admin).await;
    applied_twice(&admin).await;
    earlier_records(&admin).await;

    croft.kill(Part::Webhook).unwrap();
    attacks_without_webhook(&plane).await;
    records_without_webhook(&admin).await;
    croft.resume(&plane, Part::Webhook).await.unwrap();
    settled(&admin).await.unwrap();
    earlier_record_is_replaced(&admin).await;

    failing_policy_is_stopped(&plane, &croft, &admin).await;
}

fn pinned_to_a(spec: &Value) -> bool {
    let tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    spec["nodeSelector"]["node-pool"] == "pool-a"
        && tolerations.iter().any(|t| t["key"] == "node-pool" && t["value"] == "pool-a")
}

fn kept_out(spec: &Value) -> bool {
    let terms = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let of_pools =
        |e: &Value| e["key"] == "node-restriction.kubernetes.io/pool" && e["operator"] == "DoesNotExist";
    let excludes =
        |term: &Value| term["matchExpressions"].as_array().is_some_and(|all| all.iter().any(of_pools));
    terms["nodeSelectorTerms"].as_array().is_some_and(|terms| terms.iter().all(excludes))
}

/// The expected result for a pod that another policy changes.
enum End {
    /// Admitted, with what Croft added beside the other policy's change.
    Kept(fn(&Value) -> bool),
    /// Refused with this message.
    Refused(&'static str),
    /// Admitted with what Croft added, or refused: policies that change a field each time have no order.
    Either(fn(&Value) -> bool),
}
use End::{Either, Kept, Refused};

/// Another mutating policy: its name, reinvocation, patches, the namespace of the pod, and the expected result.
fn others() -> Vec<(&'static str, &'static str, &'static str, &'static str, End)> {
    let tolerations =
        "[JSONPatch{op: 'add', path: '/spec/tolerations', value: [{'key': 'other', 'operator': 'Exists'}]}]";
    vec![
        ("tolerations-once", "Never", tolerations, "tenant-a", Kept(pinned_to_a)),
        ("tolerations-again", "IfNeeded", tolerations, "tenant-a", Either(pinned_to_a)),
        (
            "selector-once",
            "Never",
            "[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'disk': 'ssd'}}]",
            "tenant-a",
            Kept(|spec| pinned_to_a(spec) && spec["nodeSelector"]["disk"] == "ssd"),
        ),
        (
            "selector-removed-again",
            "IfNeeded",
            "has(object.spec.nodeSelector) ? [JSONPatch{op: 'remove', path: '/spec/nodeSelector'}] : []",
            "tenant-a",
            Either(pinned_to_a),
        ),
        // A pod that is right as it comes isn't evaluated, so it isn't evaluated again either.
        (
            "pinned-then-removed",
            "Never",
            "has(object.spec.nodeSelector) ? [JSONPatch{op: 'remove', path: '/spec/nodeSelector'}] : []",
            "tenant-a",
            Either(pinned_to_a),
        ),
        (
            "foreign-pool",
            "IfNeeded",
            "[JSONPatch{op: 'add', path: '/spec/nodeSelector', value: {'node-pool': 'pool-b'}}]",
            "tenant-a",
            Refused("may not use what spec.nodeSelector asks for: node-pool=pool-b"),
        ),
        (
            "tolerant-non-tenant",
            "Never",
            "[JSONPatch{op: 'add', path: '/spec/tolerations', value: [{'operator': 'Exists'}]}]",
            "no-tenant",
            Kept(kept_out),
        ),
        (
            "affinity-removed-again",
            "IfNeeded",
            "has(object.spec.affinity) ? [JSONPatch{op: 'remove', path: '/spec/affinity'}] : []",
            "no-tenant",
            Either(kept_out),
        ),
    ]
}

fn other_policy(name: &str, reinvocation: &str, patches: &str) -> String {
    let seen = "[JSONPatch{op: 'add', path: '/metadata/annotations/seen', value: 'yes'}]";
    let name = format!("zz-{name}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": reinvocation,
            "matchConstraints": {
                "objectSelector": {"matchLabels": {LABEL: name}},
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "mutations": [
                {"patchType": "JSONPatch", "jsonPatch": {"expression": seen}},
                {"patchType": "JSONPatch", "jsonPatch": {"expression": patches}},
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name},
    });
    format!("{policy}\n---\n{binding}")
}

/// Other mutating policies change the pod before and after Croft's.
async fn other_policies(plane: &ControlPlane, admin: &Client) {
    let all: Vec<String> =
        others().iter().map(|(name, when, patches, ..)| other_policy(name, when, patches)).collect();
    plane.apply(&all.join("\n---\n")).await.unwrap();
    for (name, _, _, namespace, end) in others() {
        let tolerant = json!({"tolerations": [{"operator": "Exists"}]});
        let pinned = json!({"nodeSelector": {"node-pool": "pool-a"}, "tolerations": [
            {"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}]});
        let spec = match name.split_once('-') {
            Some(("affinity", _)) => tolerant,
            Some(("pinned", _)) => pinned,
            _ => json!({}),
        };
        let mut object = pod(namespace, name, spec);
        object["metadata"]["annotations"] = json!({"of": "a-test"});
        // In its namespace, the policy acts once it has left its mark, or once what it causes is refused.
        object["metadata"]["labels"] = json!({LABEL: format!("zz-{name}")});
        let answer = until(name, SOON, async || {
            let answer = create(admin, &object, true).await?;
            let acts = match &answer {
                Answer::Done(pod) => {
                    pod.metadata.annotations.as_ref().is_some_and(|all| all.contains_key("seen"))
                }
                Answer::Refused(_) => true,
            };
            anyhow::Ok(Seen::from_option(acts.then_some(answer), "it doesn't act yet"))
        })
        .await
        .unwrap();
        match (&end, &answer) {
            (Kept(holds) | Either(holds), Answer::Done(pod)) => {
                assert!(holds(&pod.data["spec"]), "{name}: {}", pod.data);
            }
            (Refused(part), Answer::Refused(status)) => {
                assert!(status.message.contains(part), "{name}: {}", status.message);
            }
            (Either(_), Answer::Refused(status)) => {
                assert!(status.message.contains("croft-pod-placement"), "{name}: {}", status.message);
            }
            _ => panic!("{name}: {}", answer.sentence()),
        }
    }
}

fn daemonset(name: &str, annotations: Value, spec: Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"app": name}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "c"}]}});
    template["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "tenant-a"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}})
}

/// Server-side apply of the same manifest changes nothing the second time: what Croft added belongs to no applier.
async fn applied_twice(admin: &Client) {
    let params = PatchParams::apply("tester");
    let pods: Api<Pod> = Api::namespaced(admin.clone(), "tenant-a");
    let manifest = pod("tenant-a", "applied-twice", json!({}));
    let mut versions = Vec::new();
    for _ in 0..2 {
        let found = pods.patch("applied-twice", &params, &Patch::Apply(&manifest)).await.unwrap();
        let spec = json!(found.spec);
        assert!(pinned_to_a(&spec), "{spec}");
        versions.push(json!(spec["nodeSelector"]));
    }
    assert_eq!(versions[0], versions[1]);

    let daemonsets: Api<DaemonSet> = Api::namespaced(admin.clone(), "tenant-a");
    let mut manifest = daemonset("applied-twice", json!({}), json!({}));
    for (image, generation) in [("c", 1), ("c", 1), ("d", 2)] {
        manifest["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        let found = daemonsets.patch("applied-twice", &params, &Patch::Apply(&manifest)).await.unwrap();
        assert_eq!(found.metadata.generation, Some(generation), "applied with image {image}");
        let template = json!(found.spec.unwrap().template);
        assert!(pinned_to_a(&template["spec"]), "{template}");
        assert_eq!(template["metadata"]["annotations"][INJECTED_ANNOTATION], IN_A);
        assert_eq!(template["spec"]["tolerations"].as_array().unwrap().len(), 1, "{template}");
    }

    let mut unnamed = pod("tenant-a", "", json!({}));
    unnamed["metadata"] = json!({"generateName": "unnamed-", "namespace": "tenant-a"});
    match create(admin, &unnamed, false).await.unwrap() {
        Answer::Done(pod) => {
            assert!(pinned_to_a(&pod.data["spec"]), "{}", pod.data);
            assert!(pod.metadata.name.unwrap().starts_with("unnamed-"));
        }
        refused @ Answer::Refused(_) => panic!("{}", refused.sentence()),
    }
}

fn template_of(daemonset: DaemonSet) -> Value {
    json!(daemonset.spec.unwrap().template)
}

/// Changes the annotation `croft.dev/pool` of a template, and returns the template.
async fn choose_pool(admin: &Client, name: &str, pool: Value) -> Result<Value, kube::Error> {
    let api: Api<DaemonSet> = Api::namespaced(admin.clone(), "tenant-a");
    let patch = json!({"spec": {"template": {"metadata": {"annotations": {"croft.dev/pool": pool}}}}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(template_of)
}

/// Templates that an earlier version planned, as it left them: the webhook keeps their record until its meaning changes.
async fn earlier_records(admin: &Client) {
    let planned = json!({"nodeSelector": {"node-pool": "pool-a"},
        "tolerations": [{"key": "node-pool", "operator": "Equal", "value": "pool-a", "effect": "NoSchedule"}]});
    for name in ["earlier", "earlier-too"] {
        let manifest = daemonset(name, json!({INJECTED_ANNOTATION: EARLIER}), planned.clone());
        let answer = create(admin, &manifest, false).await.unwrap();
        let Answer::Done(made) = answer else { panic!("{}", answer.sentence()) };
        let template = &made.data["spec"]["template"];
        assert_eq!(
            template["metadata"]["annotations"][INJECTED_ANNOTATION], EARLIER,
            "no rollout by a new text"
        );
        assert_eq!(template["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));
    }
    let template = choose_pool(admin, "earlier", json!("pool-a2")).await.unwrap();
    assert_eq!(template["metadata"]["annotations"][INJECTED_ANNOTATION], IN_TWO);
    assert_eq!(template["spec"]["nodeSelector"], json!({"other-key": "two"}));
    assert_eq!(template["spec"]["tolerations"].as_array().unwrap().len(), 2, "{template}");
}

/// From then on the policies plan the template, without the webhook. One with an earlier record waits for the webhook.
async fn records_without_webhook(admin: &Client) {
    let template = choose_pool(admin, "earlier", Value::Null).await.unwrap();
    assert_eq!(template["metadata"]["annotations"][INJECTED_ANNOTATION], IN_A);
    assert_eq!(template["spec"]["nodeSelector"], json!({"node-pool": "pool-a"}));
    assert_eq!(template["spec"]["tolerations"].as_array().unwrap().len(), 1, "{template}");
    let refused = choose_pool(admin, "earlier-too", json!("pool-a2")).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
}

async fn earlier_record_is_replaced(admin: &Client) {
    let template = choose_pool(admin, "earlier-too", json!("pool-a2")).await.unwrap();
    assert_eq!(template["metadata"]["annotations"][INJECTED_ANNOTATION], IN_TWO);
}

/// The attacks by pods, with the same answers while no webhook runs. A pod that names a node is refused: only the webhook
/// knows the node's pool.
async fn attacks_without_webhook(plane: &ControlPlane) {
    let jane = plane.client_for("jane", &[]).await.unwrap();
    let mut created = 0;
    for (what, pod, end) in pods::attacks() {
        let answer = create(&jane, &pod, true).await.unwrap();
        let names_a_node = !pod["spec"]["nodeName"].is_null();
        let is_right = match end {
            _ if names_a_node => !answer.is_done(),
            pods::Harmless => answer.is_done(),
            pods::Refused(part) => !answer.is_done() && answer.sentence().contains(part),
        };
        assert!(is_right, "{what}: {}", answer.sentence());
        created += usize::from(answer.is_done());
    }
    assert!(created > 10, "pods are created: {created}");
}

/// A policy that fails refuses every pod. The switch of `croft break-glass on` stops it.
async fn failing_policy_is_stopped(plane: &ControlPlane, croft: &Croft, admin: &Client) {
    let bare = pod("tenant-b", "broken", json!({}));
    let failing = r#"[{"op": "replace", "path": "/spec/mutations/0/jsonPatch/expression",
        "value": "[JSONPatch{op: 'remove', path: ['/spec'][1]}]"}]"#;
    plane
        .kubectl(["patch", "mutatingadmissionpolicy", "croft-pods", "--type=json", "-p", failing])
        .await
        .unwrap();
    let wait_for = async |what: &str, wanted: fn(&Answer) -> bool| {
        until(what, SOON, async || {
            let answer = create(admin, &bare, true).await?;
            anyhow::Ok(Seen::from_option(wanted(&answer).then_some(()), answer.sentence()))
        })
        .await
        .unwrap();
    };
    wait_for("the policy to fail", |answer| !answer.is_done()).await;
    let (namespace, name) = BREAK_GLASS_SUBJECT;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "croft-break-glass"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "croft-break-glass"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
    });
    plane.apply(&binding.to_string()).await.unwrap();
    wait_for(
        "a pod as it is written",
        |answer| matches!(answer, Answer::Done(pod) if pod.data["spec"]["nodeSelector"].is_null()),
    )
    .await;
    plane.kubectl(["delete", "clusterrolebinding", "croft-break-glass"]).await.unwrap();
    wait_for("the policy to fail again", |answer| !answer.is_done()).await;
    let mutation = croft.manifests().join("overlays/policy-mode/mutation.yaml");
    let flags = ["apply", "--server-side", "--force-conflicts", "-f", mutation.to_str().unwrap()];
    plane.kubectl(flags).await.unwrap();
    wait_for("a pinned pod", |answer| {
        matches!(answer, Answer::Done(pod) if pod.data["spec"]["nodeSelector"]["node-pool"] == "pool-b")
    })
    .await;
    assert_eq!(misplaced_pods(admin).await.unwrap(), Vec::<String>::new());
}
