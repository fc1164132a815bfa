//! The eviction API decides about pods as `croft_disruption::eviction` does.

use croft_api::convert::policy::selector;
use croft_disruption::eviction::{BudgetFacts, Eviction, Guard};
use croft_testkit::{Component, ControlPlane, Options};
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, Config,
    api::{EvictParams, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "evictions";

/// A pod's phase, its condition Ready, and whether it is being deleted.
const PODS: [(&str, Option<&str>, bool); 8] = [
    ("Pending", Some("False"), false),
    ("Running", Some("True"), false),
    ("Running", Some("False"), false),
    ("Running", None, false),
    ("Succeeded", Some("False"), false),
    ("Failed", Some("False"), false),
    ("Running", Some("True"), true),
    ("Unknown", Some("False"), false),
];

/// `unhealthyPodEvictionPolicy`, healthy pods, wanted ones, and allowed disruptions.
const BUDGETS: [(Option<&str>, i32, i32, i32); 8] = [
    (None, 2, 2, 0),
    (None, 1, 2, 0),
    (None, 3, 2, 1),
    (None, 0, 0, 0),
    (Some("IfHealthyBudget"), 2, 2, 0),
    (Some("IfHealthyBudget"), 1, 2, 0),
    (Some("AlwaysAllow"), 1, 2, 0),
    (Some("AlwaysAllow"), 2, 2, 0),
];

#[tokio::test]
async fn eviction_api_answers_as_decided() -> anyhow::Result<()> {
    // No controller writes the statuses of budgets but this test.
    let options = Options::default()
        .without(Component::ControllerManager)
        .without(Component::Scheduler)
        .without(Component::Kubelets);
    let plane = ControlPlane::start(options).await?;
    let account = format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}\n---\n\
         {{apiVersion: v1, kind: ServiceAccount, metadata: {{name: default, namespace: {NAMESPACE}}}}}"
    );
    plane.apply(&account).await?;
    // A refusal is an answer here, and not tried again.
    let kubeconfig = Kubeconfig::read_from(plane.admin_kubeconfig())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    let client = Client::try_from(config)?;
    let mut wrong = Vec::new();
    for (b, budget) in BUDGETS.iter().enumerate() {
        for (p, pod) in PODS.iter().enumerate() {
            let name = format!("b{b}-p{p}");
            create_pod(&client, &name, *pod).await?;
            create_budget(&client, &name, &name, *budget).await?;
            compare(&client, &name, &format!("{pod:?} under {budget:?}"), &mut wrong).await?;
        }
    }
    for (p, pod) in PODS.iter().enumerate() {
        create_pod(&client, &format!("none-p{p}"), *pod).await?;
        compare(&client, &format!("none-p{p}"), &format!("{pod:?} under no budget"), &mut wrong).await?;
        let name = format!("two-p{p}");
        create_pod(&client, &name, *pod).await?;
        for budget in ["one", "other"] {
            create_budget(&client, &format!("{name}-{budget}"), &name, (None, 3, 2, 1)).await?;
        }
        compare(&client, &name, &format!("{pod:?} under two budgets"), &mut wrong).await?;
    }
    // A spec that is newer than its status.
    create_pod(&client, "stale", PODS[1]).await?;
    create_budget(&client, "stale", "stale", (None, 3, 2, 1)).await?;
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    let spec = json!({"spec": {"minAvailable": 5}});
    budgets.patch("stale", &PatchParams::default(), &Patch::Merge(spec)).await?;
    compare(&client, "stale", "a stale budget", &mut wrong).await?;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    plane.stop()?;
    Ok(())
}

async fn create_pod(
    client: &Client,
    name: &str,
    (phase, ready, deleted): (&str, Option<&str>, bool),
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = json!({
        "metadata": {"name": name, "labels": {"app": name}, "finalizers": ["example.com/kept"]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let conditions: Vec<Value> =
        ready.iter().map(|status| json!({"type": "Ready", "status": status})).collect();
    let status = json!({"status": {"phase": phase, "conditions": conditions}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    if deleted {
        pods.delete(name, &kube::api::DeleteParams::default()).await?;
    }
    Ok(())
}

async fn create_budget(
    client: &Client,
    name: &str,
    covers: &str,
    (policy, healthy, wanted, allowed): (Option<&str>, i32, i32, i32),
) -> anyhow::Result<()> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    let budget = json!({
        "metadata": {"name": name},
        "spec": {"minAvailable": wanted, "selector": {"matchLabels": {"app": covers}}, "unhealthyPodEvictionPolicy": policy},
    });
    let made = budgets.create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
    let status = json!({"status": {"expectedPods": 3, "currentHealthy": healthy, "desiredHealthy": wanted,
        "disruptionsAllowed": allowed, "observedGeneration": made.metadata.generation}});
    budgets.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn compare(client: &Client, name: &str, case: &str, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = pods.get(name).await?;
    let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).map(String::as_str);
    let all = budgets.list(&ListParams::default()).await?;
    let covering = all.iter().filter(|budget| {
        let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        wanted.and_then(|wanted| selector(wanted).ok()).is_some_and(|wanted| wanted.matches(label))
    });
    let covering = covering
        .map(|budget| (budget.metadata.name.as_deref().unwrap_or_default(), BudgetFacts::read(budget)));
    let decided = Eviction::of(Guard::of(&pod), covering).blocked();
    let asked = EvictParams {
        post_options: PostParams { dry_run: true, ..PostParams::default() },
        ..EvictParams::default()
    };
    let answered = match pods.evict(name, &asked).await {
        Ok(_) => None,
        Err(kube::Error::Api(refusal)) => Some(refusal.message.clone()),
        Err(error) => return Err(error.into()),
    };
    if decided.is_some() != answered.is_some() {
        wrong.push(format!("{case}: decided {decided:?}, the API server answers {answered:?}"));
    }
    Ok(())
}
