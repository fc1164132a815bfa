//! The answer of the policy crate and that of the API server, and their comparison.

use croft_policy::{Phase, Tenants, evaluate, review};
use croft_simkit::Random;
use croft_tests::arena::{Answer, create};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Map, Value, json};

use super::PLAIN;

/// Requests in flight.
const AT_ONCE: usize = 8;
/// The beginning of a refusal by one of Croft's policies, after the object's name.
const BY_A_POLICY: &str = "ValidatingAdmissionPolicy 'croft-";
/// A part of every refusal by a policy. A mutating policy that fails refuses with 422, as validation does.
const DENIED: &str = "denied request";

/// A request, as the policy crate is asked about it.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) user: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) subresource: &'a str,
    /// The stored object that is updated.
    pub(crate) old: Option<&'a Value>,
    pub(crate) object: &'a Value,
}

impl<'a> Asked<'a> {
    pub(crate) fn creation(namespace: &'a str, object: &'a Value) -> Self {
        Self { user: "jane", namespace, subresource: "", old: None, object }
    }

    pub(crate) fn update(namespace: &'a str, old: &'a Value, object: &'a Value) -> Self {
        Self { old: Some(old), ..Self::creation(namespace, object) }
    }
}

/// A request that the policy crate allows.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The object as it is to be stored.
    pub(crate) object: Value,
    pub(crate) patched: bool,
    pub(crate) warnings: Vec<String>,
}

/// The source of the answer that the API server's is compared with.
pub(crate) type Reference<'a> = &'a (dyn Fn(Asked<'_>) -> Result<Wanted, String> + Sync);

/// The answer of the policy crate, or the message of its refusal.
pub(crate) fn expected(tenants: &Tenants, asked: Asked<'_>) -> Result<Wanted, String> {
    let Asked { user, namespace, subresource, old, object } = asked;
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": group, "version": version, "kind": object["kind"]}, "namespace": namespace,
        "name": name, "subResource": subresource, "operation": operation,
        "userInfo": {"username": user}, "object": object, "oldObject": old}});
    let body = serde_json::to_vec(&body).unwrap();
    let request = review::parse(&body).unwrap();
    let outcome = evaluate(tenants, &request, Phase::Both);
    if let Some(denial) = outcome.denial {
        return Err(denial.message);
    }
    let patched = !outcome.patch.is_empty();
    let mut object = object.clone();
    if patched {
        let patch: json_patch::Patch = serde_json::from_str(&outcome.patch.into_json()).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    Ok(Wanted { object, patched, warnings: outcome.warnings })
}

/// The fields that Croft may change, without fields that the API server drops; of an object without a pod, all that a user
/// writes.
pub(crate) fn planned(object: &Value) -> Value {
    fn without_empty(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let kept = |key: &str| matches!(key, "affinity" | "nodeAffinity");
                let entries = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
                entries
                    .filter(|(key, value)| {
                        !value.is_null() && (kept(key) || (*value != json!({}) && *value != json!([])))
                    })
                    .collect::<Map<_, _>>()
                    .into()
            }
            Value::Array(list) => list.iter().map(without_empty).collect(),
            other => other.clone(),
        }
    }
    let template = match object["kind"].as_str().unwrap_or_default() {
        "Pod" => Some(object),
        "CronJob" => Some(&object["spec"]["jobTemplate"]["spec"]["template"]),
        "PodTemplate" => Some(&object["template"]),
        "DaemonSet" | "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" | "Job" => {
            Some(&object["spec"]["template"])
        }
        _ => None,
    };
    match template {
        Some(pod) => {
            without_empty(&json!({"annotations": pod["metadata"]["annotations"], "spec": pod["spec"]}))
        }
        None => {
            let metadata = &object["metadata"];
            without_empty(&json!({"labels": metadata["labels"], "annotations": metadata["annotations"],
                "spec": object["spec"], "data": object["data"]}))
        }
    }
}

/// An object of the API server as a manifest of `kind`.
pub(crate) fn as_value(object: &DynamicObject, kind: &Value, version: &Value) -> Value {
    let mut value = serde_json::to_value(object).unwrap();
    value["kind"] = kind.clone();
    value["apiVersion"] = version.clone();
    value
}

/// The resource of a manifest, in the namespace that it names.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &format!("{}s", kind.to_lowercase()));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The number of requests that were compared, by answer, and the differences.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) compared: usize,
    pub(crate) patched: usize,
    pub(crate) unchanged: usize,
    pub(crate) refused: usize,
    /// Requests that can't be compared, with the reason.
    pub(crate) skipped: Vec<String>,
    differences: Vec<String>,
}

impl Tally {
    pub(crate) fn skip(&mut self, what: &str, why: &str) {
        self.skipped.push(format!("{what}: {why}"));
    }

    /// Compares the two answers to one request, which an invalid object gets none of: the API server refuses it with 422.
    pub(crate) fn take(&mut self, what: &str, wanted: &Result<Wanted, String>, found: &Answer) {
        let difference = match (wanted, found) {
            (_, Answer::Refused(status)) if status.code == 422 && !status.message.contains(DENIED) => {
                self.skip(what, &status.message);
                return;
            }
            // The name is taken, which is found out after admission.
            (Ok(_), Answer::Refused(status)) if status.reason == "AlreadyExists" => {
                self.unchanged += 1;
                None
            }
            (Err(_), Answer::Refused(status)) if status.message.contains(BY_A_POLICY) => {
                self.refused += 1;
                None
            }
            (Ok(wanted), Answer::Done(found)) => {
                self.patched += usize::from(wanted.patched);
                self.unchanged += usize::from(!wanted.patched);
                let found = as_value(found, &wanted.object["kind"], &wanted.object["apiVersion"]);
                let (wanted, found) = (planned(&wanted.object), planned(&found));
                (wanted != found).then(|| format!("wanted {wanted}\n found {found}"))
            }
            (wanted, found) => Some(format!("wanted {wanted:?}\n found {}", found.sentence())),
        };
        self.compared += 1;
        self.differences.extend(difference.map(|difference| format!("{what}\n{difference}")));
    }

    /// Notes a request that both allow, and that has no object to compare.
    pub(crate) fn take_allowed(&mut self, what: &str, found: Result<(), String>) {
        self.compared += 1;
        self.unchanged += 1;
        self.differences.extend(found.err().map(|why| format!("{what}\nwanted it allowed\n found {why}")));
    }

    fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.patched += other.patched;
        self.unchanged += other.unchanged;
        self.refused += other.refused;
        self.skipped.extend(other.skipped);
        self.differences.extend(other.differences);
    }

    /// Fails with the first differences, if there are any, or if one of the three answers wasn't among those compared.
    pub(crate) fn check(self, what: &str) -> Self {
        let first = self.differences.iter().take(5).cloned().collect::<Vec<_>>().join("\n\n");
        let count = self.differences.len();
        assert!(count == 0, "{what}: {count} differences in {}:\n{first}", self.compared);
        assert!(
            self.patched + self.unchanged > 0 && self.refused > 0,
            "{what}: answers of one kind: {self:?}"
        );
        self
    }
}

fn in_namespace(object: &Value, namespace: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["namespace"] = json!(namespace);
    object
}

/// Compares the answers to one creation. What the API server completes shows in the exempt namespace; it refuses an invalid
/// object there.
async fn compare(
    admin: &Client,
    reference: Reference<'_>,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let what = format!("{namespace}: {object}");
    let plain = match create(admin, &in_namespace(object, PLAIN), true).await? {
        Answer::Done(plain) => plain,
        Answer::Refused(status) => {
            tally.skip(&what, &status.message);
            return Ok(tally);
        }
    };
    let mut plain = as_value(&plain, &object["kind"], &object["apiVersion"]);
    plain["metadata"]["namespace"] = json!(namespace);
    let wanted = reference(Asked::creation(namespace, &plain));
    let found = create(admin, &in_namespace(object, namespace), true).await?;
    tally.take(&what, &wanted, &found);
    if tally.compared == 0 {
        tally
            .differences
            .push(format!("{what}\nvalid where nothing changes it\n found {}", found.sentence()));
    }
    Ok(tally)
}

/// Compares the answers to creations.
pub(crate) async fn compare_all(
    admin: &Client,
    reference: Reference<'_>,
    cases: Vec<(String, Value)>,
) -> Tally {
    let answers: Vec<Tally> = stream::iter(cases)
        .map(|(namespace, object)| async move { compare(admin, reference, &namespace, &object).await })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
        .unwrap();
    let mut all = Tally::default();
    answers.into_iter().for_each(|tally| all.add(tally));
    all
}

/// Draws the namespace and the object of a creation.
pub(crate) type Draw = fn(&mut Random) -> (String, Value);

/// Compares random creations until `count` of them were compared: some are invalid.
pub(crate) async fn compare_random(
    admin: &Client,
    reference: Reference<'_>,
    draw: Draw,
    count: usize,
    seed: u64,
) -> Tally {
    let mut random = Random::new(seed);
    let (mut all, mut made) = (Tally::default(), 0);
    while all.compared < count {
        assert!(made < 3 * count, "most random objects are invalid: {} of {made} compared", all.compared);
        let batch = (count - all.compared).max(AT_ONCE);
        made += batch;
        let cases = (0..batch).map(|_| draw(&mut random)).collect();
        all.add(compare_all(admin, reference, cases).await);
    }
    assert!(all.patched > count / 20 && all.unchanged > count / 20 && all.refused > count / 20, "{all:?}");
    all
}
