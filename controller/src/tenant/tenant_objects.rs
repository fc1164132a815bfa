//! The objects of Croft's in tenants' namespaces, as watched.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use croft_policy::definitions::TENANT_LABEL;
use serde_json::{Map, Value};

use crate::{
    kube_api::{ObjectKey, ObjectKind},
    tenant::{
        let_in::LetIn,
        quota::{
            amounts::{QuotaFacts, amounts, normalized},
            shares::Shares,
        },
    },
};

/// Fields of every object that aren't its content.
const NOT_CONTENT: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ObjectFacts {
    pub(super) uid: String,
    pub(super) version: String,
    /// The value of its label.
    pub(super) tenant: String,
    /// Its fields, without metadata and status, with quantities in one form.
    pub(super) content: Value,
    pub(super) deleting: bool,
    /// Of a ResourceQuota.
    pub(super) quota: Option<QuotaFacts>,
}

/// The objects by key.
#[derive(Debug, Default)]
pub struct TenantObjects {
    pub(super) held: BTreeMap<ObjectKey, ObjectFacts>,
    /// Names that objects of others have.
    pub(super) taken: BTreeSet<ObjectKey>,
    /// The content of each object when it was last as it should be. An object that differs from it while its Tenant doesn't
    /// was changed by hand.
    pub(super) settled: BTreeMap<ObjectKey, Arc<Value>>,
    /// Objects that the API server refused, with its message.
    pub(super) refused: BTreeMap<ObjectKey, String>,
    /// The division of tenants' quotas among their namespaces.
    pub(super) shares: Shares,
    /// The namespaces of owners that were let in.
    pub(super) let_in: LetIn,
}

impl TenantObjects {
    /// Takes in an object. Returns true if it is new or changed.
    pub(super) fn observe(&mut self, kind: ObjectKind, object: &Value) -> bool {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let facts = ObjectFacts {
            uid: text("/metadata/uid").to_owned(),
            version: text("/metadata/resourceVersion").to_owned(),
            tenant: object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(TENANT_LABEL)?.as_str())
                .unwrap_or_default()
                .to_owned(),
            content: normalized(kind, content(object)),
            quota: (kind == ObjectKind::ResourceQuota).then(|| quota_facts(object)),
            deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        };
        let key = ObjectKey {
            kind,
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
        };
        self.taken.remove(&key);
        self.refused.remove(&key);
        self.held.insert(key, facts.clone()) != Some(facts)
    }

    /// Forgets an object. Returns true if it was known.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.held.remove(key).is_some()
    }

    /// Uid, tenant and content of an object.
    #[cfg(test)]
    pub(super) fn parts_of(&self, key: &ObjectKey) -> Option<(&str, &str, &Value)> {
        self.held.get(key).map(|held| (held.uid.as_str(), held.tenant.as_str(), &held.content))
    }

    /// Takes in that another object has this name. Returns true if that is new.
    pub(super) fn observe_name_taken(&mut self, key: ObjectKey) -> bool {
        !self.held.contains_key(&key) && self.taken.insert(key)
    }

    /// Takes in that pods of a namespace were refused for its share.
    pub(super) fn observe_share_exceeded(&mut self, namespace: &str, mono: Duration) {
        self.shares.observe_refusal(namespace, mono);
    }

    /// Begins to lead: a former leader changed shares until now.
    pub(super) fn take_over(&mut self) {
        self.shares.take_over();
        self.let_in.take_over();
    }

    /// The next time at which a share may change, or a namespace be let in, without any news.
    pub(super) fn next(&self, mono: Duration) -> Option<Duration> {
        self.shares.next(mono).into_iter().chain(self.let_in.next()).min()
    }

    /// Takes in that the API server refused an object for what it is. Returns true if that is new.
    pub(super) fn observe_refused(&mut self, key: ObjectKey, why: &str) -> bool {
        self.refused.insert(key, why.to_owned()).as_deref() != Some(why)
    }
}

fn quota_facts(object: &Value) -> QuotaFacts {
    QuotaFacts {
        declared: amounts(object.pointer("/spec/hard")).unwrap_or_default(),
        allowed: amounts(object.pointer("/status/hard")),
        used: amounts(object.pointer("/status/used")).unwrap_or_default(),
    }
}

/// The fields of an object, without metadata and status.
pub(super) fn content(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    let kept = fields.filter(|(name, _)| !NOT_CONTENT.contains(&name.as_str()));
    Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
}
