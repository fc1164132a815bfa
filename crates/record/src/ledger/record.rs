//! The book of a decision log.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    amount::Amount,
    book::{Book, HOUR_MILLIS, Line},
    closed::Ledger,
    node::{Account, NodeCost, Stage},
};
use crate::{
    entry::{Entry, EntryKind},
    record::Record,
};

/// EC2 charges each second of an instance, and a minute at least.
const LEAST_MILLIS: i64 = 60_000;

/// A claim's instance as far as the log has been read.
#[derive(Clone, Debug, Default)]
struct Known {
    cost: Option<NodeCost>,
    pool: String,
    tenants: Vec<String>,
    instance: String,
    template: String,
    capacity_type: String,
    launched: Option<i64>,
    list_price: Option<i64>,
    ended: Option<i64>,
}

/// The book of a log that is still written: it takes in one entry after another. An instance is paid for from its launch until it begins
/// to terminate, both by EC2's clock where an entry has that time, else by the entries' own. What its pods request is known from its
/// `state` entries: each holds until the next.
#[derive(Clone, Debug, Default)]
pub struct LogBook {
    claims: BTreeMap<String, Known>,
    /// The claims that had each instance at some time. A log has as many launches as claims, and each asks for the others.
    claims_of_instance: BTreeMap<String, BTreeSet<String>>,
    book: Book,
    begins: Option<(u64, i64)>,
    through: u64,
    /// Amounts up to then stay as they are.
    settled: i64,
}

impl LogBook {
    /// Reads the entries of `record` up to `until`. Entries that an hour of `closed` took into account are charged up to its end before those
    /// after them, so that the same entries give the same amounts as when it was closed.
    #[must_use]
    pub fn replay(record: &Record, closed: &Ledger, until: i64) -> Self {
        let mut book = Self::default();
        let mut marks = closed.marks().peekable();
        for entry in record.entries.iter().filter(|entry| entry.at <= until) {
            while let Some((_, end)) = marks.next_if(|(through, _)| *through < entry.sequence) {
                book.settle(end.min(until));
            }
            book.observe(entry);
        }
        for (_, end) in marks {
            book.settle(end.min(until));
        }
        book
    }

    /// Takes in the next entry.
    pub fn observe(&mut self, entry: &Entry) {
        self.begins.get_or_insert((entry.sequence, entry.at));
        self.through = self.through.max(entry.sequence);
        if entry.object.kind != "NodeClaim" {
            return;
        }
        let name = entry.object.name.as_str();
        let known = self.claims.entry(name.to_owned()).or_default();
        let was_paid = known.cost.is_some();
        if let Some(instance) = entry.instance.as_ref().filter(|instance| !instance.id.is_empty()) {
            self.claims_of_instance.entry(instance.id.clone()).or_default().insert(name.to_owned());
        }
        if !known.observe(entry) {
            return;
        }
        let cost = known.cost.clone();
        let at = match (was_paid, &cost) {
            (false, Some(_)) => {
                let launched = known.launched.unwrap_or(entry.at);
                let before = self.paid_before(name).unwrap_or(i64::MIN);
                launched.max(before).max(self.settled)
            }
            (_, None) => known.ended.unwrap_or(entry.at),
            _ => entry.at,
        };
        self.book.observe(name, at, cost);
    }

    /// Until when another claim paid for the instance of `claim`: one that lost its claim gets a new one.
    fn paid_before(&self, claim: &str) -> Option<i64> {
        let instance = &self.claims.get(claim).filter(|known| !known.instance.is_empty())?.instance;
        let others = self.claims_of_instance.get(instance)?.iter().filter(|name| *name != claim);
        let others =
            others.filter_map(|name| self.claims.get(name)).filter(|known| known.instance == *instance);
        others.filter_map(|known| known.ended).max()
    }

    /// Charges what runs up to `at`.
    pub fn settle(&mut self, at: i64) {
        self.settled = self.settled.max(at);
        self.book.settle(at);
    }

    /// The amounts so far.
    #[must_use]
    pub const fn book(&self) -> &Book {
        &self.book
    }

    /// The last sequence number.
    #[must_use]
    pub const fn through(&self) -> u64 {
        self.through
    }

    /// The time of the first entry.
    #[must_use]
    pub fn begins(&self) -> Option<i64> {
        self.begins.map(|(_, at)| at)
    }

    /// True if the entries say all that was paid from `from` on: they begin with the first entry ever, or an hour earlier, since
    /// each node has an entry once an hour.
    #[must_use]
    pub fn covers(&self, from: i64) -> bool {
        self.begins.is_some_and(|(sequence, at)| sequence <= 1 || at <= from.saturating_sub(HOUR_MILLIS))
    }

    /// Forgets hours that begin before `from`, and instances that ended an hour before.
    pub fn forget(&mut self, from: i64) {
        self.book.forget(from);
        let from = from.saturating_sub(HOUR_MILLIS);
        self.claims.retain(|_, known| known.ended.is_none_or(|ended| ended >= from));
        let claims = &self.claims;
        self.claims_of_instance.retain(|_, names| {
            names.retain(|name| claims.contains_key(name));
            !names.is_empty()
        });
    }
}

/// The costs of the instances of `record` up to `until`.
#[must_use]
pub fn book(record: &Record, until: i64) -> Book {
    let mut read = LogBook::replay(record, &Ledger::default(), until);
    read.settle(until);
    read.book
}

/// The cost per hour of the instances that ran at each of `times`, which are in order, by account. Times of which the entries don't say all are left out.
#[must_use]
pub fn rates(record: &Record, times: &[i64]) -> Vec<(i64, BTreeMap<Account, Amount>)> {
    let mut read = LogBook::default();
    let mut entries = record.entries.iter().peekable();
    let rates = times.iter().filter_map(|time| {
        while let Some(entry) = entries.next_if(|entry| entry.at <= *time) {
            read.observe(entry);
        }
        read.covers(*time).then(|| (*time, read.book().rates().clone()))
    });
    rates.collect()
}

/// The lines of hours that begin from `from` on and before `to`: those of closed hours as they were closed, the others from the log. The
/// hour that `to` is in counts up to then, but whole if the log no longer has it. A closed day whose hours are gone is one line at its
/// beginning.
#[must_use]
pub fn statement(record: &Record, closed: &Ledger, from: i64, to: i64) -> Vec<Line> {
    let mut read = LogBook::replay(record, closed, to);
    read.settle(to);
    let is_closed = |hour: i64| {
        let over = hour.saturating_add(HOUR_MILLIS) <= to;
        closed.has(hour) && (over || !read.covers(hour))
    };
    let mut lines: Vec<Line> = closed.lines(from, to).filter(|line| is_closed(line.hour)).collect();
    lines.extend(closed.lines_of_days(from, to));
    let open =
        read.book.lines(from, to).filter(|line| !is_closed(line.hour) && !closed.has_day_only(line.hour));
    lines.extend(open);
    lines.sort_by(|a, b| (a.hour, &a.account).cmp(&(b.hour, &b.account)));
    lines
}

impl Known {
    /// Takes in an entry. True if the instance costs something else from then on.
    fn observe(&mut self, entry: &Entry) -> bool {
        if self.ended.is_some() {
            return false;
        }
        if matches!(entry.kind, EntryKind::Ended | EntryKind::Gone) {
            let ended = entry.instance.as_ref().and_then(|instance| instance.ended).unwrap_or(entry.at);
            let least = self.launched.map_or(i64::MIN, |launched| launched.saturating_add(LEAST_MILLIS));
            self.ended = Some(ended.max(least));
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
            self.instance.clone_from(&instance.id);
            self.template.clone_from(&instance.template);
            self.capacity_type.clone_from(&instance.capacity_type);
            self.launched = self.launched.or(instance.launched);
            self.list_price = instance.list_price;
        }
        let before = self.cost.clone();
        if let Some(price) = entry.price.map(|price| self.list_price.unwrap_or(price)) {
            let stage = if entry.condition == "Launched=True" { Stage::Starting } else { Stage::Working };
            let tenant = match self.tenants.as_slice() {
                [only] => only.clone(),
                _ => String::new(),
            };
            let cost = self.cost.get_or_insert_with(|| NodeCost {
                pool: self.pool.clone(),
                template: self.template.clone(),
                tenant,
                capacity_type: self.capacity_type.clone(),
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
