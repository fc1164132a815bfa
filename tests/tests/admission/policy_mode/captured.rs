//! The fixtures of the policy crate, and the captured reviews of the corpus: each request is sent again.

use std::{collections::BTreeMap, fs, path::Path};

use croft_policy::{Tenants, definitions::INJECTED_ANNOTATION};
use croft_testkit::ControlPlane;
use croft_tests::{
    arena::{self, Answer, create},
    corpus,
};
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::{
    NAMESPACES,
    answers::{Asked, Tally, api_of, as_value, expected},
    random::workload,
};

/// Fields of an object that the API server writes.
const WRITTEN: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "ownerReferences",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
/// The user that writes namespaces: unlike an administrator, without the verb `assign`, as the policy crate assumes.
const MAKER: &str = "maker";
const MAKERS_ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: maker}
rules: [{apiGroups: [''], resources: [namespaces], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: maker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maker}
subjects: [{kind: User, name: maker}]
";

/// The objects of the policy crate's fixtures, completed so that the API server accepts them.
pub(crate) fn fixtures() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/policy/tests/fixtures");
    let names: Vec<&str> = NAMESPACES.iter().map(|(name, _)| *name).collect();
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let case: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let namespace = case["namespace"].as_str().unwrap();
        let object = &case["object"];
        let is_daemonset = object["kind"] == "DaemonSet";
        let (metadata, spec) = if is_daemonset {
            (&object["spec"]["template"]["metadata"], &object["spec"]["template"]["spec"])
        } else {
            (&object["metadata"], &object["spec"])
        };
        let annotations = metadata["annotations"].clone();
        let record = annotations[INJECTED_ANNOTATION].as_str().unwrap_or_default();
        // The webhook is asked about nodes that are named, and about records that CEL can't read.
        if !names.contains(&namespace) || !spec["nodeName"].is_null() || record.starts_with('{') {
            continue;
        }
        let mut spec = spec.clone();
        spec["automountServiceAccountToken"] = json!(false);
        spec["containers"] = json!([{"name": "c", "image": "c"}]);
        let object = if is_daemonset {
            workload("DaemonSet", annotations, spec)
        } else {
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "fixture", "annotations": annotations}, "spec": spec})
        };
        cases.push((namespace.to_owned(), object));
    }
    cases
}

/// Sends every captured request again, by dry run: creations as they were captured, updates and deletions of a stored object.
/// The namespaces of the corpus are there.
pub(crate) async fn replay(plane: &ControlPlane, admin: &Client, tenants: &Tenants) -> Tally {
    plane.apply(MAKERS_ROLE).await.unwrap();
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    let mut tally = Tally::default();
    for (index, (path, body)) in corpus::reviews().unwrap().into_iter().enumerate() {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let request = &review["request"];
        if let Some(why) = not_for_policies(request) {
            tally.skip(&name, why);
            continue;
        }
        let user = user_of(request);
        if !clients.contains_key(user) {
            // All but the maker may write what they wrote, by a group that no rule reads.
            let groups: &[&str] = if user == MAKER { &[] } else { &["system:masters"] };
            clients.insert(user.to_owned(), plane.client_for(user, groups).await.unwrap());
        }
        let replayed = Replayed { name: &name, user, request, tenants, client: &clients[user], admin };
        match request["operation"].as_str() {
            Some("CREATE") => replayed.create(&mut tally).await,
            Some("UPDATE") => replayed.update(&format!("case-{index}"), &mut tally).await,
            _ => replayed.delete(&format!("case-{index}"), &mut tally).await,
        }
    }
    tally
}

/// Why only the webhook, or no rule, decides a request.
fn not_for_policies(request: &Value) -> Option<&'static str> {
    let is_pod = request["kind"]["kind"] == "Pod";
    match (request["kind"]["kind"].as_str(), request["subResource"].as_str()) {
        (Some("Binding"), _) => Some("the webhook is asked about bindings"),
        (_, Some("scale" | "eviction")) => Some("the object of the request is another than the stored one"),
        _ if is_pod
            && request["operation"] == "CREATE"
            && request["object"]["spec"]["nodeName"].is_string() =>
        {
            Some("the webhook is asked about a pod that names a node")
        }
        _ => None,
    }
}

fn user_of(request: &Value) -> &str {
    match request["kind"]["kind"].as_str() {
        Some("Namespace") => MAKER,
        _ => request["userInfo"]["username"].as_str().unwrap(),
    }
}

/// The object without what the API server writes.
fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        WRITTEN.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

struct Replayed<'a> {
    name: &'a str,
    user: &'a str,
    request: &'a Value,
    tenants: &'a Tenants,
    /// The user's.
    client: &'a Client,
    admin: &'a Client,
}

impl Replayed<'_> {
    fn namespace(&self) -> &str {
        self.request["namespace"].as_str().unwrap_or_default()
    }

    async fn create(&self, tally: &mut Tally) {
        let object = stripped(&self.request["object"]);
        let asked = Asked { user: self.user, ..Asked::creation(self.namespace(), &object) };
        let wanted = expected(self.tenants, asked);
        let found = create(self.client, &object, true).await.unwrap();
        tally.take(self.name, &wanted, &found);
    }

    /// The object as it was before the request, under a name of its own; a namespace as it is.
    async fn stored(&self, name: &str, tally: &mut Tally) -> Option<Value> {
        let mut before = stripped(&self.request["oldObject"]);
        let (kind, version) = (before["kind"].clone(), before["apiVersion"].clone());
        if kind == "Namespace" {
            let own = before["metadata"]["name"].as_str().unwrap();
            let stored = api_of(self.admin, &before).get(own).await.unwrap();
            return Some(as_value(&stored, &kind, &version));
        }
        before["metadata"]["name"] = json!(name);
        match create(self.admin, &before, false).await.unwrap() {
            Answer::Done(stored) => Some(as_value(&stored, &kind, &version)),
            Answer::Refused(status) => {
                tally.skip(self.name, &format!("its object can't be stored: {}", status.message));
                None
            }
        }
    }

    async fn update(&self, name: &str, tally: &mut Tally) {
        let Some(stored) = self.stored(name, tally).await else { return };
        let (before, after) = (&self.request["oldObject"], &self.request["object"]);
        let subresource = self.request["subResource"].as_str().unwrap_or_default();
        let mut next = stored.clone();
        if subresource == "status" {
            next["status"] = after["status"].clone();
        } else {
            let change = json_patch::diff(&stripped(before), &stripped(after));
            if let Err(error) = json_patch::patch(&mut next, &change) {
                tally.skip(self.name, &format!("the change doesn't apply to the stored object: {error}"));
                return;
            }
        }
        let api = api_of(self.client, &stored);
        let name = stored["metadata"]["name"].as_str().unwrap();
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let answer = if subresource.is_empty() {
            let object: DynamicObject = serde_json::from_value(next.clone()).unwrap();
            api.replace(name, &dry, &object).await
        } else {
            api.replace_subresource(subresource, name, &dry, &next).await
        };
        let found = arena::answer(answer).unwrap();
        let asked = Asked { user: self.user, subresource, ..Asked::update(self.namespace(), &stored, &next) };
        tally.take(self.name, &expected(self.tenants, asked), &found);
    }

    async fn delete(&self, name: &str, tally: &mut Tally) {
        let Some(stored) = self.stored(name, tally).await else { return };
        let name = stored["metadata"]["name"].as_str().unwrap();
        let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
        let found = api_of(self.client, &stored).delete(name, &dry).await;
        tally.take_allowed(self.name, found.map(drop).map_err(|error| error.to_string()));
    }
}
