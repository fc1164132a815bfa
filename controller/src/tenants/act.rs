//! The writes of this module.

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams, Preconditions},
    core::GroupVersionKind,
    discovery::ApiResource,
};
use serde_json::{Value, json};

use super::decide::Action;

const FIELD_MANAGER: &str = "croft-tenants";
const CONTROLLER: &str = "croft.dev/tenants";
/// Events about cluster-scoped objects go there.
const DEFAULT_NAMESPACE: &str = "default";

/// Carries `action` out.
///
/// # Errors
/// When the API server refuses it or can't be reached. What is gone already is no error.
pub async fn act(client: &Client, action: Action, now: Timestamp) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let result = match action {
        Action::Policy(document) => policy(client, &document).await,
        Action::Mark { namespace, patch } => {
            let api: Api<Namespace> = Api::all(client.clone());
            api.patch_metadata(&namespace, &params, &Patch::Merge(patch)).await.map(|_| ())
        }
        Action::MarkNode { node, mark } => {
            let api: Api<Node> = Api::all(client.clone());
            let patch = json!({"metadata": {"labels": {croft_policy::model::MARK_KEY: mark}}});
            api.patch_metadata(&node, &params, &Patch::Merge(patch)).await.map(|_| ())
        }
        Action::Status { tenant, status, tell } => {
            let api: Api<croft_api::Tenant> = Api::all(client.clone());
            // Fields that are empty now must go, which a merge does only where null is written.
            let mut status = json!(status);
            for field in ["namespaces", "conditions"] {
                if let Some(map) = status.as_object_mut() {
                    map.entry(field).or_insert(Value::Null);
                }
            }
            let written = api.patch_status(&tenant, &params, &Patch::Merge(json!({"status": status}))).await;
            match written {
                Ok(object) => {
                    for (reason, note) in tell {
                        event(client, &object, reason, &note, now).await?;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        Action::PoolStatus { pool, version, conditions, tell } => {
            let api: Api<croft_api::TenantPool> = Api::all(client.clone());
            let patch =
                json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
            match api.patch_status(&pool, &params, &Patch::Merge(patch)).await {
                Ok(object) => match tell {
                    Some((reason, note)) => event(client, &object, reason, &note, now).await,
                    None => Ok(()),
                },
                Err(error) => Err(error),
            }
        }
        Action::Touch((namespace, name)) => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
            api.patch_metadata(&name, &params, &Patch::Merge(json!({}))).await.map(|_| ())
        }
        Action::Recreate { pod: (namespace, name), uid } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let params = DeleteParams { preconditions: of(uid), ..DeleteParams::default() };
            api.delete(&name, &params).await.map(|_| ())
        }
        Action::Evict { pod: (namespace, name), uid } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let delete_options = Some(DeleteParams { preconditions: of(uid), ..DeleteParams::default() });
            api.evict(&name, &EvictParams { delete_options, ..EvictParams::default() }).await.map(|_| ())
        }
    };
    match result {
        // Gone, or another of that name by now: what was to be done is done, or the next round says anew.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        result => result,
    }
}

const fn of(uid: String) -> Option<Preconditions> {
    Some(Preconditions { uid: Some(uid), resource_version: None })
}

async fn policy(client: &Client, document: &Value) -> Result<(), kube::Error> {
    let text = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (kind, name) = (text("/kind"), text("/metadata/name"));
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let plural = if kind.ends_with("Policy") {
        "validatingadmissionpolicies"
    } else {
        "validatingadmissionpolicybindings"
    };
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let params = PatchParams::apply(FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(document)).await.map(|_| ())
}

async fn event<K: Resource<DynamicType = ()>>(
    client: &Client,
    about: &K,
    reason: &str,
    note: &str,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let api: Api<Event> = Api::namespaced(client.clone(), DEFAULT_NAMESPACE);
    let mut event = Event {
        event_time: Some(MicroTime(now)),
        type_: Some("Warning".to_owned()),
        reason: Some(reason.to_owned()),
        action: Some("Judge".to_owned()),
        // The API server takes 1 kB.
        note: Some(note.chars().take(1_000).collect()),
        regarding: Some(about.object_ref(&())),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(CONTROLLER.to_owned()),
        ..Event::default()
    };
    event.metadata.generate_name = Some("croft-tenant-".to_owned());
    event.metadata.namespace = Some(DEFAULT_NAMESPACE.to_owned());
    api.create(&PostParams::default(), &event).await.map(|_| ())
}
