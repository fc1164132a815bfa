//! The cluster without the pod and the node under attack: what is declared, what the controller has written, and what the
//! webhook has seen.
//!
//! A controller that is away takes no step, and so a search of all orders of steps has it away everywhere. The same holds
//! for a webhook that sees nothing new; one that doesn't answer refuses what it is asked, which is no step either.

use std::collections::BTreeMap;

use croft_api::convert::policy as convert;
use croft_policy::{
    Index, Mutation, Namespace, Tenants,
    definitions::{
        NAME_LABEL,
        parameter::{ALL_POOLS, MUTATION},
    },
};
use croft_webhook::registration::scope::Scope;
use serde_json::{Value, json};

use crate::declared::{Declared, NamespaceKind, Objects, POOL, PoolKind};

/// The namespace that Croft is installed in.
pub const OWN_NAMESPACE: &str = "croft-system";

/// Labels and annotations that the controller has written on the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WrittenMetadata {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A state of the cluster as the webhook has seen it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Tenants, pools and settings.
    pub declared: Declared,
    /// The parameter of the mode.
    pub mutation: Option<String>,
}

/// The cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The kind of the pod's namespace.
    pub namespace: NamespaceKind,
    /// The declarations.
    pub declared: Declared,
    /// The metadata that the controller has written on the pod's namespace.
    pub written: WrittenMetadata,
    /// The parameters of the policies: annotations of Croft's own namespace.
    pub parameters: BTreeMap<String, String>,
    /// The condition Accepted of the pool; `None` before the controller has written it.
    pub accepted: Option<bool>,
    /// The pool has been in force since it was created: whatever is edited, it stays closed.
    pub closed: bool,
    /// The state that the webhook has seen.
    pub seen: Seen,
    /// The state by which the webhook has written its configurations; `None` before it has.
    pub registered: Option<Seen>,
}

impl World {
    /// True if the policies' parameters name the pool under attack.
    #[must_use]
    pub fn names_pool(&self) -> bool {
        let pools = self.parameters.get(ALL_POOLS).map(String::as_str).unwrap_or_default();
        pools.contains(&format!("={POOL}:"))
    }

    /// A cluster in which Croft has just been installed.
    #[must_use]
    pub fn installed(namespace: NamespaceKind, declared: Declared) -> Self {
        let seen = Seen { declared, mutation: None };
        Self {
            namespace,
            declared,
            written: WrittenMetadata::default(),
            parameters: BTreeMap::new(),
            accepted: None,
            closed: false,
            seen,
            registered: None,
        }
    }

    /// The state that the webhook would see now.
    #[must_use]
    pub fn current(&self) -> Seen {
        Seen { declared: self.declared, mutation: self.parameters.get(MUTATION).cloned() }
    }

    /// The cluster after an edit. A pool that is created has no condition yet.
    #[must_use]
    pub fn edited(&self, declared: Declared) -> Self {
        let stays = declared.pool.is_some() == self.declared.pool.is_some();
        Self { declared, accepted: self.accepted.filter(|_| stays), ..self.clone() }
    }

    /// True if pods of the namespace may use the pool, or might before an edit that isn't in force yet: what the webhook has
    /// seen or the controller has written still says so.
    #[must_use]
    pub fn entitles(&self) -> bool {
        let label = format!("={POOL}");
        self.declared.entitles(self.namespace)
            || self.seen.declared.entitles(self.namespace)
            || self.written.annotations.values().any(|written| written.contains(&label))
    }

    /// The pod's namespace as an object.
    #[must_use]
    pub fn namespace_object(&self) -> Value {
        let mut labels = self.written.labels.clone();
        labels.insert(NAME_LABEL.to_owned(), self.namespace.name().to_owned());
        let mut metadata = json!({"name": self.namespace.name(), "labels": labels});
        if !self.written.annotations.is_empty() {
            metadata["annotations"] = json!(self.written.annotations);
        }
        json!({"metadata": metadata})
    }

    /// Croft's own namespace as an object.
    #[must_use]
    pub fn own_namespace_object(&self) -> Value {
        json!({"metadata": {"name": OWN_NAMESPACE, "labels": {NAME_LABEL: OWN_NAMESPACE}, "annotations": self.parameters}})
    }

    /// The index of the webhook.
    #[must_use]
    pub fn tenants(&self, kind: PoolKind, node: Option<&Value>) -> Tenants {
        let mut index = index(&self.seen, kind);
        let own = self.written.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        index.upsert_namespace(&Namespace {
            name: self.namespace.name().to_owned(),
            labels: own.collect(),
            annotations: self.written.annotations.clone(),
        });
        if let Some(node) = node {
            let node = serde_json::from_value(node.clone()).expect("a node is one");
            index.upsert_node(&convert::node(&node));
        }
        index.snapshot()
    }
}

fn index(seen: &Seen, kind: PoolKind) -> Index {
    let objects = Objects::of(&seen.declared, kind);
    let mut index = Index::new();
    index.set_config(convert::config(&objects.config.spec, OWN_NAMESPACE));
    for tenant in &objects.tenants {
        index.upsert_tenant(convert::tenant(tenant).expect("it has no selector"));
    }
    for pool in &objects.pools {
        index.upsert_pool(convert::pool(pool));
    }
    let mutation = seen.mutation.iter().map(|mode| (MUTATION.to_owned(), mode.clone()));
    index.upsert_namespace(&Namespace {
        name: OWN_NAMESPACE.to_owned(),
        annotations: mutation.collect(),
        ..Namespace::default()
    });
    index
}

/// The scope of webhooks that are written by what was seen.
#[must_use]
pub fn scope(seen: &Seen, kind: PoolKind) -> Scope {
    Scope::of(&index(seen, kind).snapshot())
}

/// The mode that webhooks are written for.
#[must_use]
pub fn registered_mode(registered: &Seen, kind: PoolKind) -> Mutation {
    scope(registered, kind).mutation()
}
