//! Questions about the past. Times are milliseconds since 1970.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    entry::{Entry, EntryKind},
    record::Record,
};

/// How far the life of a node had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nothing had happened yet.
    Unknown,
    /// Its NodeClaim was requested.
    Launching,
    /// Its instance was launched.
    Launched,
    /// Its node was registered.
    Registered,
    /// Its node was initialized.
    Ready,
    /// It was being removed.
    Removing,
    /// It was gone.
    Gone,
}

impl Phase {
    /// The phase in a sentence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "not there yet",
            Self::Launching => "launching",
            Self::Launched => "launched, not registered",
            Self::Registered => "registered, not initialized",
            Self::Ready => "ready",
            Self::Removing => "being removed",
            Self::Gone => "gone",
        }
    }
}

/// One node at a time.
#[derive(Clone, Debug)]
pub struct NodeAt<'a> {
    /// Its NodeClaim; empty if it has none.
    pub claim: &'a str,
    /// How far its life had come.
    pub phase: Phase,
    /// Its pool.
    pub pool: Option<&'a str>,
    /// The tenants of its pool.
    pub tenants: &'a [String],
    /// Its price, in millionths of a dollar per hour.
    pub price: Option<i64>,
    /// The pods that it ran when its state was last recorded.
    pub pods: &'a [String],
    /// Its conditions, by type: the last entry of each.
    pub conditions: BTreeMap<&'a str, &'a Entry>,
    /// The entries up to then.
    pub before: Vec<&'a Entry>,
    /// The later entries.
    pub after: Vec<&'a Entry>,
}

/// Entries about a pod, split at a time.
#[derive(Clone, Debug)]
pub struct PodAt<'a> {
    /// The entries up to then.
    pub before: Vec<&'a Entry>,
    /// The later entries.
    pub after: Vec<&'a Entry>,
}

/// The node `name`, or the node of the NodeClaim `name`, at a time. None if no entry names it.
#[must_use]
pub fn node_at<'a>(record: &'a Record, name: &str, at: i64) -> Option<NodeAt<'a>> {
    let named = |entry: &Entry| {
        entry.node == name
            || entry.claim_name() == name
            || (entry.object.kind == "Node" && entry.object.name == name)
    };
    // A later node may have the same name: the one at that time, else the first one after it.
    let mut claims = record.entries.iter().filter(|entry| named(entry) && !entry.claim_name().is_empty());
    let first = claims.clone().find(|entry| entry.at > at);
    let claim = claims.rfind(|entry| entry.at <= at).or(first).map_or("", Entry::claim_name);
    let concerns = |entry: &&Entry| {
        let of = entry.claim_name();
        if of.is_empty() { named(entry) } else { of == claim }
    };
    let (before, after): (Vec<_>, Vec<_>) =
        record.entries.iter().filter(concerns).partition(|entry| entry.at <= at);
    if before.is_empty() && after.is_empty() {
        return None;
    }
    let mut found = NodeAt {
        claim,
        phase: Phase::Unknown,
        pool: None,
        tenants: &[],
        price: None,
        pods: &[],
        conditions: BTreeMap::new(),
        before: Vec::new(),
        after: Vec::new(),
    };
    for entry in &before {
        found.take(entry);
    }
    for entry in &after {
        found.pool = found.pool.or(named_pool(entry));
    }
    Some(NodeAt { before, after, ..found })
}

fn named_pool(entry: &Entry) -> Option<&str> {
    Some(entry.pool.as_str()).filter(|pool| !pool.is_empty())
}

impl<'a> NodeAt<'a> {
    fn take(&mut self, entry: &'a Entry) {
        self.pool = named_pool(entry).or(self.pool);
        if !entry.tenants.is_empty() {
            self.tenants = &entry.tenants;
        }
        self.price = entry.price.or(self.price);
        let reached = match entry.kind {
            EntryKind::Create => Phase::Launching,
            EntryKind::Condition => {
                if let Some((kind, status)) = entry.condition.split_once('=') {
                    self.conditions.insert(kind, entry);
                    match (kind, status) {
                        ("Launched", "True") => Phase::Launched,
                        ("Registered", "True") => Phase::Registered,
                        ("Initialized", "True") => Phase::Ready,
                        _ => Phase::Launching,
                    }
                } else {
                    Phase::Launching
                }
            }
            EntryKind::State => {
                self.pods = &entry.pods;
                if let Some((kind, _)) = entry.condition.split_once('=') {
                    self.conditions.insert(kind, entry);
                }
                Phase::Launched
            }
            EntryKind::Deleting => Phase::Removing,
            EntryKind::Gone => Phase::Gone,
            _ => Phase::Unknown,
        };
        self.phase = self.phase.max(reached);
    }
}

/// A pod at a time: the entries that name it, and those of the NodeClaims that were created for it until it was bound.
/// None if no entry names it.
#[must_use]
pub fn pod_at<'a>(record: &'a Record, namespace: &str, name: &str, at: i64) -> Option<PodAt<'a>> {
    let key = format!("{namespace}/{name}");
    let names = |entry: &Entry| {
        let object = &entry.object;
        (object.kind == "Pod" && object.namespace == namespace && object.name == name)
            || entry.pods.contains(&key)
    };
    let mut waits_for: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for entry in &record.entries {
        if names(entry) {
            match entry.kind {
                EntryKind::Create => {
                    waits_for.insert(entry.claim_name());
                }
                EntryKind::Bound | EntryKind::State => waits_for.clear(),
                _ => {}
            }
            found.push(entry);
        } else if waits_for.contains(entry.claim_name()) {
            found.push(entry);
        }
    }
    if found.is_empty() {
        return None;
    }
    let (before, after) = found.into_iter().partition(|entry| entry.at <= at);
    Some(PodAt { before, after })
}

/// The entries that concern a tenant, from one time to another.
pub fn tenant<'a>(record: &'a Record, name: &'a str, from: i64, to: i64) -> impl Iterator<Item = &'a Entry> {
    record.entries.iter().filter(move |entry| {
        let concerns = entry.tenants.iter().any(|tenant| tenant == name)
            || (entry.object.kind == "Tenant" && entry.object.name == name);
        concerns && (from..=to).contains(&entry.at)
    })
}

/// Every tenant that an entry names.
#[must_use]
pub fn tenants(record: &Record) -> BTreeSet<&str> {
    record.entries.iter().flat_map(|entry| &entry.tenants).map(String::as_str).collect()
}
