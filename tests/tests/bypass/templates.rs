//! Bypass attempts by pod templates: every kind of controller, with the real kube-controller-manager creating the pods,
//! and the subresource scale. `CROFT_MUTATION` chooses the mode.

use std::collections::BTreeMap;

use croft_testkit::{
    ControlPlane, Options,
    wait::{Seen, until},
};
use croft_tests::arena::{SOON, create, marked_arena, misplaced_pods, pods};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet},
    batch::v1::CronJob,
    core::v1::{Event, Pod, ReplicationController},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const KINDS: [&str; 7] =
    ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "Job", "CronJob", "DaemonSet"];

/// The expected result for a template's pods.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// They run on allowed nodes.
    Run,
    /// They are created but unschedulable.
    Wait,
    /// None is created, and an event has this message.
    None(&'static str),
}

/// Name, spec of the template, expected results in tenant-a and in the non-tenant namespace.
fn templates() -> Vec<(&'static str, Value, End, End)> {
    let exists = || json!([{"operator": "Exists"}]);
    let to_b = json!([{"matchExpressions": [{"key": "node-pool", "operator": "In", "values": ["pool-b"]}]}]);
    let affine = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": to_b}}});
    vec![
        ("plain", json!({}), End::Run, End::Run),
        ("tolerant", json!({"tolerations": exists()}), End::Run, End::Run),
        ("affine", json!({"tolerations": exists(), "affinity": affine}), End::Wait, End::Wait),
        (
            "far",
            json!({"tolerations": exists(), "nodeSelector": {"node-pool": "pool-b"}}),
            End::None("may not use"),
            End::None("belongs to no tenant"),
        ),
        (
            "named",
            json!({"nodeName": "b-1"}),
            End::None("run in its pools only"),
            End::None("belongs to no tenant"),
        ),
    ]
}

fn workload(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    let labels = json!({"app": name});
    let mut template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c"}]}});
    template["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let selector = json!({"matchLabels": labels});
    let job = |mut template: Value| {
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"completions": 2, "parallelism": 2, "template": template})
    };
    let (version, spec) = match kind {
        "Deployment" | "ReplicaSet" => {
            ("apps/v1", json!({"replicas": 2, "selector": selector, "template": template}))
        }
        "StatefulSet" => (
            "apps/v1",
            json!({"replicas": 2, "serviceName": name, "podManagementPolicy": "Parallel", "selector": selector, "template": template}),
        ),
        "DaemonSet" => ("apps/v1", json!({"selector": selector, "template": template})),
        "ReplicationController" => ("v1", json!({"replicas": 2, "selector": labels, "template": template})),
        "Job" => ("batch/v1", job(template)),
        // Due once a year, and started by hand once.
        "CronJob" => ("batch/v1", json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(template)}})),
        other => panic!("{other}"),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

/// Number of pods of the namespace by the label `app`: existing and bound.
async fn by_app(admin: &Client, namespace: &str) -> anyhow::Result<BTreeMap<String, (usize, usize)>> {
    let mut found: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for pod in pods(admin).await? {
        let app = pod.metadata.labels.as_ref().and_then(|labels| labels.get("app"));
        if let (Some(app), true) = (app, pod.metadata.namespace.as_deref() == Some(namespace)) {
            let counts = found.entry(app.clone()).or_default();
            counts.0 += 1;
            counts.1 += usize::from(pod.spec.is_some_and(|spec| spec.node_name.is_some()));
        }
    }
    Ok(found)
}

async fn until_pods(admin: &Client, namespace: &str, wanted: &BTreeMap<String, (usize, usize)>) {
    until(&format!("pods of {namespace}"), SOON, async || {
        let found = by_app(admin, namespace).await?;
        let of = |app: &String| found.get(app).copied().unwrap_or_default();
        let off = wanted.iter().filter(|(app, counts)| of(app) != **counts);
        let off: Vec<_> = off.map(|(app, counts)| (app, counts, found.get(app))).collect();
        anyhow::Ok(Seen::from_option(off.is_empty().then_some(()), format!("{off:?}")))
    })
    .await
    .unwrap();
}

/// Waits for an event that says why no pod of `name` is created.
async fn until_told(admin: &Client, namespace: &str, name: &str, part: &str) {
    let events: Api<Event> = Api::namespaced(admin.clone(), namespace);
    until(&format!("an Event that refuses {namespace}/{name} with: {part}"), SOON, async || {
        let said: Vec<String> = events
            .list(&Default::default())
            .await?
            .into_iter()
            .filter(|event| {
                event.involved_object.name.as_deref().is_some_and(|about| about.starts_with(name))
            })
            .filter_map(|event| event.message)
            .collect();
        let told = said.iter().any(|message| message.contains(part));
        anyhow::Ok(Seen::from_option(told.then_some(()), format!("{said:?}")))
    })
    .await
    .unwrap();
}

/// The CronJob's next run is due.
async fn fire(admin: &Client, namespace: &str, name: &str) {
    let api: Api<CronJob> = Api::namespaced(admin.clone(), namespace);
    let long_ago = json!({"status": {"lastScheduleTime": "2024-06-01T00:00:00Z"}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(long_ago)).await.unwrap();
}

/// Every template in every kind of controller, as a namespace's admin, on an arena whose namespaces carry their
/// annotations.
async fn attack(plane: &ControlPlane) {
    let admin = plane.admin().await.unwrap();
    let jane = plane.client_for("jane", &[]).await.unwrap();
    let mut refused = Vec::new();
    for (at, namespace) in ["tenant-a", "no-tenant"].into_iter().enumerate() {
        let mut wanted = BTreeMap::new();
        for (what, spec, in_a, in_non_tenant) in templates() {
            let end = [in_a, in_non_tenant][at];
            for kind in KINDS {
                let name = format!("{}-{what}", kind.to_lowercase());
                let answer = create(&jane, &workload(kind, namespace, &name, &spec), false).await.unwrap();
                let daemonset = kind == "DaemonSet";
                match end {
                    // A DaemonSet's template is planned itself, and denied itself.
                    End::None(part) if daemonset => {
                        assert!(
                            !answer.is_done() && answer.sentence().contains(part),
                            "{name}: {}",
                            answer.sentence()
                        );
                        continue;
                    }
                    _ => assert!(answer.is_done(), "{namespace}/{name}: {}", answer.sentence()),
                }
                if kind == "CronJob" {
                    fire(&admin, namespace, &name).await;
                }
                // Both nodes of the pool, or both nodes without a pool.
                wanted.insert(
                    name.clone(),
                    match end {
                        End::Run => (2, 2),
                        End::Wait if daemonset => (0, 0),
                        End::Wait => (2, 0),
                        End::None(part) => {
                            refused.push((namespace, name, part));
                            (0, 0)
                        }
                    },
                );
            }
        }
        until_pods(&admin, namespace, &wanted).await;
    }
    for (namespace, name, part) in &refused {
        until_told(&admin, namespace, name, part).await;
    }
    assert_eq!(refused.len(), 2 * 2 * (KINDS.len() - 1));
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());

    scaled(&jane, &admin).await;
    rolled(&jane, &admin).await;
    stored(plane, &admin).await;
    assert_eq!(misplaced_pods(&admin).await.unwrap(), Vec::<String>::new());
}

async fn scale<K>(jane: &Client, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Serialize,
{
    let api: Api<K> = Api::namespaced(jane.clone(), "tenant-a");
    let three = json!({"spec": {"replicas": 3}});
    api.patch_scale(name, &PatchParams::default(), &Patch::Merge(three)).await.unwrap();
}

/// Scaled by the subresource, whose review has no template.
async fn scaled(jane: &Client, admin: &Client) {
    let mut wanted = BTreeMap::new();
    for what in ["tolerant", "far"] {
        scale::<Deployment>(jane, &format!("deployment-{what}")).await;
        scale::<ReplicaSet>(jane, &format!("replicaset-{what}")).await;
        scale::<ReplicationController>(jane, &format!("replicationcontroller-{what}")).await;
        scale::<StatefulSet>(jane, &format!("statefulset-{what}")).await;
        for kind in ["deployment", "replicaset", "replicationcontroller", "statefulset"] {
            wanted.insert(format!("{kind}-{what}"), if what == "far" { (0, 0) } else { (3, 3) });
        }
    }
    until_pods(admin, "tenant-a", &wanted).await;
}

/// A valid template that becomes invalid: running pods continue, and none is created.
async fn rolled(jane: &Client, admin: &Client) {
    let far = json!({"spec": {"template": {"spec": {"nodeSelector": {"node-pool": "pool-b"}}}}});
    let deployments: Api<Deployment> = Api::namespaced(jane.clone(), "tenant-a");
    deployments.patch("deployment-plain", &PatchParams::default(), &Patch::Strategic(&far)).await.unwrap();
    until_told(admin, "tenant-a", "deployment-plain", "may not use").await;
    let daemonsets: Api<DaemonSet> = Api::namespaced(jane.clone(), "tenant-a");
    let named = json!({"spec": {"template": {"spec": {"nodeName": "b-1"}}}});
    for patch in [&far, &named] {
        let result =
            daemonsets.patch("daemonset-plain", &PatchParams::default(), &Patch::Strategic(patch)).await;
        assert!(matches!(&result, Err(kube::Error::Api(status)) if status.code == 403), "{result:?}");
    }
    // The owner removes what Croft wrote into the template; Croft writes it again.
    let bare = json!({"spec": {"template": {"spec": {"nodeSelector": null, "tolerations": null}, "metadata": {"annotations": null}}}});
    let patched =
        daemonsets.patch("daemonset-plain", &PatchParams::default(), &Patch::Merge(&bare)).await.unwrap();
    let template = serde_json::to_string(&patched.spec.unwrap().template).unwrap();
    assert!(template.contains(r#""nodeSelector":{"node-pool":"pool-a"}"#), "{template}");
    // A pod without the label no longer belongs to the ReplicaSet and stays on its node; its replacement is placed in
    // the pool, too.
    let api: Api<Pod> = Api::namespaced(jane.clone(), "tenant-a");
    let list = api.list(&kube::api::ListParams::default().labels("app=replicaset-plain")).await.unwrap();
    let name = list.items[0].metadata.name.clone().unwrap();
    let freed = json!({"metadata": {"labels": {"app": "freed"}}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(freed)).await.unwrap();
    let wanted = [("replicaset-plain", (2, 2)), ("freed", (1, 1))];
    until_pods(admin, "tenant-a", &wanted.map(|(name, counts)| (name.to_owned(), counts)).into()).await;
}

/// A PodTemplate is only stored; the default roles may not write it, but other roles may.
async fn stored(plane: &ControlPlane, admin: &Client) {
    let before = pods(admin).await.unwrap().len();
    let root = plane.client_for("root", &["system:masters"]).await.unwrap();
    let template = json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "kept", "namespace": "tenant-a"},
        "template": {"metadata": {"labels": {"app": "kept"}}, "spec": {"nodeName": "b-1", "containers": [{"name": "c", "image": "c"}]}}});
    assert!(create(&root, &template, false).await.unwrap().is_done());
    // A pod created from it is evaluated like any other.
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kept", "namespace": "tenant-a"}});
    pod["spec"] = template["template"]["spec"].clone();
    let answer = create(&root, &pod, false).await.unwrap();
    assert!(
        !answer.is_done() && answer.sentence().contains("run in its pools only"),
        "{}",
        answer.sentence()
    );
    assert_eq!(pods(admin).await.unwrap().len(), before);
}

#[tokio::test]
async fn no_pod_template_leads_to_a_misplaced_pod() {
    let (plane, _croft) = marked_arena(Options::default().requests_per_second(500)).await.unwrap();
    attack(&plane).await;
}
