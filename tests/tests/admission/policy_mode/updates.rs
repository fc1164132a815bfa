//! Updates: DaemonSets that exist are planned again from what the tenant wrote, and pods that exist stay in their pools.

use croft_policy::{NonTenantPods, Tenants, definitions::POOL_NAME_LABEL};
use croft_simkit::Random;
use croft_tests::arena;
use kube::{
    Client,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

use super::{
    answers::{Asked, Reference, Tally, api_of, as_value, expected},
    random,
};

const DAEMONSETS_IN: [&str; 4] = ["tenant-a", "tenant-c", "non-tenant", "agents"];
const PODS_IN: [&str; 7] =
    ["tenant-a", "tenant-b", "tenant-c", "tenant-d", "non-tenant", "agents", "all-shared"];

/// Stores an object, and returns it as the API server does.
async fn stored(admin: &Client, object: &Value) -> Value {
    let made: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let made = api_of(admin, object).create(&PostParams::default(), &made).await.unwrap();
    as_value(&made, &object["kind"], &object["apiVersion"])
}

/// Compares the answers to the update of `stored` to `next`, by dry run.
async fn compare(admin: &Client, reference: Reference<'_>, stored: &Value, next: &Value, tally: &mut Tally) {
    let namespace = stored["metadata"]["namespace"].as_str().unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object: DynamicObject = serde_json::from_value(next.clone()).unwrap();
    let name = stored["metadata"]["name"].as_str().unwrap();
    let found = arena::answer(api_of(admin, stored).replace(name, &dry, &object).await).unwrap();
    let wanted = reference(Asked::update(namespace, stored, next));
    tally.take(&format!("{namespace}: {next}"), &wanted, &found);
}

/// `count` random changes of a DaemonSet in each namespace. The objects are named `name`.
pub(crate) async fn daemonsets(admin: &Client, tenants: &Tenants, name: &str, count: usize) -> Tally {
    let mut random = Random::new(super::SEED + 2);
    let reference: Reference<'_> = &|asked| expected(tenants, asked);
    let mut tally = Tally::default();
    // A non-tenant template that tolerates pools' taints can't be stored where it is refused.
    let rejects = tenants.declarations().non_tenant_pods() == NonTenantPods::Reject;
    let effect = if rejects { "PreferNoSchedule" } else { "NoSchedule" };
    for namespace in DAEMONSETS_IN {
        let spec = json!({"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "c"}],
            "tolerations": [{"operator": "Exists", "effect": effect}]});
        let mut first = random::workload("DaemonSet", json!({}), spec);
        first["metadata"] = json!({"name": name, "namespace": namespace});
        let stored = stored(admin, &first).await;
        for _ in 0..count {
            let mut next = stored.clone();
            let change = random::daemonset(&mut random);
            let (to, from) = (&mut next["spec"]["template"], &change["spec"]["template"]);
            for field in ["nodeSelector", "tolerations", "affinity"] {
                if random.percent(40) {
                    to["spec"][field] = from["spec"][field].clone();
                }
            }
            compare(admin, reference, &stored, &next, &mut tally).await;
        }
    }
    tally
}

/// A change of a pod that has a scheduling gate, as a merge of its fields; lists are appended to.
fn changes() -> Vec<Value> {
    let tolerates = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
    let equal = |key: &str, value: &str, effect: &str| {
        tolerates(json!({"key": key, "operator": "Equal", "value": value, "effect": effect}))
    };
    let selects = |key: &str, value: &str| json!({"spec": {"nodeSelector": {key: value}}});
    vec![
        json!({"metadata": {"labels": {"touched": "yes"}}}),
        json!({"metadata": {"finalizers": ["example.com/keep"]}}),
        json!({"spec": {"schedulingGates": null}}),
        equal("node-pool", "pool-a", "NoSchedule"),
        equal("node-pool", "pool-b", "NoSchedule"),
        equal("node-pool", "pool-c", "NoSchedule"),
        equal("node-pool", "pool-b", "PreferNoSchedule"),
        equal("example.com/gpu", "a", "NoExecute"),
        equal(POOL_NAME_LABEL, "pool-d", "NoExecute"),
        equal("zone", "x", "NoSchedule"),
        tolerates(json!({"operator": "Exists"})),
        tolerates(json!({"key": "zone", "operator": "Exists"})),
        selects("node-pool", "pool-b"),
        selects("example.com/gpu", "a"),
        selects("zone", "x"),
    ]
}

/// Merges `change` into `object`; lists are appended to, and null removes.
fn merge(object: &mut Value, change: &Value) {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    object.remove(key);
                } else {
                    merge(object.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (Value::Array(list), Value::Array(more)) => list.extend(more.iter().cloned()),
        (object, change) => *object = change.clone(),
    }
}

/// Each change of a pod that waits at a scheduling gate, in each namespace. The pods are named `name`.
pub(crate) async fn pods(admin: &Client, reference: Reference<'_>, name: &str) -> Tally {
    let mut tally = Tally::default();
    for namespace in PODS_IN {
        let spec =
            json!({"automountServiceAccountToken": false, "schedulingGates": [{"name": "example.com/wait"}]});
        let stored = stored(admin, &arena::pod(namespace, name, spec)).await;
        for change in changes() {
            let mut next = stored.clone();
            merge(&mut next, &change);
            compare(admin, reference, &stored, &next, &mut tally).await;
        }
    }
    tally
}
