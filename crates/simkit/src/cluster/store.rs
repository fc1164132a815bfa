//! An API server in memory, as far as the controller and what surrounds it use one: versions, uids, finalizers,
//! graceful deletion, merge patches, disruption budgets, and a log that watches read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use croft_controller::{
    kube_api::{ApiError, Call, Response, Target, Verb, record_slot},
    merge_patch,
};
use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Kind, namespace, name.
pub type Id = (&'static str, String, String);

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Of the object.
    pub id: Id,
    /// True if it was removed; `object` is as it last was.
    pub deleted: bool,
    /// As it is now.
    pub object: Arc<Value>,
}

/// An API server in memory: versions, uids, preconditions, merge and JSON patches, finalizers, evictions.
#[derive(Clone, Debug, Default)]
pub struct Store {
    /// Every object.
    pub objects: BTreeMap<Id, Arc<Value>>,
    /// Changes, oldest first.
    pub log: Vec<Logged>,
    /// Entries of the log that are forgotten.
    dropped: usize,
    /// Grows when the log was cut: every watch has to list anew.
    pub era: u64,
    /// The resourceVersion of the last change.
    pub version: u64,
    uids: u64,
    /// Invariants that were violated.
    pub broken: Vec<String>,
    /// Instances that another cluster's tag has hidden for a while: launches meanwhile can't count them.
    pub hidden: BTreeSet<String>,
    /// The era in which the request was sent that terminated each instance.
    pub terminations: BTreeMap<String, u64>,
    /// Nodes without pods that have to leave, and since when, where workloads have volumes.
    pub(crate) emptied: BTreeMap<String, u64>,
    /// How often a check let pass what no controller could have prevented.
    pub excused: u64,
    /// Instances that the cloud or a user has touched: their nodes may go beyond the pools' budgets.
    pub touched: BTreeSet<String>,
    /// A user has changed a pool or a class, so nodes may differ from what would be launched now.
    pub edited: bool,
    /// Pods that ended with an instance that the cloud took.
    pub taken: u64,
    /// Set once it was restored from a backup: objects created since then are unknown.
    pub restored: bool,
    /// Set once a controller called another account: instances that lost their claim then are unknown.
    pub blind: bool,
}

/// Everything, as it was at some moment.
#[derive(Clone, Debug)]
pub struct Backup {
    objects: BTreeMap<Id, Arc<Value>>,
    version: u64,
}

/// The id of an object without a namespace.
#[must_use]
pub fn cluster_id(kind: &'static str, name: &str) -> Id {
    (kind, String::new(), name.to_owned())
}

fn id_of(target: &Target) -> Id {
    match target {
        Target::Claim(name)
        | Target::Pool(name)
        | Target::Class(name)
        | Target::Config(name)
        | Target::Tenant(name)
        | Target::Node(name)
        | Target::Namespace(name) => cluster_id(target.kind(), name),
        Target::Pod(namespace, name) | Target::DaemonSet(namespace, name) => {
            (target.kind(), namespace.clone(), name.clone())
        }
        Target::RecordSlot(namespace, name) => (target.kind(), namespace.clone(), name.clone()),
        Target::TenantObject(key) => (key.kind.name(), key.namespace.clone(), key.name.clone()),
        Target::Event(namespace) => ("Event", namespace.clone(), String::new()),
    }
}

fn stamp(now: Timestamp) -> Value {
    json!(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now))
}

impl Store {
    /// Everything as it is now.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup { objects: self.objects.clone(), version: self.version }
    }

    /// Versions go back, too; uids never come twice.
    pub fn restore(&mut self, backup: Backup) {
        let claims = |objects: &BTreeMap<Id, Arc<Value>>| {
            objects
                .iter()
                .filter(|(id, _)| id.0 == "NodeClaim")
                .map(|(id, _)| id.2.clone())
                .collect::<Vec<_>>()
        };
        tracing::debug!(now = ?claims(&self.objects), then = ?claims(&backup.objects), "restored");
        self.objects = backup.objects;
        self.version = backup.version;
        self.forget_but(0);
        self.era += 1;
        self.restored = true;
    }

    /// An object.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<&Value> {
        self.objects.get(id).map(|object| &**object)
    }

    /// The objects of a kind, by namespace and name.
    pub fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = (&Id, &Arc<Value>)> {
        self.objects.range((kind, String::new(), String::new())..).take_while(move |(id, _)| id.0 == kind)
    }

    /// The position after the last entry of the log.
    pub fn end(&self) -> usize {
        self.dropped + self.log.len()
    }

    /// The entries since a position, which must not be forgotten yet.
    pub fn since(&self, position: usize) -> impl Iterator<Item = &Logged> {
        self.log[position - self.dropped..].iter()
    }

    /// Forgets all but the last entries of the log.
    pub fn forget_but(&mut self, last: usize) {
        let old = self.log.len().saturating_sub(last);
        self.log.drain(..old);
        self.dropped += old;
    }

    /// Creates an object; false if it exists.
    pub fn create(&mut self, id: Id, mut object: Value, now: Timestamp) -> bool {
        if self.objects.contains_key(&id) {
            return false;
        }
        self.uids += 1;
        object["metadata"]["name"] = json!(id.2);
        if !id.1.is_empty() {
            object["metadata"]["namespace"] = json!(id.1);
        }
        object["metadata"]["uid"] = json!(format!("uid-{}-{}", id.0, self.uids));
        object["metadata"]["creationTimestamp"] = stamp(now);
        object["metadata"]["generation"] = json!(1);
        tracing::debug!(?id, uid = %object["metadata"]["uid"], at = %now, "created");
        self.put(id, object);
        true
    }

    fn put(&mut self, id: Id, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.objects.insert(id.clone(), Arc::clone(&object));
        // The record isn't watched, and each of its objects is large.
        if id.0 != "ConfigMap" {
            self.log.push(Logged { id, deleted: false, object });
        }
    }

    /// Changes the spec of an object as a user does: its generation grows.
    pub fn edit(&mut self, id: &Id, change: impl FnOnce(&mut Value)) {
        self.change(id, |object| {
            let before = object["spec"].clone();
            change(object);
            if object["spec"] != before {
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
                object["metadata"]["generation"] = json!(generation + 1);
            }
        });
    }

    /// Changes an object, if that changes anything; removes it when its last finalizer goes.
    pub fn change(&mut self, id: &Id, change: impl FnOnce(&mut Value)) {
        let Some(old) = self.objects.get(id) else { return };
        let mut new = Value::clone(old);
        change(&mut new);
        if new == **old {
            return;
        }
        let dying = !new["metadata"]["deletionTimestamp"].is_null();
        let held = new["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        if dying && !held && id.0 != "Pod" {
            self.remove(id);
        } else {
            self.put(id.clone(), new);
        }
    }

    /// Removes an object at once, whatever its finalizers.
    pub fn remove(&mut self, id: &Id) {
        if let Some(object) = self.objects.remove(id) {
            tracing::debug!(?id, uid = %object["metadata"]["uid"], "removed");
            self.version += 1;
            self.log.push(Logged { id: id.clone(), deleted: true, object });
        }
    }

    /// Serves a call of the controller.
    ///
    /// # Errors
    /// As an API server: if the object is missing or exists, a precondition fails, or a budget forbids an eviction.
    pub fn call(&mut self, call: Call, now: Timestamp) -> Result<Response, ApiError> {
        let Call { target, verb } = call;
        let (id, name) = (id_of(&target), verb.name());
        // No policy refuses a dry run.
        if matches!(target, Target::Event(_)) || matches!(verb, Verb::DryRunPatch(_)) {
            return Ok(Response::Done);
        }
        if let Verb::Create(object) = verb {
            if !self.create(id.clone(), object, now) {
                return Err(ApiError::AlreadyExists { verb: name, target });
            }
            return Ok(self.response(&id));
        }
        let Some(object) = self.objects.get(&id).map(Arc::clone) else {
            return Err(ApiError::NotFound { verb: name, target });
        };
        let conflict = |message: &str| ApiError::Conflict {
            verb: name,
            target: target.clone(),
            message: message.to_owned(),
        };
        match verb {
            Verb::Create(_) | Verb::DryRunPatch(_) => {}
            Verb::Patch(patch) => self.merge(&id, &object, patch, false).map_err(conflict)?,
            Verb::PatchStatus(patch) => self.merge(&id, &object, patch, true).map_err(conflict)?,
            Verb::JsonPatch(patch) => {
                let patched = json_patched(&object, &patch).map_err(|error| conflict(&error.to_string()))?;
                self.change(&id, |object| *object = patched);
            }
            Verb::Delete { uid, .. } | Verb::Evict { uid } if object["metadata"]["uid"] != json!(uid) => {
                return Err(conflict("uid"));
            }
            Verb::Delete { grace_seconds, .. } => {
                if id.0 == "Pod" && self.runs(&id) && !self.budget_allows(&id) {
                    self.broken.push(format!("{id:?} was deleted against its disruption budget"));
                }
                self.delete(&id, grace_seconds, now);
                // As croft-controller's client reads it.
                let is_claim = id.0 == "NodeClaim";
                return Ok(if is_claim { self.response(&id) } else { Response::Done });
            }
            Verb::Evict { .. } => {
                if !self.budget_allows(&id) {
                    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
                    return Err(ApiError::TooMany { verb: name, target, message: message.to_owned() });
                }
                self.delete(&id, None, now);
                return Ok(Response::Done);
            }
        }
        Ok(self.response(&id))
    }

    fn response(&self, id: &Id) -> Response {
        self.objects.get(id).map_or(Response::Done, |object| answer(id, object))
    }

    /// Applies a merge patch to an object or its status. The error is the precondition that fails.
    fn merge(&mut self, id: &Id, object: &Value, mut patch: Value, status: bool) -> Result<(), &'static str> {
        for key in ["uid", "resourceVersion"] {
            let wanted = &patch["metadata"][key];
            if !wanted.is_null() && *wanted != object["metadata"][key] {
                return Err(key);
            }
        }
        // Not by index: that would put a null where there is nothing, and a null in a patch erases.
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        let before = self.identity(id);
        self.change(id, |object| {
            if status {
                merge_patch::apply(object, &json!({"status": patch["status"]}));
                return;
            }
            if let Some(parts) = patch.as_object_mut() {
                parts.remove("status");
                if !parts.get("spec").is_some_and(Value::is_object) {
                    parts.remove("spec");
                }
            }
            merge_patch::apply(object, &patch);
        });
        let after = self.identity(id);
        if after.is_some() && after != before {
            self.broken.push(format!("{id:?} became another object by a patch: {before:?}, {after:?}"));
        }
        Ok(())
    }

    /// The metadata of an object that never changes.
    fn identity(&self, id: &Id) -> Option<[Value; 4]> {
        let metadata = &self.objects.get(id)?["metadata"];
        Some(["name", "namespace", "uid", "creationTimestamp"].map(|key| metadata[key].clone()))
    }

    /// Deletes an object: at once, or by a deletion timestamp if it has finalizers or is a bound pod.
    pub fn delete(&mut self, id: &Id, grace: Option<i64>, now: Timestamp) {
        let Some(object) = self.objects.get(id) else { return };
        let held = object["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
        let bound = id.0 == "Pod" && object["spec"]["nodeName"].is_string();
        if !held && !bound {
            self.remove(id);
            return;
        }
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = if bound { grace.unwrap_or(own) } else { 0 };
        let due = now.checked_add(SignedDuration::from_secs(grace)).unwrap();
        self.change(id, |object| {
            let known = object["metadata"]["deletionTimestamp"].as_str().map(str::to_owned);
            let new = stamp(due);
            if known.is_none_or(|known| new.as_str().unwrap() < known.as_str()) {
                object["metadata"]["deletionTimestamp"] = new;
            }
        });
    }

    /// True for a pod that works on a node that works.
    fn runs(&self, id: &Id) -> bool {
        let pod = &self.objects[id];
        let node = pod["spec"]["nodeName"].as_str().and_then(|node| self.get(&cluster_id("Node", node)));
        pod["status"]["phase"] == json!("Running")
            && pod["metadata"]["deletionTimestamp"].is_null()
            && node.is_some_and(|node| node["status"]["conditions"][0]["status"] == json!("True"))
    }

    /// Pods of an app that work.
    pub fn working(&self, namespace: &str, app: &Value) -> u64 {
        let mine = |id: &&Id| {
            id.1 == namespace && self.objects[*id]["metadata"]["labels"]["app"] == *app && self.runs(id)
        };
        self.of_kind("Pod").map(|(id, _)| id).filter(mine).count() as u64
    }

    /// At most `maxUnavailable` pods with the label `app` are away. A pod that doesn't work isn't missed.
    fn budget_allows(&self, id: &Id) -> bool {
        let app = &self.objects[id]["metadata"]["labels"]["app"];
        let name = app.as_str().unwrap_or_default().to_owned();
        let Some(budget) = self.get(&("PodDisruptionBudget", id.1.clone(), name)) else { return true };
        let (wanted, away) = (&budget["status"]["expectedPods"], &budget["spec"]["maxUnavailable"]);
        let least = wanted.as_u64().unwrap().saturating_sub(away.as_u64().unwrap());
        !self.runs(id) || self.working(&id.1, app) > least
    }
}

/// The object after a JSON Patch.
fn json_patched(object: &Value, patch: &Value) -> Result<Value, json_patch::PatchError> {
    let mut patched = object.clone();
    let operations = patch.as_array().into_iter().flatten();
    // The API server reads a missing path as null in a test; the crate doesn't.
    let operations = operations
        .filter(|o| {
            let path = o["path"].as_str().unwrap();
            !(o["op"] == "test" && o["value"].is_null() && patched.pointer(path).is_none())
        })
        .cloned();
    let operations: json_patch::Patch = serde_json::from_value(Value::Array(operations.collect())).unwrap();
    json_patch::patch(&mut patched, &operations)?;
    Ok(patched)
}

/// The API server's answer to a write.
pub(crate) fn answer(id: &Id, object: &Value) -> Response {
    match id.0 {
        "NodeClaim" => Response::Claim(read(object)),
        "TenantPool" => Response::Pool(read(object)),
        "EC2NodeClass" => Response::Class(read(object)),
        "CroftConfig" => Response::Config(read(object)),
        "Node" => Response::Node(read(object)),
        "Pod" => Response::Pod(read(object)),
        "ConfigMap" => record_slot(*read(object)),
        _ => Response::Done,
    }
}

/// A typed object.
pub(crate) fn read<T: DeserializeOwned>(object: &Value) -> Box<T> {
    Box::new(T::deserialize(object).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let now = Timestamp::UNIX_EPOCH;
        let patched = |verb: Verb| {
            let mut store = Store::default();
            let object = json!({
                "apiVersion": "croft.dev/v1alpha1", "kind": "TenantPool",
                "metadata": {"finalizers": ["croft.dev/pool"]},
                "spec": {"key": "node-pool"}, "status": {"claimCounter": 1},
            });
            store.create(cluster_id("TenantPool", "a"), object, now);
            let before = store.objects.clone();
            store.call(Call { target: Target::Pool("a".to_owned()), verb }, now).unwrap();
            assert_eq!(store.broken, Vec::<String>::new());
            (before, store.objects)
        };
        // How the controller looks at a claim whose create has lost its answer.
        for nothing in [json!({}), json!({"metadata": {"uid": "uid-TenantPool-1"}}), json!({"status": {}})] {
            let (before, after) = patched(Verb::Patch(nothing));
            assert_eq!(before, after);
        }
        let (_, after) = patched(Verb::PatchStatus(json!({"spec": null, "status": {"claimCounter": 2}})));
        let after = &after[&cluster_id("TenantPool", "a")];
        assert_eq!(
            (&after["spec"], &after["status"]["claimCounter"]),
            (&json!({"key": "node-pool"}), &json!(2))
        );
    }
}
