//! The book of a decision log.

use std::collections::BTreeMap;

use super::{
    book::Book,
    node::{NodeCost, Stage},
};
use crate::{
    entry::{Entry, EntryKind},
    record::Record,
};

/// A claim's instance as far as the log has been read.
#[derive(Default)]
struct Known {
    cost: Option<NodeCost>,
    pool: String,
    tenants: Vec<String>,
    capacity_type: String,
    ended: bool,
}

/// The costs of the instances of `record` up to `until`. An instance is paid for from the entry of its launch, or from the first that has its
/// price, up to the entry of its end. What its pods request is known from its `state` entries: each holds until the next.
#[must_use]
pub fn book(record: &Record, until: i64) -> Book {
    let mut book = Book::default();
    let mut claims: BTreeMap<&str, Known> = BTreeMap::new();
    for entry in record.entries.iter().filter(|entry| entry.object.kind == "NodeClaim" && entry.at <= until) {
        let name = entry.object.name.as_str();
        let known = claims.entry(name).or_default();
        if known.observe(entry) {
            book.observe(name, entry.at, known.cost.clone());
        }
    }
    book.settle(until);
    book
}

impl Known {
    /// Takes in an entry. True if the instance costs something else from then on.
    fn observe(&mut self, entry: &Entry) -> bool {
        if self.ended {
            return false;
        }
        if entry.kind == EntryKind::Gone {
            self.ended = true;
            return self.cost.take().is_some();
        }
        if !entry.pool.is_empty() {
            self.pool.clone_from(&entry.pool);
        }
        // A request names the tenants of its pods; all else those of the pool.
        if entry.kind != EntryKind::Create && !entry.tenants.is_empty() {
            self.tenants.clone_from(&entry.tenants);
        }
        if let Some(instance) = &entry.instance {
            self.capacity_type.clone_from(&instance.capacity_type);
        }
        let before = self.cost.clone();
        if let Some(price) = entry.price {
            let stage = if entry.condition == "Launched=True" { Stage::Starting } else { Stage::Working };
            let tenant = match self.tenants.as_slice() {
                [only] => only.clone(),
                _ => String::new(),
            };
            let (pool, capacity_type) = (self.pool.clone(), self.capacity_type.clone());
            let cost = self.cost.get_or_insert_with(|| NodeCost {
                pool,
                tenant,
                capacity_type,
                price,
                cpu_millis: 0,
                memory_bytes: 0,
                stage,
                shares: Vec::new(),
            });
            cost.price = price;
        }
        if let Some(cost) = &mut self.cost {
            match entry.kind {
                EntryKind::Condition
                    if entry.condition == "Initialized=True" && cost.stage == Stage::Starting =>
                {
                    cost.stage = Stage::Working;
                }
                EntryKind::Deleting => cost.stage = Stage::Draining,
                _ => {}
            }
            if let Some(usage) = &entry.usage {
                cost.cpu_millis = usage.cpu_millis;
                cost.memory_bytes = usage.memory_bytes;
                cost.shares.clone_from(&usage.shares);
            }
        }
        self.cost != before
    }
}
