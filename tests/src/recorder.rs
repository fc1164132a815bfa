//! A webhook that records every review.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use axum::{Router, body::Bytes, extract::State, response::IntoResponse, routing::post};
use croft_policy::Tenants;
use croft_runtime::{
    certificate::bundle::{self, Rotation},
    clock::{Clock as _, SystemClock},
    serve::{Limits, serve},
    shutdown::Shutdown,
    tls::TlsSlot,
};
use croft_webhook::{
    admit::{Answer, respond},
    outcome::{Outcome, Phase},
    response::{Extras, allow},
};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Name of the recorder's webhook configuration.
const NAME: &str = "recorder";

#[derive(Clone)]
struct Shared {
    tenants: Arc<Tenants>,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// The recorder. It answers as Croft would.
pub struct Recorder {
    shared: Shared,
    stop: Shutdown,
}

impl Recorder {
    /// Starts it, and registers it for every write that Croft evaluates.
    ///
    /// # Errors
    /// If it can't listen, or be registered.
    pub async fn start(client: &Client, tenants: Tenants) -> anyhow::Result<Self> {
        let made = bundle::next_bundle(
            None,
            &["127.0.0.1".to_owned()],
            &Rotation::default(),
            None,
            SystemClock.wall(),
        )?;
        let slot = Arc::new(TlsSlot::default());
        slot.install(made.identity())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}/hear", listener.local_addr()?);
        let shared = Shared { tenants: Arc::new(tenants), heard: Arc::default() };
        let router = Router::new().route("/hear", post(hear)).with_state(shared.clone());
        let stop = Shutdown::new();
        let limits = Limits::for_reviews(std::time::Duration::ZERO);
        tokio::spawn(serve(listener, Some(slot), router, limits, Arc::default(), stop.clone()));
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": NAME},
            "webhooks": [{
                "name": "recorder.croft.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 3,
                "clientConfig": {"url": url, "caBundle": k8s_openapi::ByteString(made.trusted_pem().into_bytes())},
                "rules": [{
                    "apiGroups": ["", "apps", "batch"], "apiVersions": ["v1"], "operations": ["*"],
                    "resources": ["pods", "pods/*", "bindings", "nodes", "nodes/*", "namespaces", "namespaces/*",
                        "daemonsets", "daemonsets/*", "deployments", "deployments/*", "statefulsets", "replicasets",
                        "jobs", "cronjobs", "replicationcontrollers", "podtemplates", "configmaps"]
                }]
            }]
        }))?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        api.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(&configuration)).await?;
        Ok(Self { shared, stop })
    }

    /// The reviews since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut *self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

async fn hear(State(shared): State<Shared>, body: Bytes) -> impl IntoResponse {
    let answer = match respond(&body, &shared.tenants, Phase::Both) {
        // The recorder can't ask whether a user may assign a tenant, so it allows namespaces.
        Answer::Review { outcome: Outcome::Denied, .. } if is_of(&body, "namespaces") => Ok(allowed(&body)),
        Answer::Review { body, .. } | Answer::UnknownNamespace { body, .. } => Ok(body),
        Answer::Malformed(reason) => Err((axum::http::StatusCode::BAD_REQUEST, reason)),
    };
    shared.heard.lock().unwrap_or_else(PoisonError::into_inner).push(body.to_vec());
    answer
}

fn text<'a>(review: &'a Value, path: &str) -> &'a str {
    review.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn is_of(body: &[u8], resource: &str) -> bool {
    serde_json::from_slice::<Value>(body)
        .is_ok_and(|review| text(&review, "/request/resource/resource") == resource)
}

fn allowed(body: &[u8]) -> Bytes {
    let review: Value = serde_json::from_slice(body).unwrap_or_default();
    allow(text(&review, "/request/uid"), None, Extras::default())
}

/// Maximum number of reviews with one name: a node's life cycle alone has dozens of equal ones.
const ALIKE: u32 = 6;

/// Names each review by operation, resource, subresource, and a number if there are several.
///
/// # Errors
/// If one isn't a review.
pub fn named(reviews: &[Vec<u8>]) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    for review in reviews {
        let value: Value = serde_json::from_slice(review).context("failed to read a captured review")?;
        let text = |path: &str| text(&value, path).to_lowercase();
        let (operation, resource) = (text("/request/operation"), text("/request/resource/resource"));
        let mut name = format!("{resource}-{operation}");
        let (subresource, namespace) = (text("/request/subResource"), text("/request/namespace"));
        for part in [subresource, namespace].iter().filter(|part| !part.is_empty()) {
            name = format!("{name}-{part}");
        }
        let free = (1..=ALIKE).map(|number| format!("{name}-{number}")).find(|name| !all.contains_key(name));
        if let Some(free) = free {
            all.insert(free, review.clone());
        }
    }
    Ok(all)
}
