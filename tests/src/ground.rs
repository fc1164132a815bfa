//! A control plane with Croft's manifests, tenants and their namespaces, for tests of admission.

use std::time::Duration;

use anyhow::Context as _;
use croft_policy::{
    Config, OnConflict, Pool, Provisioner, Tenant, index::Rules, model::CONTROLLER_USER, policies,
    taint::Effects,
};
use croft_testkit::{
    Component, ControlPlane, Croft, CroftOptions, Options,
    wait::{Seen, until},
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::ErrorResponse,
    discovery::ApiResource,
};
use serde_json::{Value, json};

/// For what a busy machine takes its time for.
pub const SOON: Duration = Duration::from_secs(60);

/// What a request came to.
#[derive(Debug)]
pub enum Answer {
    /// It was done, or would have been.
    Done(Box<DynamicObject>),
    /// It was refused.
    Refused(Box<ErrorResponse>),
}

impl Answer {
    /// The refusal's sentence, or what was allowed.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Done(object) => format!("allowed: {}", object.data),
            Self::Refused(status) => status.message.clone(),
        }
    }

    /// True if it was done.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }
}

/// Starts a control plane without scheduler, controllers and kubelets: what is asked is all that happens.
///
/// # Errors
/// When it doesn't start, or the manifests don't apply.
pub async fn quiet() -> anyhow::Result<(ControlPlane, Croft)> {
    let options = Options::default()
        .without(Component::Scheduler)
        .without(Component::Kubelets)
        .without(Component::ControllerManager);
    let plane = ControlPlane::start(options).await?;
    let croft = Croft::install(&plane, CroftOptions::find()?).await?;
    Ok((plane, croft))
}

/// A pool of the cluster that the tests share.
#[must_use]
pub fn pool(name: &str, key: &str, value: &str, effects: Effects, provisioner: Provisioner) -> Pool {
    Pool {
        name: name.to_owned(),
        created: None,
        key: key.to_owned(),
        value: value.to_owned(),
        effects,
        shared_with: Vec::new(),
        provisioner,
    }
}

/// A tenant by the names of its namespaces and pools.
#[must_use]
pub fn tenant(name: &str, namespaces: &[&str], pools: &[&str]) -> Tenant {
    let owned = |list: &[&str]| list.iter().map(|w| (*w).to_owned()).collect();
    Tenant {
        name: name.to_owned(),
        created: None,
        namespaces: owned(namespaces),
        selector: None,
        pools: owned(pools),
        on_conflict: OnConflict::Reject,
    }
}

/// Rules of these tenants and pools.
#[must_use]
pub fn rules(tenants: &[Tenant], pools: &[Pool]) -> Rules {
    Rules::new(&Config::default(), tenants.iter(), pools.iter())
}

/// Writes the policies, and the marks of `namespaces`, as the controller would.
///
/// # Errors
/// When the API server refuses them.
pub async fn mark(plane: &ControlPlane, rules: &Rules, namespaces: &[&str]) -> anyhow::Result<()> {
    let documents: Vec<String> = policies::documents(rules).iter().map(Value::to_string).collect();
    plane.apply(&documents.join("\n---\n")).await?;
    let api: Api<Namespace> = Api::all(plane.client_for(CONTROLLER_USER, &["system:masters"]).await?);
    for name in namespaces {
        let owner = rules.owner(name, |_| None).and_then(|id| rules.tenant(id));
        let (labels, annotations) = policies::namespace_marks(rules, name, owner);
        let patch = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        });
        if api.get_opt(name).await?.is_none() {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            api.create(&PostParams::default(), &namespace).await?;
        }
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    }
    Ok(())
}

/// Creates `object`, a whole manifest, with or without effect.
///
/// # Errors
/// When the answer is neither the object nor a refusal.
pub async fn create(client: &Client, object: &Value, dry_run: bool) -> anyhow::Result<Answer> {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').unwrap_or(("", &version));
    let plural = format!("{}s", kind.to_lowercase());
    let resource =
        ApiResource::from_gvk_with_plural(&kube::core::GroupVersionKind::gvk(group, version, &kind), &plural);
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject =
        serde_json::from_value(object.clone()).context("failed to read a manifest")?;
    answer(api.create(&PostParams { dry_run, ..PostParams::default() }, &object).await)
}

/// Sorts a result into done and refused.
///
/// # Errors
/// When it is neither.
pub fn answer(result: Result<DynamicObject, kube::Error>) -> anyhow::Result<Answer> {
    match result {
        Ok(object) => Ok(Answer::Done(Box::new(object))),
        Err(kube::Error::Api(status)) => Ok(Answer::Refused(status)),
        Err(error) => Err(error.into()),
    }
}

/// Waits until a pod that only a policy can refuse is refused with `sentence`: policies come into force about a
/// second after they are written.
///
/// # Errors
/// When that doesn't happen.
pub async fn enforced(client: &Client, pod: &Value, sentence: &str) -> anyhow::Result<()> {
    until(sentence, SOON, async || {
        let said = create(client, pod, true).await?.sentence();
        anyhow::Ok(Seen::from_option(said.contains(sentence).then_some(()), said))
    })
    .await?;
    Ok(())
}

/// A pod with this spec besides its container.
#[must_use]
pub fn pod(namespace: &str, name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    });
    if let (Some(into), Value::Object(from)) = (pod.get_mut("spec").and_then(Value::as_object_mut), spec) {
        into.extend(from);
    }
    pod
}

/// Every pod of the cluster.
///
/// # Errors
/// When they can't be listed.
pub async fn pods(client: &Client) -> anyhow::Result<Vec<Pod>> {
    Ok(Api::<Pod>::all(client.clone()).list(&Default::default()).await?.items)
}
