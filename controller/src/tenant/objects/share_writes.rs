//! The writes of namespaces' shares of a tenant's quota.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_api::convert::{given::share_name, tenant_objects::tenant_label};
use serde_json::{Map, Value, json};

use super::comparison::{Comparison, label_operation, new_object, rewrite_object};
use crate::{
    action::Action,
    kube_api::{ObjectKey, ObjectKind},
    tenant::{
        quota::{
            amounts::{Amounts, text},
            shares::{Share, SharedQuota, is_known},
        },
        state::State,
        tenant_objects::ObjectFacts,
    },
};

fn share_key(namespace: &str) -> ObjectKey {
    ObjectKey { kind: ObjectKind::ResourceQuota, namespace: namespace.to_owned(), name: share_name() }
}

/// The amounts that a namespace uses of its share, in thousandths, by resource.
pub(in crate::tenant) fn share_used<'s>(
    state: &'s State,
    namespace: &str,
) -> impl Iterator<Item = (&'s str, i64)> + use<'s> {
    let quota = state.objects.held.get(&share_key(namespace)).and_then(|held| held.quota.as_ref());
    quota.into_iter().flat_map(|quota| quota.used.iter().map(|(name, millis)| (name.as_str(), *millis)))
}

/// The shares that should exist.
pub(super) fn share_keys(shared: &BTreeMap<Arc<str>, SharedQuota>) -> BTreeSet<ObjectKey> {
    shared.values().flat_map(|quota| &quota.namespaces).map(|namespace| share_key(namespace)).collect()
}

/// Adds the writes of shares that are due. A new share is nothing: it is raised once the API server's admission knows it.
pub(super) fn share_writes(
    state: &mut State,
    shared: &BTreeMap<Arc<str>, SharedQuota>,
    mono: Duration,
    found: &mut Comparison,
) {
    let mut divisions = std::mem::take(&mut state.objects.shares);
    divisions.retain(shared);
    for (tenant, quota) in shared {
        let mut shares = BTreeMap::new();
        for namespace in quota.namespaces.iter().chain(&quota.leaving) {
            if let Some(held) = state.objects.held.get(&share_key(namespace)).filter(|held| !held.deleting)
                && let Some(facts) = &held.quota
            {
                shares.insert(namespace.as_str(), Share { version: &held.version, facts });
            }
        }
        let mut due = divisions.divide(tenant, quota, &shares, mono);
        for namespace in &quota.namespaces {
            let key = share_key(namespace);
            let held = state.objects.held.get(&key);
            let share = shares.get(namespace.as_str());
            let kept = found.tenants.entry(tenant.to_string()).or_default();
            kept.expected += 1;
            let is_current = held.is_some_and(|held| is_whole(held, tenant));
            if !is_current || !share.is_some_and(|share| is_known(share, &quota.total)) {
                found.incomplete.insert(namespace.clone());
                kept.note(state, &key);
            }
            match (held, share) {
                (None, _) => {
                    let content = json!({"spec": spec(&quota.nothing())});
                    found.writes.push(new_object(&key, content, tenant, None));
                }
                (Some(held), Some(share)) => {
                    let has_all = share.facts.declared.keys().eq(quota.total.keys());
                    let reshaped = (!is_current || !has_all).then(|| within(&share.facts.declared, quota));
                    let hard = due.remove(namespace).filter(|_| has_all).or(reshaped);
                    found.writes.extend(hard.map(|hard| change(&key, held, tenant, &hard)));
                }
                // It is created again once it is gone.
                (Some(_), None) => {}
            }
        }
    }
    state.objects.shares = divisions;
}

/// True if nothing but the amounts of a share may differ from what Croft writes.
fn is_whole(held: &ObjectFacts, tenant: &str) -> bool {
    let only = |value: Option<&Value>, name: &str| {
        value.and_then(Value::as_object).is_some_and(|fields| fields.keys().eq([name]))
    };
    held.tenant == tenant_label(tenant)
        && only(Some(&held.content), "spec")
        && only(held.content.get("spec"), "hard")
}

/// A share with the resources of the quota: what it had of them, and nothing of the others.
fn within(declared: &Amounts, quota: &SharedQuota) -> Amounts {
    quota.total.keys().map(|name| (name.clone(), declared.get(name).copied().unwrap_or_default())).collect()
}

fn spec(hard: &Amounts) -> Value {
    let hard: Map<String, Value> =
        hard.iter().map(|(name, millis)| (name.clone(), text(*millis).into())).collect();
    json!({"hard": hard})
}

/// The write takes effect on this version of the share alone: what it counts for is decided by it.
fn change(key: &ObjectKey, held: &ObjectFacts, tenant: &str, hard: &Amounts) -> Action {
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": held.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": held.version},
        label_operation(tenant),
        {"op": "add", "path": "/spec", "value": spec(hard)},
    ]);
    rewrite_object(key, &held.version, patch, None)
}
