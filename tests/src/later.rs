//! A mutating webhook that the API server calls after Croft's, and that reverts Croft's changes.

use std::sync::Arc;

use axum::{Json, Router, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use croft_runtime::{
    certificate::bundle::{self, Rotation},
    clock::{Clock as _, SystemClock},
    serve::{Limits, serve},
    shutdown::Shutdown,
    tls::TlsSlot,
};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Label of the pods that it changes: `once`, or `again` for those that it changes again after Croft's second call.
pub const LABEL: &str = "later.example.dev/when";
/// Annotation with the JSON Patch that it answers with. Operations on absent paths are left out.
pub const REWRITE: &str = "later.example.dev/patch";

/// The webhook. Dropping it ends it; its configurations are kept.
pub struct Later {
    stop: Shutdown,
}

impl Later {
    /// Starts it, and registers it under names that sort after Croft's.
    ///
    /// # Errors
    /// If it can't listen, or be registered.
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
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
        let address = listener.local_addr()?;
        let router = Router::new().route("/{when}", post(rewrite));
        let stop = Shutdown::new();
        let limits = Limits::for_reviews(std::time::Duration::ZERO);
        tokio::spawn(serve(listener, Some(slot), router, limits, Arc::default(), stop.clone()));
        let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
        let bundle = k8s_openapi::ByteString(made.trusted_pem().into_bytes());
        for (when, reinvocation) in [("once", "Never"), ("again", "IfNeeded")] {
            let name = format!("zz-later-{when}");
            let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": name},
                "webhooks": [{
                    "name": format!("{when}.later.example.dev"), "admissionReviewVersions": ["v1"],
                    "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 3,
                    "reinvocationPolicy": reinvocation,
                    "objectSelector": {"matchLabels": {LABEL: when}},
                    "clientConfig": {"url": format!("https://{address}/{when}"), "caBundle": bundle},
                    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
                }]
            }))?;
            api.patch(&name, &PatchParams::apply("later").force(), &Patch::Apply(&configuration)).await?;
        }
        Ok(Self { stop })
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.stop.begin();
    }
}

async fn rewrite(Json(review): Json<Value>) -> Json<Value> {
    let request = review.get("request").cloned().unwrap_or_default();
    let pod = request.get("object").cloned().unwrap_or_default();
    let wanted = pod.get("metadata").and_then(|m| m.get("annotations")).and_then(|a| a.get(REWRITE));
    let wanted: Vec<Value> =
        wanted.and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let applies = |operation: &Value| {
        let path = operation.get("path").and_then(Value::as_str).unwrap_or_default();
        operation.get("op").and_then(Value::as_str) != Some("remove") || pod.pointer(path).is_some()
    };
    let patch: Vec<Value> = wanted.into_iter().filter(applies).collect();
    let mut response = json!({"uid": request.get("uid"), "allowed": true});
    if let (false, Some(map)) = (patch.is_empty(), response.as_object_mut()) {
        map.insert("patchType".to_owned(), json!("JSONPatch"));
        map.insert("patch".to_owned(), json!(STANDARD.encode(Value::from(patch).to_string())));
    }
    Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}
