//! The buffer of entries: what is news, and when it is written. No I/O.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
    time::Duration,
};

use croft_record::{
    entry::{Entry, EntryKind},
    snapshot::writer::TooLarge,
    writer::{SegmentWrite, Writer},
};

use super::{
    ledger::{ClosedCosts, LedgerKeeper},
    snapshots::SnapshotKeeper,
};
use crate::{
    action::Action,
    kube_api::Change,
    record_store::{ResumedRecord, SlotWrite},
    time::Now,
};

/// Entries wait this long for others before they are written. With a call's timeout, a crash loses at most ten seconds.
const WRITE_AFTER: Duration = Duration::from_secs(5);
/// A snapshot isn't written while entries have waited this long: they are due before its call may have ended.
const NO_SNAPSHOT_AFTER: Duration = Duration::from_secs(2);
/// Entries that wait for a store beyond this are dropped, the oldest first.
const MOST_WAITING: usize = 5_000;
/// A statement that still holds is recorded again after this long: the log forgets its oldest entries.
pub(super) const REPEAT_AFTER: Duration = Duration::from_secs(3_600);
/// Another message with the same reason is recorded at most this often: figures in messages change all the time.
const MESSAGE_AFTER: Duration = Duration::from_secs(60);

/// Counts of entries, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Entries that were written.
    pub written: u64,
    /// Entries that were dropped before they could be written.
    pub lost: u64,
    /// When the last write succeeded, in seconds since 1970; 0 before the first.
    pub last_write: i64,
}

/// The last entry about an object.
#[derive(Clone, Copy, Debug)]
struct Last {
    reason: u64,
    message: u64,
    at: Duration,
}

/// The way of entries to the store.
#[derive(Debug, Default)]
enum Log {
    /// This process records nothing.
    #[default]
    Off,
    /// The store has not been read since this process began to lead, or since a write failed.
    Unread,
    /// Entries are written by `writer`, over slots of these versions.
    Open { writer: Writer, versions: BTreeMap<usize, String> },
}

/// Buffers entries until they are written.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    log: Log,
    identity: String,
    waiting: VecDeque<Entry>,
    /// Since when the oldest entry waits, on the monotonic clock.
    waiting_since: Option<Duration>,
    /// Entries of the write in flight.
    writing: Vec<Entry>,
    ledger: LedgerKeeper,
    snapshots: SnapshotKeeper,
    /// Dropped entries that the log doesn't mention yet.
    unmentioned: u64,
    last: BTreeMap<String, Last>,
    pruned: Duration,
    counts: RecordCounts,
}

impl Buffer {
    /// Records from now on, as the process `identity`.
    pub(super) fn start(&mut self, identity: &str) {
        identity.clone_into(&mut self.identity);
        self.log = Log::Unread;
    }

    /// True if this process records.
    #[must_use]
    pub(super) const fn is_on(&self) -> bool {
        !matches!(self.log, Log::Off)
    }

    /// True once the store has been read, so that it is known what it lacks.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.log, Log::Open { .. })
    }

    /// Counts of entries.
    #[must_use]
    pub(super) const fn counts(&self) -> &RecordCounts {
        &self.counts
    }

    /// The costs of the hours that this process closed.
    #[must_use]
    pub(super) const fn costs(&self) -> &ClosedCosts {
        self.ledger.costs()
    }

    /// Begins to lead: another process may have written since.
    pub(super) fn take_over(&mut self, now: Now) {
        if !self.is_on() {
            return;
        }
        self.log = Log::Unread;
        self.waiting.clear();
        self.writing.clear();
        self.waiting_since = None;
        self.last.clear();
        let lead = Entry {
            message: self.identity.clone(),
            ..Entry::new(now.wall.as_millisecond(), EntryKind::Lead)
        };
        self.push(lead, now);
    }

    /// Takes in an entry.
    pub(super) fn push(&mut self, entry: Entry, now: Now) {
        if !self.is_on() {
            return;
        }
        self.waiting.push_back(entry.bounded());
        self.waiting_since.get_or_insert(now.mono);
        if self.waiting.len() > MOST_WAITING {
            self.waiting.pop_front();
            self.unmentioned = self.unmentioned.saturating_add(1);
            self.counts.lost = self.counts.lost.saturating_add(1);
        }
    }

    /// Takes in an entry about `key`, unless it only repeats the last one about it.
    pub(super) fn push_change(&mut self, key: String, entry: Entry, now: Now) {
        if self.is_news(key, &entry.reason, &entry.message, now) {
            self.push(entry, now);
        }
    }

    /// True if reason or message differ from the last ones about `key`, or those are old.
    pub(super) fn is_news(&mut self, key: String, reason: &str, message: &str, now: Now) -> bool {
        if !self.is_on() {
            return false;
        }
        if now.mono.saturating_sub(self.pruned) > REPEAT_AFTER {
            self.last.retain(|_, last| now.mono.saturating_sub(last.at) < REPEAT_AFTER);
            self.pruned = now.mono;
        }
        let new = Last { reason: digest(&reason), message: digest(&message), at: now.mono };
        if let Some(last) = self.last.get(&key) {
            let age = now.mono.saturating_sub(last.at);
            let changed = last.reason != new.reason || (last.message != new.message && age >= MESSAGE_AFTER);
            if !changed && age < REPEAT_AFTER {
                return false;
            }
        }
        self.last.insert(key, new);
        true
    }

    /// The read or write of the store that is due now, while none is in flight.
    pub(super) fn due(&mut self, now: Now) -> Option<Action> {
        match self.log {
            Log::Off => None,
            Log::Unread => Some(Action::ReadRecord),
            Log::Open { .. } if !self.writing.is_empty() => {
                // The write ended without a report.
                self.log = Log::Unread;
                Some(Action::ReadRecord)
            }
            Log::Open { .. } => {
                let is_due =
                    self.waiting_since.is_some_and(|since| now.mono >= since.saturating_add(WRITE_AFTER));
                if is_due {
                    self.write(now)
                } else {
                    self.close_hours(now).or_else(|| self.write_snapshot(now))
                }
            }
        }
    }

    /// The write of the ledger that is due now: each entry of the hours that are over has been written.
    fn close_hours(&mut self, now: Now) -> Option<Action> {
        let Log::Open { versions, .. } = &self.log else { return None };
        let is_over = |end: i64| self.waiting.front().is_none_or(|entry| entry.at >= end);
        let writes = self.ledger.close(versions, now, is_over);
        let write = |segment: SegmentWrite| Self::slot_write(versions, segment);
        (!writes.is_empty()).then(|| Action::WriteRecord(writes.into_iter().map(write).collect()))
    }

    /// The write of the snapshot that is due now.
    fn write_snapshot(&mut self, now: Now) -> Option<Action> {
        let Log::Open { versions, .. } = &self.log else { return None };
        let is_late = |since: Duration| now.mono.saturating_sub(since) >= NO_SNAPSHOT_AFTER;
        if self.waiting_since.is_some_and(is_late) {
            return None;
        }
        match self.snapshots.append(versions, now)? {
            Ok(segment) => Some(Action::WriteRecord(vec![Self::slot_write(versions, segment)])),
            Err(TooLarge { bytes, most }) => {
                let message = format!(
                    "a snapshot of the cluster takes {} KiB, more than the {} KiB that are kept: croft debug dump writes one",
                    bytes / 1024,
                    most / 1024
                );
                let entry = Entry { message, ..Entry::new(now.wall.as_millisecond(), EntryKind::Lost) };
                self.push_change("snapshot".to_owned(), entry, now);
                None
            }
        }
    }

    /// Takes in a change of an object, for snapshots.
    pub(super) fn observe_change(&mut self, change: &Change) {
        if self.is_on() {
            self.snapshots.observe(change);
        }
    }

    fn slot_write(versions: &BTreeMap<usize, String>, segment: SegmentWrite) -> SlotWrite {
        let version = versions.get(&segment.slot).cloned().unwrap_or_default();
        SlotWrite { version, segment: Arc::new(segment) }
    }

    /// When the next write is due, on the monotonic clock.
    #[must_use]
    pub(super) fn next_due(&self, now: Now) -> Option<Duration> {
        let Log::Open { versions, .. } = &self.log else {
            return self.is_on().then_some(self.waiting_since?.saturating_add(WRITE_AFTER));
        };
        let entries = self.waiting_since.map(|since| since.saturating_add(WRITE_AFTER));
        // An hour that is over waits for its entries.
        let close = self.ledger.next_close(versions, now).filter(|due| *due > now.mono || entries.is_none());
        // A snapshot that is due waits for the entries that are due soon.
        let snapshot = self.snapshots.next_due(versions).filter(|due| *due > now.mono || entries.is_none());
        [entries, close, snapshot].into_iter().flatten().min()
    }

    /// The write of everything that waits.
    pub(super) fn write(&mut self, now: Now) -> Option<Action> {
        if self.unmentioned > 0 && self.is_open() {
            let message = format!("{} entries could not be kept until they were written", self.unmentioned);
            self.waiting
                .push_front(Entry { message, ..Entry::new(now.wall.as_millisecond(), EntryKind::Lost) });
            self.unmentioned = 0;
        }
        let Log::Open { writer, versions } = &mut self.log else { return None };
        if self.waiting.is_empty() {
            return None;
        }
        self.waiting_since = None;
        self.writing = self.waiting.drain(..).collect();
        let writes = writer.append(&mut self.writing);
        let write = |segment: SegmentWrite| Self::slot_write(versions, segment);
        Some(Action::WriteRecord(writes.into_iter().map(write).collect()))
    }

    /// Takes in that a write has succeeded, with the new versions of its slots.
    pub(super) fn observe_written(&mut self, written: impl IntoIterator<Item = (usize, String)>, now: Now) {
        let Log::Open { versions, .. } = &mut self.log else { return };
        versions.extend(written);
        self.counts.written = self.counts.written.saturating_add(self.writing.len() as u64);
        self.counts.last_write = now.wall.as_second();
        self.ledger.observe_written(&self.writing);
        self.writing.clear();
    }

    /// Takes in that a write has failed: what of it arrived is read again.
    pub(super) fn observe_unwritten(&mut self) {
        if self.is_on() {
            self.log = Log::Unread;
        }
    }

    /// Takes in what the store holds. Entries of a write of unknown outcome that aren't there are written again.
    pub(super) fn observe_read(&mut self, resumed: ResumedRecord, now: Now) {
        if !self.is_on() {
            return;
        }
        let ResumedRecord { writer, last_sequence, versions, ledger, book, snapshots, .. } = resumed;
        self.ledger.resume(ledger, book, now);
        self.snapshots.resume(snapshots);
        let (arrived, missing): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.writing).into_iter().partition(|entry| entry.sequence <= last_sequence);
        self.counts.written = self.counts.written.saturating_add(arrived.len() as u64);
        for entry in missing.into_iter().rev() {
            self.waiting.push_front(entry);
            self.waiting_since.get_or_insert(now.mono);
        }
        self.log = Log::Open { writer, versions };
    }
}

pub(super) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use croft_record::{entry::ObjectRef, record::Record, writer::SLOTS};

    use super::*;
    use crate::record_store::StoredSlot;

    fn at(seconds: u64) -> Now {
        let wall = jiff::Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap();
        Now { wall, mono: Duration::from_secs(seconds) }
    }

    fn entry(name: &str, reason: &str, message: &str) -> Entry {
        Entry {
            object: ObjectRef::cluster("NodeClaim", name),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..Entry::new(7, EntryKind::Event)
        }
    }

    /// Slots with versions, as the API server keeps them.
    #[derive(Default)]
    struct Slots(Vec<StoredSlot>);

    impl Slots {
        fn new() -> Self {
            Self(
                (0..SLOTS)
                    .map(|slot| StoredSlot { slot, version: "1".to_owned(), bytes: Vec::new() })
                    .collect(),
            )
        }

        /// Carries a write out; false if another version is there.
        fn write(&mut self, action: Option<Action>) -> Option<Vec<(usize, String)>> {
            let Some(Action::WriteRecord(writes)) = action else { panic!("no write: {action:?}") };
            let mut versions = Vec::new();
            for write in writes {
                let slot = &mut self.0[write.segment.slot];
                if slot.version != write.version {
                    return None;
                }
                slot.version = (slot.version.parse::<u64>().unwrap() + 1).to_string();
                slot.bytes.clone_from(&write.segment.bytes);
                versions.push((slot.slot, slot.version.clone()));
            }
            Some(versions)
        }

        fn messages(&self) -> Vec<String> {
            let record = Record::read(self.0.iter().map(|slot| ("slot", slot.bytes.as_slice())));
            assert!(record.damaged.is_empty());
            record.entries.into_iter().map(|entry| entry.message).collect()
        }
    }

    fn leading(slots: &Slots, identity: &str, now: Now) -> Buffer {
        let mut buffer = Buffer::default();
        buffer.start(identity);
        buffer.take_over(now);
        assert!(
            matches!(buffer.due(now), Some(Action::ReadRecord)),
            "what is there is read before anything is written"
        );
        buffer.observe_read(ResumedRecord::new(&slots.0), now);
        buffer
    }

    #[test]
    fn a_process_that_records_nothing_asks_for_nothing() {
        let mut buffer = Buffer::default();
        buffer.take_over(at(0));
        buffer.push(entry("a", "r", "m"), at(0));
        assert!(buffer.due(at(100)).is_none() && buffer.next_due(at(100)).is_none());
    }

    #[test]
    fn entries_are_written_after_five_seconds_and_continued_by_the_next_leader() {
        let mut slots = Slots::new();
        let mut first = leading(&slots, "first", at(0));
        first.push(entry("a", "r", "one"), at(2));
        assert!(first.due(at(4)).is_none());
        assert_eq!(first.next_due(at(4)), Some(Duration::from_secs(5)));
        let written = slots.write(first.due(at(5))).unwrap();
        first.observe_written(written, at(5));
        assert_eq!((first.counts().written, first.next_due(at(5))), (2, None));
        // It crashes with an entry that waits, and another process leads.
        first.push(entry("a", "r", "lost in the crash"), at(6));
        let mut second = leading(&slots, "second", at(20));
        let written = slots.write(second.write(at(25))).unwrap();
        second.observe_written(written, at(25));
        assert_eq!(slots.messages(), ["first", "one", "second"]);
        // The first comes back: its write names versions that are no longer there.
        assert!(slots.write(first.due(at(26))).is_none());
        assert_eq!(slots.messages(), ["first", "one", "second"]);
    }

    #[test]
    fn a_write_of_unknown_outcome_is_neither_lost_nor_repeated() {
        for arrived in [true, false] {
            let mut slots = Slots::new();
            let mut buffer = leading(&slots, "leader", at(0));
            let asked = buffer.due(at(5));
            if arrived {
                slots.write(asked).unwrap();
            }
            buffer.push(entry("a", "r", "later"), at(6));
            buffer.observe_unwritten();
            assert!(matches!(buffer.due(at(7)), Some(Action::ReadRecord)));
            buffer.observe_read(ResumedRecord::new(&slots.0), at(7));
            let written = slots.write(buffer.write(at(12))).unwrap();
            buffer.observe_written(written, at(12));
            assert_eq!(slots.messages(), ["leader", "later"], "arrived: {arrived}");
            assert_eq!(buffer.counts().written, 2);
        }
    }

    #[test]
    fn what_does_not_fit_is_counted_and_said() {
        let mut slots = Slots::new();
        let mut buffer = Buffer::default();
        buffer.start("leader");
        buffer.take_over(at(0));
        for n in 0..MOST_WAITING + 2 {
            buffer.push(entry("a", "r", &n.to_string()), at(1));
        }
        assert_eq!(buffer.counts().lost, 3);
        buffer.observe_read(ResumedRecord::new(&slots.0), at(2));
        slots.write(buffer.due(at(6))).unwrap();
        let messages = slots.messages();
        assert_eq!(messages.len(), MOST_WAITING + 1);
        assert_eq!(messages[..2], ["3 entries could not be kept until they were written", "2"]);
    }

    #[test]
    fn what_still_holds_is_recorded_once_an_hour_and_new_figures_once_a_minute() {
        let slots = Slots::new();
        let mut buffer = leading(&slots, "leader", at(0));
        let mut news =
            |reason, message, second| buffer.is_news("key".to_owned(), reason, message, at(second));
        assert!(news("r", "1", 0));
        assert!(!news("r", "1", 100));
        assert!(news("r", "2", 101), "other figures after a minute");
        assert!(!news("r", "3", 102));
        assert!(news("other", "3", 103), "another reason at once");
        assert!(news("other", "3", 103 + 3_600), "it still holds");
    }
}
