//! Decisions as a table: one line for each, with its objects and what its nodes cost.

use std::{collections::BTreeMap, io};

use croft_record::{
    decision::{Decision, DecisionKind, DecisionPrice},
    entry::{Entry, EntryKind},
};

use super::{
    show::{dollars, why},
    time,
};
use crate::{
    output::Output,
    table::{Table, counted, shortened},
};

/// Objects that a line names.
const OBJECTS_SHOWN: usize = 3;

/// Writes decisions as a table. `prices` are those of NodeClaims, in millionths of a dollar per hour.
pub(crate) fn write_decisions(
    decisions: &[Decision<'_>],
    prices: &BTreeMap<&str, i64>,
    out: &mut Output,
) -> io::Result<()> {
    let mut table = Table::new("TIME|DECISION|OBJECTS|COST>|WHY");
    for decision in decisions {
        let Some(first) = decision.entries.first() else { continue };
        let reason = decision.entries.iter().find(|entry| !entry.message.is_empty()).unwrap_or(first);
        table.row(vec![
            time::text(first.at),
            what(decision, first),
            shortened(&objects(decision), OBJECTS_SHOWN),
            cost(decision, prices),
            why(reason),
        ]);
    }
    table.write(out)
}

/// The decision in a few words: `2 nodes launched for 12 pods`.
fn what(decision: &Decision<'_>, first: &Entry) -> String {
    let (nodes, pods) = (decision.claims().len(), decision.pods().len());
    match decision.kind {
        DecisionKind::Launch => {
            let launched = decision.claims_with(|entry| {
                entry.kind == EntryKind::Bound
                    || ["Launched=True", "Registered=True", "Initialized=True"]
                        .contains(&entry.condition.as_str())
            });
            let done = progress(launched, nodes, "launched", "requested");
            if pods == 0 { done } else { format!("{done} for {}", counted(pods, "pod")) }
        }
        DecisionKind::Removal if nodes == 0 => format!("{} evicted", counted(pods, "pod")),
        DecisionKind::Removal => {
            let gone = decision.claims_with(|entry| entry.kind == EntryKind::Gone);
            let mut text = progress(gone, nodes, "removed", "being removed");
            if pods > 0 {
                text.push_str(&format!(", {} evicted", counted(pods, "pod")));
            }
            if gone < nodes && decision.entries.iter().any(|entry| entry.kind == EntryKind::EvictionBlocked) {
                text.push_str(", an eviction refused");
            }
            text
        }
        DecisionKind::Pending => format!("{} pending", counted(pods, "pod")),
        DecisionKind::Other => {
            let name =
                if first.condition.is_empty() { first.kind.as_str() } else { first.condition.as_str() };
            match decision.entries.len() {
                1 => name.to_owned(),
                times => format!("{name}, {times} times"),
            }
        }
    }
}

/// How many of `all` nodes have come to the end: `2 nodes launched`, `1 of 2 nodes launched`, `2 nodes requested`.
fn progress(done: usize, all: usize, ended: &str, begun: &str) -> String {
    let nodes = counted(all, "node");
    if done >= all {
        format!("{nodes} {ended}")
    } else if done == 0 {
        format!("{nodes} {begun}")
    } else {
        format!("{done} of {nodes} {ended}")
    }
}

/// The NodeClaims of a decision about nodes; else the pods or other objects that it is about.
fn objects(decision: &Decision<'_>) -> Vec<String> {
    let claims = decision.claims();
    let is_of_nodes = matches!(decision.kind, DecisionKind::Launch | DecisionKind::Removal);
    if is_of_nodes && !claims.is_empty() {
        return claims.into_iter().map(|name| format!("NodeClaim/{name}")).collect();
    }
    let mut objects: Vec<String> = decision.pods().into_iter().map(|pod| format!("Pod/{pod}")).collect();
    if objects.is_empty() {
        let named = decision.entries.iter().filter(|entry| !entry.object.is_empty());
        for object in named.map(|entry| entry.object.to_string()) {
            if !objects.contains(&object) {
                objects.push(object);
            }
        }
    }
    objects
}

/// What is paid more or less for the nodes of a decision from then on.
fn cost(decision: &Decision<'_>, prices: &BTreeMap<&str, i64>) -> String {
    let sign = match decision.kind {
        DecisionKind::Launch => '+',
        DecisionKind::Removal => '-',
        DecisionKind::Pending | DecisionKind::Other => return String::new(),
    };
    match decision.price(prices) {
        DecisionPrice { priced: 0, unpriced: 0, .. } => String::new(),
        DecisionPrice { priced: 0, .. } => "unknown".to_owned(),
        DecisionPrice { known, unpriced: 0, .. } => format!("{sign}{}", dollars(known)),
        DecisionPrice { known, unpriced, .. } => format!("{sign}{}, {unpriced} unknown", dollars(known)),
    }
}

#[cfg(test)]
mod tests {
    use croft_record::{decision::decisions, entry::ObjectRef};

    use super::*;

    #[test]
    fn removal_without_an_end_says_so_and_an_unknown_price_is_no_zero() {
        let of = |kind, claim: &str| Entry {
            object: ObjectRef::cluster("NodeClaim", claim),
            ..Entry::new(0, kind)
        };
        let entries = [
            of(EntryKind::Delete, "p-1"),
            of(EntryKind::Delete, "p-2"),
            of(EntryKind::EvictionBlocked, "p-2"),
            of(EntryKind::Gone, "p-1"),
        ];
        let entries: Vec<&Entry> = entries.iter().collect();
        let found = decisions(&entries);
        let decision = found.first().unwrap();
        assert_eq!(what(decision, entries[0]), "1 of 2 nodes removed, an eviction refused");
        assert_eq!(objects(decision), ["NodeClaim/p-1", "NodeClaim/p-2"]);
        assert_eq!(cost(decision, &BTreeMap::new()), "unknown");
        assert_eq!(cost(decision, &BTreeMap::from([("p-1", 96_000)])), "-$0.096/h, 1 unknown");
    }
}
