//! [`KubeApi`] through a real API server.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use croft_api::{
    CroftConfig, EC2NodeClass, NodeClaim, Tenant, TenantPool,
    stored::{Checked, Kind, Stored},
};
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{ConfigMap, LimitRange, Namespace, Node, Pod, ResourceQuota},
    events::v1::Event,
    networking::v1::NetworkPolicy,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, Client, Resource,
    core::{
        ObjectList, Request,
        params::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::kube_api::{
    ApiError, Call, KubeApi, ObjectKind, Response, Target, Verb,
    trim::{trim, trim_node},
};

/// A leader starts no call after its renew deadline (7 s), and no other process leads before the lease expires (10
/// s): every call of the former leader ends in between.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
const FIELD_MANAGER: &str = "croft-controller";

/// Calls through a [`Client`].
#[derive(Clone)]
pub struct KubeClient {
    client: Client,
    checked: Arc<Mutex<Checked>>,
}

impl KubeClient {
    /// Calls through `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, checked: Arc::default() }
    }

    /// The response with one of Croft's objects. An object that can't be read arrives by the watch instead.
    fn own_object<K: Kind>(&self, stored: Stored<K>, response: fn(Box<K>) -> Response) -> Response {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        stored.read(&mut checked).map_or(Response::Done, |object| response(Box::new(object)))
    }

    async fn send<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, kube::Error> {
        let response = tokio::time::timeout(CALL_TIMEOUT, self.client.request::<T>(request)).await;
        response.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())))
    }
}

#[async_trait]
impl KubeApi for KubeClient {
    async fn call(&self, call: Call) -> Result<Response, ApiError> {
        let Call { target, verb } = call;
        let verb_name = verb.name();
        let unbuildable = |e: &dyn std::fmt::Display, target: Target| ApiError::Refused {
            verb: verb_name,
            target,
            code: 0,
            message: e.to_string(),
        };
        let returns_object = !matches!(verb, Verb::Delete { .. } | Verb::Evict { .. });
        let request = match build_request(&target, verb) {
            Ok(request) => request,
            Err(e) => return Err(unbuildable(&e, target)),
        };
        let response = if returns_object {
            match &target {
                Target::Claim(_) => self.send(request).await.map(|o| self.own_object(o, Response::Claim)),
                Target::Pool(_) => self.send(request).await.map(|o| self.own_object(o, Response::Pool)),
                Target::Class(_) => self.send(request).await.map(|o| self.own_object(o, Response::Class)),
                Target::Config(_) => self.send(request).await.map(|o| self.own_object(o, Response::Config)),
                Target::Node(_) => self.send(request).await.map(|o| Response::Node(Box::new(trim_node(o)))),
                Target::Pod(..) => self.send(request).await.map(|o| Response::Pod(Box::new(trim(o)))),
                // The watch shows the rest soon enough: no decision waits for it.
                Target::Tenant(_)
                | Target::Namespace(_)
                | Target::DaemonSet(..)
                | Target::TenantObject(_)
                | Target::Event(_) => self.send::<Value>(request).await.map(|_| Response::Done),
                Target::RecordSlot(..) => self.send::<ConfigMap>(request).await.map(record_slot),
            }
        } else {
            let answer = self.send::<Value>(request).await;
            // A decision about the pool's budgets may follow before a watch shows that the claim is being deleted.
            let is_claim = matches!(target, Target::Claim(_));
            answer.map(|answer| match is_claim.then(|| terminating(answer)).flatten() {
                Some(claim) => self.own_object(claim, Response::Claim),
                None => Response::Done,
            })
        };
        response.map_err(|e| classify(e, verb_name, target))
    }

    async fn list_claims(&self) -> Result<Vec<NodeClaim>, ApiError> {
        let api: Api<Stored<NodeClaim>> = Api::all(self.client.clone());
        // Without a resourceVersion the list is a quorum read.
        let list = api.list(&ListParams::default()).await;
        // Each claim may have an instance: a claim that can't be read in full is returned as far as it can.
        let legible = |list: ObjectList<_>| list.items.into_iter().filter_map(Stored::legible).collect();
        list.map(legible).map_err(|e| classify(e, "list", Target::Claim("*".to_owned())))
    }

    async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, ApiError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let response = tokio::time::timeout(CALL_TIMEOUT, api.list(&bound)).await;
        let list = response.unwrap_or_else(|_| Err(kube::Error::Service("no answer in time".into())));
        let target = || Target::Pod("*".to_owned(), format!("* on node {node}"));
        list.map(trimmed).map_err(|e| classify(e, "list", target()))
    }
}

/// The claim in the answer to its deletion, if finalizers keep it. Without any, the answer is a Status.
fn terminating(answer: Value) -> Option<Stored<NodeClaim>> {
    let is_kept = answer.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    is_kept.then(|| serde_json::from_value(answer).ok()).flatten()
}

/// The segment in a slot of the decision log.
#[must_use]
pub fn record_slot(mut object: ConfigMap) -> Response {
    let segment = object.binary_data.as_mut().and_then(|data| data.remove(croft_record::SEGMENT_KEY));
    Response::RecordSlot {
        version: object.metadata.resource_version.unwrap_or_default(),
        bytes: segment.map(|segment| segment.0).unwrap_or_default(),
    }
}

fn trimmed<K: Resource + Clone>(list: ObjectList<K>) -> Vec<K> {
    list.items.into_iter().map(trim).collect()
}

fn base_path<K: Resource<DynamicType = ()>>(namespace: Option<&str>) -> Request {
    Request::new(K::url_path(&(), namespace))
}

fn build_request(target: &Target, verb: Verb) -> Result<http::Request<Vec<u8>>, String> {
    let (request, name) = match target {
        Target::Claim(name) => (base_path::<NodeClaim>(None), name.as_str()),
        Target::Pool(name) => (base_path::<TenantPool>(None), name.as_str()),
        Target::Class(name) => (base_path::<EC2NodeClass>(None), name.as_str()),
        Target::Config(name) => (base_path::<CroftConfig>(None), name.as_str()),
        Target::Tenant(name) => (base_path::<Tenant>(None), name.as_str()),
        Target::Node(name) => (base_path::<Node>(None), name.as_str()),
        Target::Namespace(name) => (base_path::<Namespace>(None), name.as_str()),
        Target::DaemonSet(namespace, name) => (base_path::<DaemonSet>(Some(namespace)), name.as_str()),
        Target::Pod(namespace, name) => (base_path::<Pod>(Some(namespace)), name.as_str()),
        Target::TenantObject(key) => {
            let namespace = Some(key.namespace.as_str());
            let path = match key.kind {
                ObjectKind::NetworkPolicy => base_path::<NetworkPolicy>(namespace),
                ObjectKind::ResourceQuota => base_path::<ResourceQuota>(namespace),
                ObjectKind::LimitRange => base_path::<LimitRange>(namespace),
                ObjectKind::RoleBinding => base_path::<RoleBinding>(namespace),
                ObjectKind::ClusterRoleBinding => base_path::<ClusterRoleBinding>(None),
            };
            (path, key.name.as_str())
        }
        Target::Event(namespace) => (base_path::<Event>(Some(namespace)), ""),
        Target::RecordSlot(namespace, name) => (base_path::<ConfigMap>(Some(namespace)), name.as_str()),
    };
    let post = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let bytes = |value: &Value| serde_json::to_vec(value).map_err(|e| e.to_string());
    match verb {
        Verb::Create(object) => request.create(&post, bytes(&object)?).map_err(|e| e.to_string()),
        Verb::Patch(patch) => request.patch(name, &params, &Patch::Merge(patch)).map_err(|e| e.to_string()),
        Verb::DryRunPatch(patch) => {
            let params = PatchParams { dry_run: true, ..params };
            request.patch(name, &params, &Patch::Merge(patch)).map_err(|e| e.to_string())
        }
        Verb::JsonPatch(patch) => {
            let patch = serde_json::from_value(patch).map_err(|e| e.to_string())?;
            request.patch(name, &params, &Patch::Json::<()>(patch)).map_err(|e| e.to_string())
        }
        Verb::PatchStatus(patch) => request
            .patch_subresource("status", name, &params, &Patch::Merge(patch))
            .map_err(|e| e.to_string()),
        Verb::Delete { uid, grace_seconds } => {
            let params = DeleteParams {
                grace_period_seconds: grace_seconds.map(|s| u32::try_from(s.max(0)).unwrap_or(u32::MAX)),
                preconditions: Some(Preconditions { uid: Some(uid), resource_version: None }),
                ..DeleteParams::default()
            };
            request.delete(name, &params).map_err(|e| e.to_string())
        }
        Verb::Evict { uid } => {
            let Target::Pod(namespace, name) = target else {
                return Err(format!("only pods can be evicted, not {target}"));
            };
            let eviction = json!({
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
                "deleteOptions": {"preconditions": {"uid": uid}},
            });
            request.create_subresource("eviction", name, &post, bytes(&eviction)?).map_err(|e| e.to_string())
        }
    }
}

fn classify(error: kube::Error, verb: &'static str, target: Target) -> ApiError {
    let kube::Error::Api(status) = error else {
        return ApiError::Unknown { verb, target, message: error.to_string() };
    };
    let message = status.message.clone();
    match (status.code, status.reason.as_str()) {
        (404, _) => ApiError::NotFound { verb, target },
        (409, "AlreadyExists") => ApiError::AlreadyExists { verb, target },
        (409, _) => ApiError::Conflict { verb, target, message },
        // An invalid object has causes. Without causes, a test of the JSON Patch failed, or its path doesn't exist.
        (422, _) if status.details.as_ref().is_none_or(|details| details.causes.is_empty()) => {
            ApiError::Conflict { verb, target, message }
        }
        (429, _) => ApiError::TooMany { verb, target, message },
        // A gateway error or an overloaded etcd says nothing about the effect of the write.
        (500..=599, _) => ApiError::Unknown { verb, target, message },
        (code, _) => ApiError::Refused { verb, target, code, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, reason: &str) -> kube::Error {
        let mut status = kube::core::Status::failure("message", reason);
        status.code = code;
        kube::Error::Api(Box::new(status))
    }

    #[test]
    fn errors_are_classified_by_what_is_known_of_the_effect() {
        let reason =
            |code, reason| classify(status(code, reason), "patch", Target::Node("n".into())).reason();
        assert_eq!(reason(404, "NotFound"), "not_found");
        assert_eq!(reason(409, "AlreadyExists"), "already_exists");
        assert_eq!(reason(409, "Conflict"), "conflict");
        assert_eq!(reason(429, "TooManyRequests"), "too_many_requests");
        assert_eq!(reason(422, "Invalid"), "conflict");
        assert_eq!(reason(403, "Forbidden"), "refused");
        assert_eq!(reason(504, "Timeout"), "unknown");
    }

    #[test]
    fn every_call_is_conditional_on_the_uid() {
        let request =
            build_request(&Target::Pod("ns".into(), "p".into()), Verb::Evict { uid: "u-1".into() }).unwrap();
        assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/pods/p/eviction");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["deleteOptions"]["preconditions"]["uid"], "u-1");

        let request = build_request(
            &Target::Claim("c".into()),
            Verb::Delete { uid: "u-2".into(), grace_seconds: None },
        )
        .unwrap();
        assert_eq!(request.method(), http::Method::DELETE);
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["preconditions"]["uid"], "u-2");
    }

    #[test]
    fn the_answer_to_a_deletion_shows_a_claim_that_finalizers_keep() {
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        assert!(terminating(status).is_none());
        let kept = json!({
            "apiVersion": "croft.dev/v1alpha1", "kind": "NodeClaim",
            "metadata": {"name": "c", "uid": "u", "finalizers": ["croft.dev/termination"],
                "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"pool": "p", "nodeClassRef": {"name": "class"}, "instanceTypes": [], "zones": [],
                "capacityType": "on-demand"},
        });
        let claim = terminating(kept).and_then(Stored::legible).unwrap();
        assert!(claim.metadata.deletion_timestamp.is_some());
    }
}
