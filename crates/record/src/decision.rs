//! Entries of the log by decision: nodes that were launched or removed together, and pods that stayed pending for one reason, each
//! with its entries. `croft history` shows them. The page groups its log likewise (`page/web/src/log.tsx`), but counts the event that says
//! why a node goes among the other decisions.

use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{Entry, EntryKind};

/// Entries of one decision are written within this time of each other, in milliseconds, unless they name one NodeClaim.
const TOGETHER: i64 = 120_000;

/// The kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DecisionKind {
    /// Nodes were launched.
    Launch,
    /// Nodes were removed, or pods evicted.
    Removal,
    /// Pods stayed pending.
    Pending,
    /// Anything else, such as a condition that changed.
    Other,
}

/// A decision with its entries.
#[derive(Clone, Debug)]
pub struct Decision<'a> {
    /// The kind.
    pub kind: DecisionKind,
    /// Its entries, the oldest first: one or more.
    pub entries: Vec<&'a Entry>,
}

/// The price of a decision's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionPrice {
    /// The sum of the known prices, in millionths of a dollar per hour.
    pub known: i64,
    /// Nodes with a known price.
    pub priced: usize,
    /// Nodes without one.
    pub unpriced: usize,
}

impl Decision<'_> {
    /// Names of its NodeClaims.
    #[must_use]
    pub fn claims(&self) -> BTreeSet<&str> {
        self.entries.iter().map(|entry| entry.claim_name()).filter(|name| !name.is_empty()).collect()
    }

    /// Names of its NodeClaims with an entry for which `is_reached` is true.
    #[must_use]
    pub fn claims_with(&self, is_reached: impl Fn(&Entry) -> bool) -> usize {
        let reached = self.entries.iter().filter(|entry| is_reached(entry)).map(|entry| entry.claim_name());
        reached.collect::<BTreeSet<_>>().len()
    }

    /// The pods that nodes were launched for, that were evicted, or that stayed pending, as `namespace/name`.
    #[must_use]
    pub fn pods(&self) -> BTreeSet<String> {
        let counts = |entry: &Entry| match self.kind {
            DecisionKind::Launch => matches!(entry.kind, EntryKind::Create | EntryKind::Bound),
            DecisionKind::Removal => entry.kind == EntryKind::Evicted,
            DecisionKind::Pending => true,
            DecisionKind::Other => false,
        };
        let mut pods = BTreeSet::new();
        for entry in self.entries.iter().filter(|entry| counts(entry)) {
            pods.extend(entry.pods.iter().cloned());
            if entry.object.kind == "Pod" {
                pods.insert(format!("{}/{}", entry.object.namespace, entry.object.name));
            }
        }
        pods
    }

    /// What its nodes cost, with prices of [`prices`].
    #[must_use]
    pub fn price(&self, prices: &BTreeMap<&str, i64>) -> DecisionPrice {
        let mut sum = DecisionPrice::default();
        for claim in self.claims() {
            match prices.get(claim) {
                Some(price) => {
                    sum.known = sum.known.saturating_add(*price);
                    sum.priced += 1;
                }
                None => sum.unpriced += 1,
            }
        }
        sum
    }

    /// True if `entry`, which is later than all of them, is near enough in time to belong to it.
    fn is_recent(&self, entry: &Entry) -> bool {
        self.entries.last().is_some_and(|newest| entry.at - newest.at <= TOGETHER)
    }

    /// True if `entry`, which is later than all of them and near enough in time, belongs to it although no claim says so.
    fn is_like(&self, kind: DecisionKind, entry: &Entry) -> bool {
        let Some(newest) = self.entries.last() else { return false };
        self.kind == kind
            && match kind {
                DecisionKind::Launch => {
                    newest.pool == entry.pool
                        && newest.at == entry.at
                        && newest.kind == EntryKind::Create
                        && entry.kind == EntryKind::Create
                }
                DecisionKind::Removal => newest.pool == entry.pool,
                DecisionKind::Pending => newest.reason == entry.reason && newest.tenants == entry.tenants,
                DecisionKind::Other => {
                    newest.kind == entry.kind
                        && newest.reason == entry.reason
                        && newest.object.kind == entry.object.kind
                }
            }
    }
}

/// The last price of each NodeClaim, in millionths of a dollar per hour.
#[must_use]
pub fn prices<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> BTreeMap<&'a str, i64> {
    entries.into_iter().filter_map(|entry| Some((entry.claim_name(), entry.price?))).collect()
}

/// The decisions of entries that are in order of time, in order of their first entries. States, which are recorded again every
/// hour, are left out.
#[must_use]
pub fn decisions<'a>(entries: &[&'a Entry]) -> Vec<Decision<'a>> {
    let mut removed_at: BTreeMap<&str, i64> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| is_removal(entry.kind)) {
        removed_at.entry(entry.claim_name()).or_insert(entry.at);
    }
    let mut found: Vec<Decision<'a>> = Vec::new();
    let mut by_claim: BTreeMap<(DecisionKind, &str), usize> = BTreeMap::new();
    // Those that a later entry may still belong to: an archive of a year has few at a time.
    let mut recent: BTreeSet<usize> = BTreeSet::new();
    for entry in entries.iter().copied().filter(|entry| entry.kind != EntryKind::State) {
        let claim = entry.claim_name();
        let kind = kind_of(entry, removed_at.get(claim).copied());
        let is_of_node = matches!(kind, DecisionKind::Launch | DecisionKind::Removal) && !claim.is_empty();
        let known = if is_of_node { by_claim.get(&(kind, claim)).copied() } else { None };
        recent.retain(|at| found.get(*at).is_some_and(|one| one.is_recent(entry)));
        let is_like = |at: &usize| found.get(*at).is_some_and(|one| one.is_like(kind, entry));
        let at = match known.or_else(|| recent.iter().rev().copied().find(is_like)) {
            Some(at) => at,
            None => {
                found.push(Decision { kind, entries: Vec::new() });
                found.len() - 1
            }
        };
        if let Some(decision) = found.get_mut(at) {
            decision.entries.push(entry);
            recent.insert(at);
        }
        if is_of_node {
            by_claim.insert((kind, claim), at);
        }
    }
    found
}

fn kind_of(entry: &Entry, removed_at: Option<i64>) -> DecisionKind {
    match entry.kind {
        EntryKind::Create | EntryKind::Bound => DecisionKind::Launch,
        EntryKind::Condition if is_launch(&entry.condition) => DecisionKind::Launch,
        EntryKind::Pending => DecisionKind::Pending,
        kind if is_removal(kind) => DecisionKind::Removal,
        // The event that says why a node goes comes before its deletion.
        EntryKind::Event
            if !entry.claim_name().is_empty()
                && removed_at.is_some_and(|at| at <= entry.at.saturating_add(TOGETHER)) =>
        {
            DecisionKind::Removal
        }
        _ => DecisionKind::Other,
    }
}

fn is_launch(condition: &str) -> bool {
    let kind = condition.split_once('=').map_or(condition, |(kind, _)| kind);
    matches!(kind, "Launched" | "Registered" | "Initialized")
}

const fn is_removal(kind: EntryKind) -> bool {
    matches!(
        kind,
        EntryKind::Evicted
            | EntryKind::EvictionBlocked
            | EntryKind::Delete
            | EntryKind::Deleting
            | EntryKind::Gone
            | EntryKind::Terminate
            | EntryKind::Ended
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::ObjectRef;

    fn of_claim(at: i64, kind: EntryKind, claim: &str, pool: &str) -> Entry {
        let object = ObjectRef::cluster("NodeClaim", claim);
        Entry { object, pool: pool.to_owned(), ..Entry::new(at, kind) }
    }

    fn grouped(entries: &[Entry]) -> Vec<(DecisionKind, usize)> {
        let entries: Vec<&Entry> = entries.iter().collect();
        decisions(&entries).iter().map(|one| (one.kind, one.entries.len())).collect()
    }

    #[test]
    fn claims_of_one_run_are_one_launch_with_their_later_conditions() {
        let condition = |at, claim, text: &str, price| Entry {
            condition: text.to_owned(),
            price,
            ..of_claim(at, EntryKind::Condition, claim, "p")
        };
        let entries = [
            Entry { pods: vec!["shop/a".to_owned()], ..of_claim(0, EntryKind::Create, "p-1", "p") },
            Entry { pods: vec!["shop/b".to_owned()], ..of_claim(0, EntryKind::Create, "p-2", "p") },
            of_claim(0, EntryKind::Create, "q-1", "q"),
            condition(3_000, "p-1", "Launched=True", Some(96_000)),
            condition(900_000, "p-2", "Launched=True", None),
            condition(900_000, "p-2", "Drifted=True", None),
        ];
        let all: Vec<&Entry> = entries.iter().collect();
        let decisions = decisions(&all);
        assert_eq!(
            grouped(&entries),
            [(DecisionKind::Launch, 4), (DecisionKind::Launch, 1), (DecisionKind::Other, 1)]
        );
        let first = &decisions[0];
        assert_eq!(first.claims(), BTreeSet::from(["p-1", "p-2"]));
        assert_eq!(first.pods().len(), 2);
        assert_eq!(first.claims_with(|entry| entry.condition == "Launched=True"), 2);
        let price = first.price(&prices(all.iter().copied()));
        assert_eq!(price, DecisionPrice { known: 96_000, priced: 1, unpriced: 1 }, "unknown is not zero");
    }

    #[test]
    fn removal_begins_with_the_event_that_says_why() {
        let entries = [
            of_claim(0, EntryKind::Event, "p-1", "p"),
            of_claim(0, EntryKind::Event, "p-9", "p"),
            of_claim(1_000, EntryKind::Delete, "p-1", "p"),
            of_claim(60_000, EntryKind::Delete, "p-2", "p"),
            of_claim(700_000, EntryKind::Gone, "p-2", "p"),
            of_claim(2_000_000, EntryKind::Delete, "p-3", "p"),
        ];
        assert_eq!(
            grouped(&entries),
            [(DecisionKind::Removal, 4), (DecisionKind::Other, 1), (DecisionKind::Removal, 1)]
        );
    }

    #[test]
    fn pods_that_stay_pending_for_one_reason_are_one_decision() {
        let pending = |at, reason: &str, pod: &str| Entry {
            reason: reason.to_owned(),
            pods: vec![pod.to_owned()],
            ..Entry::new(at, EntryKind::Pending)
        };
        let entries = [
            pending(0, "PoolLimit", "shop/a"),
            pending(10_000, "PoolLimit", "shop/b"),
            pending(10_000, "NoCapacity", "shop/c"),
            pending(500_000, "PoolLimit", "shop/a"),
        ];
        assert_eq!(
            grouped(&entries),
            [(DecisionKind::Pending, 2), (DecisionKind::Pending, 1), (DecisionKind::Pending, 1)]
        );
    }

    #[test]
    fn states_are_no_decision() {
        assert!(grouped(&[of_claim(0, EntryKind::State, "p-1", "p")]).is_empty());
    }
}
