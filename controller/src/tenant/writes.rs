//! The writes of this module.

use croft_api::stored::{Kind, Stored};
use croft_policy::{
    definitions::{POOL_NAME_LABEL, parameter},
    node::NodeRepair,
    policies::parameters,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Namespace, Node, Pod, Taint},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::{definitions::events::NODE_LEFT_POOL, tenant::action::Action};

const FIELD_MANAGER: &str = "croft-tenants";
const CONTROLLER: &str = "croft.dev/tenants";
/// Kubelets and controllers write a node often while it starts, so that a patch may conflict.
const REPAIR_ATTEMPTS: u32 = 10;
/// Namespace of events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// Executes `action`.
///
/// # Errors
/// The API server refuses the write or can't be reached. An object that is gone is no error.
pub async fn execute(client: &Client, action: Action, now: Timestamp) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let result = match action {
        Action::Parameters { namespace, patch } | Action::NamespaceMetadata { namespace, patch } => {
            let api: Api<Namespace> = Api::all(client.clone());
            api.patch_metadata(&namespace, &params, &Patch::Merge(patch)).await.map(|_| ())
        }
        // Only the answer counts: see `probe`.
        Action::Probe { namespace, revision } => probe(client, &namespace, &revision).await.map(drop),
        Action::RepairNode { node, missing } => repair_node(client, &node, &missing, &params).await,
        Action::NodeLeft { node, pool } => {
            let api: Api<Node> = Api::all(client.clone());
            let note = format!(
                "node {node} has left TenantPool {pool}: the pool's label was removed. Pods of the pool's tenants stay until \
                 they are evicted, the taint until it is removed"
            );
            match api.get_metadata(&node).await {
                Ok(node) => {
                    record_event(client, &node_reference(&node.metadata), NODE_LEFT_POOL, &note, now).await
                }
                Err(error) => Err(error),
            }
        }
        Action::Status { tenant, status, events } => {
            let api: Api<Stored<croft_api::Tenant>> = Api::all(client.clone());
            // A merge patch removes a field only if it says null.
            let mut status = json!(status);
            for field in ["namespaces", "conditions"] {
                if let Some(map) = status.as_object_mut() {
                    map.entry(field).or_insert(Value::Null);
                }
            }
            let written = api.patch_status(&tenant, &params, &Patch::Merge(json!({"status": status}))).await;
            match written {
                Ok(object) => {
                    for (reason, note) in events {
                        record_event(client, &object, reason, &note, now).await?;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            }
        }
        Action::PoolStatus { pool, version, conditions, event } => {
            patch_conditions::<croft_api::TenantPool>(client, &pool, (version, conditions), event, now).await
        }
        Action::ClassStatus { class, version, conditions, event } => {
            patch_conditions::<croft_api::EC2NodeClass>(client, &class, (version, conditions), event, now)
                .await
        }
        Action::Touch((namespace, name)) => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
            api.patch_metadata(&name, &params, &Patch::Merge(json!({}))).await.map(|_| ())
        }
        Action::Restore { daemonset: (namespace, name), patch } => {
            let api: Api<DaemonSet> = Api::namespaced(client.clone(), &namespace);
            let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
            api.patch_metadata(&name, &params, &Patch::Json::<()>(patch)).await.map(|_| ())
        }
        Action::Recreate { pod: (namespace, name), uid } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let params = DeleteParams { preconditions: uid_precondition(uid), ..DeleteParams::default() };
            api.delete(&name, &params).await.map(|_| ())
        }
        Action::Evict { pod: (namespace, name), uid } => {
            let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
            let delete_options =
                Some(DeleteParams { preconditions: uid_precondition(uid), ..DeleteParams::default() });
            api.evict(&name, &EvictParams { delete_options, ..EvictParams::default() }).await.map(|_| ())
        }
    };
    match result {
        // The object is gone or replaced: the next pass decides again.
        Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => Ok(()),
        result => result,
    }
}

fn node_reference(metadata: &ObjectMeta) -> Node {
    Node {
        metadata: ObjectMeta {
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            ..ObjectMeta::default()
        },
        ..Node::default()
    }
}

/// Writes label and taints in one patch, so that no pod is bound in between. Taints are an atomic list with several
/// writers, so the patch names the resourceVersion that it was made from, and is retried after a conflict.
async fn repair_node(
    client: &Client,
    node: &str,
    missing: &NodeRepair,
    params: &PatchParams,
) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    for attempt in 1.. {
        let held = api.get(node).await?;
        let mut taints = held.spec.and_then(|spec| spec.taints).unwrap_or_default();
        for taint in &missing.taints {
            taints.retain(|held| held.key != taint.key || held.effect != taint.effect.as_str());
            taints.push(Taint {
                key: taint.key.clone(),
                value: Some(taint.value.clone()),
                effect: taint.effect.as_str().to_owned(),
                ..Taint::default()
            });
        }
        let patch = json!({
            "metadata": {"resourceVersion": held.metadata.resource_version, "labels": {POOL_NAME_LABEL: missing.pool_name}},
            "spec": {"taints": taints},
        });
        match api.patch(node, params, &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && attempt < REPAIR_ATTEMPTS => {}
            result => return result.map(|_| ()),
        }
    }
    Ok(())
}

/// Writes the conditions of one version of an object; the spec needn't be readable.
async fn patch_conditions<K: Kind>(
    client: &Client,
    name: &str,
    (version, conditions): (Option<String>, Vec<Condition>),
    event: Option<(&'static str, String)>,
    now: Timestamp,
) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let api: Api<Stored<K>> = Api::all(client.clone());
    let patch = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": conditions}});
    let object = api.patch_status(name, &params, &Patch::Merge(patch)).await?;
    match event {
        Some((reason, note)) => record_event(client, &object, reason, &note, now).await,
        None => Ok(()),
    }
}

const fn uid_precondition(uid: String) -> Option<Preconditions> {
    Some(Preconditions { uid: Some(uid), resource_version: None })
}

/// Returns true if the API server's policies read the parameters of `revision`: they refuse this dry run then.
///
/// # Errors
/// The API server can't be reached, or refuses for another reason.
pub async fn probe(client: &Client, namespace: &str, revision: &str) -> Result<bool, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        dry_run: true,
        ..PatchParams::default()
    };
    let patch = json!({"metadata": {"annotations": {parameter::PROBE: revision}}});
    // Patches the whole object: the API server's audit log lacks the message of a refusal in the form of metadata.
    match api.patch(namespace, &params, &Patch::Merge(patch)).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) => {
            let refused = format!("{}{revision}", parameters::IN_FORCE);
            if status.message.contains(&refused) { Ok(true) } else { Err(kube::Error::Api(status)) }
        }
        Err(error) => Err(error),
    }
}

async fn record_event<K: Resource<DynamicType = ()>>(
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
        action: Some(reason.to_owned()),
        // The API server accepts 1 kB.
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
