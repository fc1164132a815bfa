//! The writes that bring the cluster in line with its Tenants, and the actions of the engine that carry them out.

use std::time::Duration;

use croft_policy::{definitions::parameter::PROBE, node::NodeRepair};
use croft_scheduler::PodKey;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use crate::{
    action::{Action, Key},
    definitions::events::{NODE_LEFT_POOL, OBJECT_RESTORED},
    kube_api::{Call, ObjectKey, Target, Verb},
    nodeclaim::node_patch,
    reconcile::{ReconcileContext, node_reference, object_reference},
    tenant::state::{ObjectName, State},
};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Write the parameters of the admission policies on Croft's own Namespace.
    Parameters {
        /// The namespace.
        namespace: String,
        /// Merge patch of the namespace.
        patch: Value,
    },
    /// Probe whether the admission policies read the parameters that were written.
    Probe {
        /// Croft's own namespace.
        namespace: String,
        /// The revision of the parameters.
        revision: String,
    },
    /// Write the label and annotations of a namespace that are reserved to Croft.
    NamespaceMetadata {
        /// The namespace.
        namespace: String,
        /// Merge patch of the namespace.
        patch: Value,
    },
    /// Write the pool-name label and the pool's taints on a node that Croft didn't launch.
    RepairNode {
        /// The node.
        node: String,
        /// The label and taints that the node lacks.
        missing: NodeRepair,
    },
    /// Create an object that Croft keeps in a tenant's namespace.
    CreateObject {
        /// The object.
        key: ObjectKey,
        /// The whole object.
        object: Value,
        /// The tenant, if the object was deleted by hand: it gets an event.
        changed_for: Option<String>,
    },
    /// Write such an object as its Tenant declares it.
    RestoreObject {
        /// The object.
        key: ObjectKey,
        /// Its resourceVersion: a later change is another write.
        version: String,
        /// JSON Patch of the object.
        patch: Value,
        /// The tenant, if the object was changed by hand: it gets an event.
        changed_for: Option<String>,
    },
    /// Delete such an object, which no Tenant declares any more.
    RemoveObject {
        /// The object.
        key: ObjectKey,
        /// Its uid.
        uid: String,
    },
    /// Record an event: a node has left its pool, since the pool's label was removed.
    NodeLeft {
        /// The node.
        node: String,
        /// The pool.
        pool: String,
    },
    /// Write a Tenant's status.
    Status {
        /// The tenant.
        tenant: String,
        /// The status.
        status: Box<croft_api::TenantStatus>,
        /// Events to record: reason and note.
        events: Vec<(&'static str, String)>,
    },
    /// Send an empty patch, so that admission plans the DaemonSet again.
    Touch(ObjectName),
    /// Remove what was injected into a DaemonSet of a namespace that is exempt by now; the webhook isn't called for
    /// it.
    Restore {
        /// The DaemonSet.
        daemonset: ObjectName,
        /// JSON Patch of the DaemonSet.
        patch: Value,
    },
    /// Delete a pending pod that was admitted before its tenant was known; its controller recreates it.
    Recreate {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
    },
    /// Evict a pod that is bound to a wrong node.
    Evict {
        /// The pod.
        pod: ObjectName,
        /// Its uid.
        uid: String,
    },
}

impl Write {
    /// The key that serialises the writes of one object; `None` for an event.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Parameters { .. } | Self::Probe { .. } => Key::Parameters,
            Self::NamespaceMetadata { namespace, .. } => Key::Namespace(namespace.clone()),
            Self::RepairNode { node, .. } => Key::Node(node.clone()),
            Self::CreateObject { key, .. }
            | Self::RestoreObject { key, .. }
            | Self::RemoveObject { key, .. } => Key::TenantObject(key.clone()),
            Self::NodeLeft { .. } => return None,
            Self::Status { tenant, .. } => Key::Tenant(tenant.clone()),
            Self::Touch((namespace, name)) | Self::Restore { daemonset: (namespace, name), .. } => {
                Key::DaemonSet(namespace.clone(), name.clone())
            }
            Self::Recreate { pod: (namespace, name), .. } | Self::Evict { pod: (namespace, name), .. } => {
                Key::Pod(PodKey::new(namespace, name))
            }
        })
    }

    /// Returns true if `other` writes the same, but for the times of conditions, which differ from pass to pass until
    /// the watch shows the write, and for counts, which change with every pod.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Status { status: a, .. }, Self::Status { status: b, .. }) => {
                without_times(&a.conditions) == without_times(&b.conditions) && a.namespaces == b.namespaces
            }
            (a, b) => a == b,
        }
    }

    /// Requests the action of this write, and records its events.
    pub fn request(self, ctx: &mut ReconcileContext<'_>, state: &State) {
        let key = self.key();
        let call = match self {
            Self::Parameters { namespace, patch } | Self::NamespaceMetadata { namespace, patch } => {
                Call { target: Target::Namespace(namespace), verb: Verb::Patch(patch) }
            }
            Self::Probe { namespace, revision } => {
                let patch = json!({"metadata": {"annotations": {PROBE: revision}}});
                let call = Call { target: Target::Namespace(namespace), verb: Verb::DryRunPatch(patch) };
                return ctx.request(Action::ProbeParameters { revision, call });
            }
            Self::RepairNode { node, missing } => {
                let Some(held) = ctx.snapshot.nodes().get(&node) else { return };
                let patch = node_patch::repair_membership(held, &missing);
                Call { target: Target::Node(node), verb: Verb::JsonPatch(patch) }
            }
            Self::Status { tenant, status, events } => {
                let object = state.tenants.get(&tenant);
                if let Some(object) = object {
                    for (reason, note) in events {
                        ctx.event(object_reference(&**object), true, reason, note);
                    }
                }
                // A merge patch removes a field only if it says null.
                let mut status = json!(status);
                for field in ["namespaces", "conditions", "quota"] {
                    if let Some(map) = status.as_object_mut() {
                        map.entry(field).or_insert(Value::Null);
                    }
                }
                let uid = object.and_then(|object| object.metadata.uid.clone());
                let patch = json!({"metadata": {"uid": uid}, "status": status});
                Call { target: Target::Tenant(tenant), verb: Verb::PatchStatus(patch) }
            }
            Self::Touch((namespace, name)) => {
                Call { target: Target::DaemonSet(namespace, name), verb: Verb::Patch(json!({})) }
            }
            Self::Restore { daemonset: (namespace, name), patch } => {
                Call { target: Target::DaemonSet(namespace, name), verb: Verb::JsonPatch(patch) }
            }
            Self::Recreate { pod: (namespace, name), uid } => {
                let verb = Verb::Delete { uid, grace_seconds: None };
                Call { target: Target::Pod(namespace, name), verb }
            }
            Self::Evict { pod: (namespace, name), uid } => {
                let verb = Verb::Evict { uid };
                Call { target: Target::Pod(namespace, name), verb }
            }
            Self::CreateObject { key, object, changed_for } => {
                record_change(ctx, state, &key, changed_for.as_deref(), "deleted");
                Call { target: Target::TenantObject(key), verb: Verb::Create(object) }
            }
            Self::RestoreObject { key, version: _, patch, changed_for } => {
                record_change(ctx, state, &key, changed_for.as_deref(), "changed");
                Call { target: Target::TenantObject(key), verb: Verb::JsonPatch(patch) }
            }
            Self::RemoveObject { key, uid } => {
                let verb = Verb::Delete { uid, grace_seconds: None };
                Call { target: Target::TenantObject(key), verb }
            }
            Self::NodeLeft { node, pool } => return record_departure(ctx, &node, &pool),
        };
        if let Some(key) = key {
            ctx.request(Action::Write { key, call, requeue_after: Duration::ZERO });
        }
    }
}

fn record_departure(ctx: &mut ReconcileContext<'_>, node: &str, pool: &str) {
    let Some(held) = ctx.snapshot.nodes().get(node) else { return };
    let note = format!(
        "node {node} has left TenantPool {pool}: the pool's label was removed. Pods of the pool's tenants stay until \
         they are evicted, the taint until it is removed"
    );
    ctx.event(node_reference(node, held), true, NODE_LEFT_POOL, note);
}

/// Records that an object which Croft keeps was changed by hand.
fn record_change(
    ctx: &mut ReconcileContext<'_>,
    state: &State,
    key: &ObjectKey,
    tenant: Option<&str>,
    done: &str,
) {
    let Some(tenant) = tenant.and_then(|name| state.tenants.get(name)) else { return };
    let note = format!("{key} was {done} by hand, and is restored: change the Tenant instead");
    ctx.event(object_reference(&**tenant), true, OBJECT_RESTORED, note);
}

fn without_times(conditions: &[Condition]) -> Vec<(&str, &str, &str)> {
    conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.message.as_str())).collect()
}
