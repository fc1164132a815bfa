//! Objects that an older CRD accepted: each keeps its last good version in force, reports it in a condition, and
//! affects no other. After a restart, without an earlier version, nothing is opened, launched or terminated because of
//! it.

use std::collections::BTreeSet;

use croft_api::{
    NodeClaim,
    condition::SPEC_VALID,
    stored::{INVALID_SPEC, Kind, Stored},
};
use croft_testkit::{
    Part, http,
    wait::{Seen, until},
};
use croft_tests::{
    manifests::{class, deployment, joined, on_demand, tenant},
    stack::{EVENTUALLY, Stack, event_about, log_tail, pods, running},
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::MutatingWebhookConfiguration,
        core::v1::{Namespace, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};

const POOLS: &str = "policy.croft.dev/pools";

fn any<K: Kind>(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<K>(&()))
}

/// Removes the schemas of the CRDs, as if an older Croft had installed them, or restores the generated ones.
async fn validate(client: &Client, strictly: bool) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in croft_api::crds() {
        if !strictly {
            let schema =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            crd.spec.versions[0].schema = Some(serde_json::from_value(schema).unwrap());
        }
        crd.metadata.resource_version = api.get(&crd.name_any()).await.unwrap().metadata.resource_version;
        api.replace(&crd.name_any(), &PostParams::default(), &crd).await.unwrap();
    }
}

/// Stores what the real CRD refuses; the API server takes a moment to drop its rules.
async fn store<K: Kind>(client: &Client, name: &str, patch: Value) {
    let what = format!("{} {name} to be stored", K::kind(&()));
    until(&what, EVENTUALLY, async || {
        let api = any::<K>(client);
        let answer = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        let seen = answer.as_ref().err().map(ToString::to_string).unwrap_or_default();
        Ok::<_, kube::Error>(Seen::from_option(answer.ok().map(drop), seen))
    })
    .await
    .unwrap();
}

/// Waits until an object's condition SpecValid has this status. Returns it.
async fn spec_valid<K: Kind>(client: &Client, name: &str, status: &str) -> Condition {
    let what = format!("{} {name} with SpecValid={status}", K::kind(&()));
    until(&what, EVENTUALLY, async || {
        let object = any::<K>(client).get(name).await?;
        let conditions = object.data.pointer("/status/conditions").cloned().unwrap_or_default();
        let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
        let seen = format!("{conditions:?}");
        let found = conditions.into_iter().find(|c| c.type_ == SPEC_VALID && c.status == status);
        Ok::<_, kube::Error>(Seen::from_option(found, seen))
    })
    .await
    .unwrap()
}

async fn invalid<K: Kind>(client: &Client, name: &str, words: &[&str]) {
    let condition = spec_valid::<K>(client, name, "False").await;
    assert_eq!(condition.reason, INVALID_SPEC, "{}", condition.message);
    for word in words {
        assert!(condition.message.contains(word), "{word:?} isn't in: {}", condition.message);
    }
    event_about(client, &K::kind(&()), name, INVALID_SPEC).await.unwrap();
}

async fn scale(client: &Client, namespace: &str, replicas: usize) {
    let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), namespace);
    let patch = json!({"spec": {"replicas": replicas}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits for the pods of a namespace to run; on timeout it shows the pool's conditions and the controller's log.
async fn all_running(stack: &Stack, client: &Client, namespace: &str, count: usize) -> Vec<Pod> {
    let error = match running(client, namespace, count).await {
        Ok(pods) => return pods,
        Err(error) => error,
    };
    let pool = any::<croft_api::TenantPool>(client).get("chosen").await;
    let claims = any::<NodeClaim>(client).list(&Default::default()).await;
    panic!("{error}\n{pool:?}\n{claims:?}\n{}", log_tail(&stack.plane, "croft-controller"));
}

/// Waits until a namespace's annotation for the policies names these pools.
async fn annotated(client: &Client, namespace: &str, pools: &[&str]) {
    let api: Api<Namespace> = Api::all(client.clone());
    until(&format!("namespace {namespace} to name {pools:?}"), EVENTUALLY, async || {
        let found = api.get(namespace).await?.annotations().get(POOLS).cloned().unwrap_or_default();
        let named = pools.iter().all(|pool| found.contains(pool));
        Ok::<_, kube::Error>(Seen::from_option(named.then_some(()), found))
    })
    .await
    .unwrap();
}

/// State that must not change: running instances, and pods by uid.
async fn working(stack: &mut Stack, client: &Client) -> (BTreeSet<String>, BTreeSet<String>) {
    let instances = stack.instances().await.unwrap();
    let id = |instance: &Value| instance["id"].as_str().unwrap_or_default().to_owned();
    let chosen = pods(client, "chosen").await.unwrap();
    (instances.iter().map(id).collect(), chosen.iter().filter_map(|pod| pod.uid()).collect())
}

async fn gauge(stack: &mut Stack, part: Part, line: &str) {
    let health = stack.croft.health(part).unwrap();
    until(&format!("{line} of {part:?}"), EVENTUALLY, async || {
        let metrics = http::get(health, "/metrics").await?;
        let found: Vec<&str> =
            metrics.body.lines().filter(|found| found.contains("invalid_objects")).collect();
        Ok::<_, croft_testkit::Error>(Seen::from_option(
            found.contains(&line).then_some(()),
            found.join("; "),
        ))
    })
    .await
    .unwrap();
}

/// Every kind of invalid object at once.
async fn store_what_is_bad(client: &Client) {
    validate(client, false).await;
    let by = |operator: &str| json!({"matchExpressions": [{"key": "team", "operator": operator, "values": ["a"]}]});
    store::<croft_api::Tenant>(client, "chosen", json!({"spec": {"namespaceSelector": by("in")}})).await;
    let disruption = json!({"consolidateAfter": "soon"});
    let template = json!({"spec": {"expireAfter": "0s"}});
    store::<croft_api::TenantPool>(
        client,
        "chosen",
        json!({"spec": {"disruption": disruption, "template": template, "limits": {"cpu": "-1"}}}),
    )
    .await;
    // The API server takes no write of an object with a value of another type, so that an event alone can say it.
    store::<croft_api::TenantPool>(client, "fine-b", json!({"spec": {"weight": "heavy"}})).await;
    store::<croft_api::EC2NodeClass>(client, "default", json!({"spec": {"amiFamily": "Debian"}})).await;
    let claims: Api<Stored<NodeClaim>> = Api::all(client.clone());
    let all = claims.list(&Default::default()).await.unwrap();
    let of_chosen = all.items.iter().find(|claim| claim.name_any().starts_with("chosen")).unwrap().name_any();
    let near = json!([{"key": "a", "operator": "Near", "values": ["b"]}]);
    store::<NodeClaim>(client, &of_chosen, json!({"spec": {"requirements": near}})).await;
    store::<croft_api::CroftConfig>(
        client,
        "default",
        json!({"spec": {"exemptNamespaces": ["kube-system", "team-*", "agents"]}}),
    )
    .await;
    let other = json!({
        "apiVersion": "croft.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": "other"},
        "spec": {"namespaces": ["strange"], "pools": "all"},
    });
    let other = serde_json::from_value(other).unwrap();
    any::<croft_api::Tenant>(client).create(&PostParams::default(), &other).await.unwrap();
    validate(client, true).await;
}

#[tokio::test]
async fn unreadable_object_affects_no_other_and_keeps_its_last_good_version() {
    let mut stack = Stack::start().await.unwrap();
    let client = stack.plane.admin().await.unwrap();
    let pool = on_demand(&["m5.large"], json!({"consolidateAfter": "Never"}));
    let [mut namespace, chosen_pool, mut chosen] = tenant("chosen", "chosen", &pool);
    namespace["metadata"]["labels"] = json!({"team": "a"});
    chosen["spec"] = json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "pools": ["chosen"]});
    let mut all = vec![class("default"), namespace, chosen_pool, chosen];
    // With a class of its own: after a restart, what uses a class that can't be read launches nothing.
    let mut fine = pool.clone();
    fine["template"]["spec"]["nodeClassRef"]["name"] = json!("fine");
    all.push(class("fine"));
    all.extend(tenant("fine", "fine", &fine));
    all.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool", "metadata": {"name": "fine-b"}, "spec": pool}));
    all.push(json!({"apiVersion": "croft.dev/v1alpha1", "kind": "CroftConfig", "metadata": {"name": "default"}, "spec": {}}));
    all.extend(["chosen", "fine"].map(|name| deployment(name, "web", 1, "500m", "256M")));
    stack.plane.apply(&joined(&all)).await.unwrap();
    running(&client, "chosen", 1).await.unwrap();
    running(&client, "fine", 1).await.unwrap();
    let before = working(&mut stack, &client).await;

    store_what_is_bad(&client).await;
    invalid::<croft_api::Tenant>(&client, "chosen", &["spec.namespaceSelector", "last good version"]).await;
    event_about(&client, "Tenant", "other", INVALID_SPEC).await.unwrap();
    event_about(&client, "TenantPool", "fine-b", INVALID_SPEC).await.unwrap();
    invalid::<croft_api::TenantPool>(&client, "chosen", &["spec.", "last good version"]).await;
    invalid::<croft_api::EC2NodeClass>(&client, "default", &["spec.amiFamily"]).await;
    gauge(&mut stack, Part::Controller, r#"croft_invalid_objects{kind="Tenant"} 2"#).await;
    gauge(&mut stack, Part::Controller, r#"croft_invalid_objects{kind="NodeClaim"} 1"#).await;
    gauge(&mut stack, Part::Controller, r#"croft_invalid_objects{kind="CroftConfig"} 1"#).await;
    gauge(&mut stack, Part::Webhook, "croft_webhook_invalid_objects 3.0").await;

    // Their last good versions stay in force, class and pool included: the second pod needs its own node.
    scale(&client, "chosen", 4).await;
    for pod in all_running(&stack, &client, "chosen", 4).await {
        let selector = pod.spec.unwrap().node_selector.unwrap_or_default();
        assert_eq!(selector.get(croft_api::pool::DEFAULT_KEY).map(String::as_str), Some("chosen"));
    }
    // Edits of other objects take effect, in the controller and in the API server's webhook configuration.
    store::<croft_api::Tenant>(&client, "fine", json!({"spec": {"pools": ["fine", "fine-b"]}})).await;
    annotated(&client, "fine", &["=fine:", "=fine-b:"]).await;
    until("the exempt namespaces in the webhook's scope", EVENTUALLY, async || {
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let text = json!(api.get("croft-webhook").await?).to_string();
        let right = text.contains("\"agents\"") && !text.contains("team-*");
        Ok::<_, kube::Error>(Seen::from_option(right.then_some(()), text))
    })
    .await
    .unwrap();
    let (instances, pods_before) = working(&mut stack, &client).await;
    assert!(instances.is_superset(&before.0) && pods_before.is_superset(&before.1), "nothing was terminated");

    // After a restart no earlier version is known.
    for part in [Part::Controller, Part::Webhook] {
        stack.croft.kill(part).unwrap();
        stack.croft.resume(&stack.plane, part).await.unwrap();
    }
    scale(&client, "fine", 4).await;
    all_running(&stack, &client, "fine", 4).await;
    let refused = Api::<Pod>::namespaced(client.clone(), "chosen");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone"},
        "spec": {"containers": [{"name": "c", "image": "registry.example/app:1"}]}});
    let error =
        refused.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("the claims of a Tenant can't be read"), "{error}");
    annotated(&client, "chosen", &["=chosen:"]).await;
    gauge(&mut stack, Part::Controller, r#"croft_invalid_objects{kind="Tenant"} 2"#).await;
    let (instances_after, pods_after) = working(&mut stack, &client).await;
    assert!(instances_after.is_superset(&instances), "an instance was terminated");
    assert_eq!(pods_after, pods_before, "a pod was deleted");

    // Once corrected, everything continues.
    let by_label = json!({"matchLabels": {"team": "a"}, "matchExpressions": null});
    store::<croft_api::Tenant>(&client, "chosen", json!({"spec": {"namespaceSelector": by_label}})).await;
    let spec = json!({"disruption": {"consolidateAfter": "Never"}, "template": {"spec": {"expireAfter": null}}, "limits": null});
    store::<croft_api::TenantPool>(&client, "chosen", json!({"spec": spec})).await;
    store::<croft_api::EC2NodeClass>(&client, "default", json!({"spec": {"amiFamily": null}})).await;
    spec_valid::<croft_api::Tenant>(&client, "chosen", "True").await;
    spec_valid::<croft_api::TenantPool>(&client, "chosen", "True").await;
    spec_valid::<croft_api::EC2NodeClass>(&client, "default", "True").await;
    scale(&client, "chosen", 5).await;
    all_running(&stack, &client, "chosen", 5).await;
    stack.check().unwrap();
}
