//! The decision log, the ledger and the snapshots, from the ConfigMaps that hold them. A slot that changed is decoded, and no other;
//! a snapshot is decoded when a reader asks for its time.

use std::{collections::BTreeMap, sync::Arc};

use croft_record::{
    SEGMENT_KEY,
    entry::Entry,
    ledger::{
        amount::Amount,
        book::Line,
        closed::{LEDGER_SLOTS, Ledger},
        node::Account,
        record::{rates, statement},
    },
    record::Record,
    slots::{LEDGER_PREFIX, SNAPSHOT_PREFIX, slot_name},
    writer::SLOTS,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;

use super::{recorded::RecordedState, snapshots::Segment};

/// A line is read once a minute at most.
const STATEMENT_MILLIS: i64 = 60_000;

/// The number and the time of an entry.
type Key = (u64, i64);

/// The log, kept up to date slot by slot.
#[derive(Default)]
pub struct Log {
    record: Record,
    ledger: Ledger,
    /// Numbers and times of the entries of each slot: the first and the last.
    slots: BTreeMap<String, (Key, Key)>,
    ledger_slots: BTreeMap<usize, Vec<u8>>,
    snapshots: BTreeMap<String, Arc<Segment>>,
    state: RecordedState,
    month: Option<(i64, i64, Vec<Line>)>,
}

impl Log {
    /// The entries in order.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// The closed hours and days.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The last word of the log about each pod and node.
    #[must_use]
    pub const fn state(&self) -> &RecordedState {
        &self.state
    }

    /// The entries up to a time, in milliseconds since 1970.
    pub fn until(&self, at: i64) -> impl Iterator<Item = &Entry> {
        self.record.entries.iter().filter(move |entry| entry.at <= at)
    }

    /// The segments of snapshots that begin up to a time, the newest first.
    #[must_use]
    pub fn snapshots_until(&self, at: i64) -> Vec<Arc<Segment>> {
        let mut segments: Vec<Arc<Segment>> =
            self.snapshots.values().filter(|segment| segment.begins() <= at).cloned().collect();
        segments.sort_by_key(|segment| std::cmp::Reverse(segment.begins()));
        segments
    }

    /// Takes in a slot as it is now.
    pub fn observe(&mut self, slot: &ConfigMap) {
        let name = slot.name_any();
        let bytes = slot.binary_data.as_ref().and_then(|data| data.get(SEGMENT_KEY));
        let bytes = bytes.map(|bytes| bytes.0.as_slice()).unwrap_or_default();
        if name.starts_with(SNAPSHOT_PREFIX) {
            match Segment::new(bytes) {
                Some(segment) => self.snapshots.insert(name, Arc::new(segment)),
                None => self.snapshots.remove(&name),
            };
            return;
        }
        if name.starts_with(LEDGER_PREFIX) {
            let mut slots = SLOTS..SLOTS + LEDGER_SLOTS;
            let Some(number) = slots.find(|number| slot_name(*number) == name) else { return };
            self.ledger_slots.insert(number, bytes.to_vec());
            let slots = self.ledger_slots.iter().map(|(number, bytes)| (*number, bytes.as_slice()));
            self.ledger = Ledger::read(slots);
            self.month = None;
            return;
        }
        let read = Record::read([(name.as_str(), bytes)]);
        if !read.damaged.is_empty() {
            tracing::warn!(slot = name, "a slot of the decision log is damaged: entries are missing");
        }
        self.replace(&name, read.entries);
    }

    /// Puts `entries` in the place of those that the slot held.
    fn replace(&mut self, name: &str, entries: Vec<Entry>) {
        let key = |entry: &Entry| (entry.sequence, entry.at);
        let Some((first, last)) = entries.first().map(key).zip(entries.last().map(key)) else { return };
        if let Some((from, to)) = self.slots.insert(name.to_owned(), (first, last)) {
            self.record.entries.retain(|entry| !(from..=to).contains(&key(entry)));
        }
        self.record.entries.extend(entries);
        self.record.entries.sort_by_key(key);
        self.record.entries.dedup_by_key(|entry| (entry.sequence, entry.at));
        self.state = RecordedState::after(&self.record.entries);
    }

    /// The lines from `from` up to `to`.
    #[must_use]
    pub fn lines(&self, from: i64, to: i64) -> Vec<Line> {
        statement(&self.record, &self.ledger, from, to)
    }

    /// The cost per hour of the instances that ran at each of `times`, which are in order. Times that the log doesn't cover are left out.
    #[must_use]
    pub fn rates(&self, times: &[i64]) -> Vec<(i64, BTreeMap<Account, Amount>)> {
        rates(&self.record, times)
    }

    /// The lines since `from`, as they were at most a minute before `now`; None if they have to be read again.
    #[must_use]
    pub fn month(&self, from: i64, now: i64) -> Option<&[Line]> {
        let (begin, read, lines) = self.month.as_ref()?;
        (*begin == from && now.saturating_sub(*read) < STATEMENT_MILLIS).then_some(lines.as_slice())
    }

    /// Reads the lines since `from`, for [`Self::month`].
    pub fn read_month(&mut self, from: i64, now: i64) {
        self.month = Some((from, now, self.lines(from, now)));
    }

    /// The time of the first entry or snapshot, in milliseconds since 1970.
    #[must_use]
    pub fn begins(&self) -> Option<i64> {
        let snapshots = self.snapshots.values().map(|segment| segment.begins());
        self.record.begins().into_iter().chain(snapshots).min()
    }

    /// The first time of which costs are known: from the log or the ledger, in milliseconds since 1970.
    #[must_use]
    pub fn costs_begin(&self) -> Option<i64> {
        [self.record.begins(), self.ledger.begins()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use croft_record::{
        entry::{EntryKind, InstanceFacts, ObjectRef},
        ledger::{book::HOUR_MILLIS, record::LogBook},
    };
    use k8s_openapi::ByteString;
    use kube::api::ObjectMeta;

    use super::*;

    fn entry(sequence: u64, kind: EntryKind, pod: &str) -> Entry {
        Entry {
            sequence,
            pods: vec![pod.to_owned()],
            reason: "PoolLimit".to_owned(),
            ..Entry::new(1_000, kind)
        }
    }

    fn slot(name: &str, entries: Vec<Entry>) -> ConfigMap {
        slot_of(name, Record { entries, damaged: Vec::new() }.to_bytes())
    }

    fn slot_of(name: &str, bytes: Vec<u8>) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            binary_data: Some(BTreeMap::from([(SEGMENT_KEY.to_owned(), ByteString(bytes))])),
            ..ConfigMap::default()
        }
    }

    fn numbers(log: &Log) -> Vec<u64> {
        log.record().entries.iter().map(|entry| entry.sequence).collect()
    }

    #[test]
    fn closed_hours_from_before_the_log_begin_the_bill_and_not_the_slider() {
        let launched = Entry {
            object: ObjectRef::cluster("NodeClaim", "claim"),
            condition: "Launched=True".to_owned(),
            price: Some(96_000),
            instance: Some(InstanceFacts::default()),
            ..Entry::new(0, EntryKind::Condition)
        };
        let mut book = LogBook::default();
        book.observe(&launched);
        let (_, writes) = Ledger::default().close(&mut book, HOUR_MILLIS);
        let mut log = Log::default();
        for write in writes {
            log.observe(&slot_of(&slot_name(write.slot), write.bytes));
        }
        let later = Entry { at: 2 * HOUR_MILLIS, ..entry(9, EntryKind::Lead, "") };
        log.observe(&slot("croft-record-00", vec![later]));
        assert_eq!((log.begins(), log.costs_begin()), (Some(2 * HOUR_MILLIS), Some(0)));
    }

    #[test]
    fn a_slot_that_grows_or_is_overwritten_replaces_its_own_entries_alone() {
        let mut log = Log::default();
        log.observe(&slot("croft-record-01", vec![entry(3, EntryKind::Pending, "n/p")]));
        log.observe(&slot(
            "croft-record-00",
            vec![entry(1, EntryKind::Lead, ""), entry(2, EntryKind::Plan, "")],
        ));
        assert_eq!(numbers(&log), [1, 2, 3]);
        let grown = vec![entry(3, EntryKind::Pending, "n/p"), entry(4, EntryKind::Pending, "n/q")];
        log.observe(&slot("croft-record-01", grown));
        assert_eq!(numbers(&log), [1, 2, 3, 4]);
        log.observe(&slot("croft-record-00", vec![entry(5, EntryKind::Bound, "n/p")]));
        assert_eq!(numbers(&log), [3, 4, 5]);
        assert_eq!(log.state().pending("n/q").unwrap().reason, "PoolLimit");
        assert!(log.state().pending("n/p").is_none(), "it was bound");
        log.observe(&slot("croft-record-01", vec![entry(6, EntryKind::Lead, "")]));
        assert_eq!(log.state().pending("n/q"), None, "its entry was overwritten");
    }
}
