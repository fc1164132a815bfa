//! A copy of log and ledger in an object store, which keeps what their slots overwrite.
//!
//! The slots stay the log: an entry is written there first, and a new leader reads them alone. So an object store that is slow or away
//! delays nothing, and what it lacks is copied once it answers again, as long as the slots and a queue hold it.
//!
//! It copies in a loop of its own, beside the executor: no decision depends on what the object store answers, a slow copy must not take
//! the place of an action, and a process that no longer leads still copies what no slot holds any more, while its engine starts no
//! action.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use croft_record::{
    archive::{self, Ring},
    writer::SegmentWrite,
};
use croft_runtime::{clock::Clock, shutdown::Shutdown};
use object_store::{ObjectStore, ObjectStoreExt as _, path::Path};

use super::{RecordStore, SlotWrite, StoreError, StoredSlot};

/// Between two copies. A request is made for each slot that changed, and for none while nothing happens.
const COPY_EVERY: Duration = Duration::from_secs(60);
/// The last copy of a process that ends takes at most this long.
const LAST_COPY: Duration = Duration::from_secs(10);
/// Overwritten segments that wait for the object store beyond this are dropped, the oldest first: 16 MiB.
const MOST_OVERWRITTEN: usize = 64;

/// Counts of an archive, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// Objects that are to be copied.
    pub waiting: usize,
    /// Segments that were dropped before they could be copied.
    pub lost: u64,
    /// When the object store last had everything, in seconds since 1970; 0 before.
    pub last_copy: i64,
}

/// An object, and its content.
#[derive(Clone, Debug)]
struct ObjectCopy {
    name: String,
    content: Arc<SegmentWrite>,
    is_stored: bool,
}

#[derive(Debug, Default)]
struct Held {
    slots: BTreeMap<usize, ObjectCopy>,
    /// Segments whose slot has another one, and that aren't stored yet.
    overwritten: VecDeque<ObjectCopy>,
    /// The segments that this leader continues, each with the time at which it began to.
    continued: BTreeMap<Ring, (u64, i64)>,
    lost: u64,
    last_copy: i64,
}

impl Held {
    fn observe(&mut self, content: Arc<SegmentWrite>) {
        let continued = archive::ring(content.slot).and_then(|ring| self.continued.get(&ring)).copied();
        let Some(name) = archive::name(content.slot, &content.bytes, continued) else { return };
        let old = self.slots.get(&content.slot);
        let is_renamed = old.is_some_and(|old| old.name != name);
        // A leader reads every slot after a failed write: most of them are as they were.
        if !is_renamed && old.is_some_and(|old| old.content.bytes == content.bytes) {
            return;
        }
        let old = self.slots.insert(content.slot, ObjectCopy { name, content, is_stored: false });
        if let Some(old) = old.filter(|old| is_renamed && !old.is_stored) {
            self.overwritten.push_back(old);
            if self.overwritten.len() > MOST_OVERWRITTEN {
                self.overwritten.pop_front();
                self.lost = self.lost.saturating_add(1);
            }
        }
    }

    fn waiting(&self) -> impl Iterator<Item = &ObjectCopy> {
        self.overwritten.iter().chain(self.slots.values()).filter(|copy| !copy.is_stored)
    }

    fn observe_stored(&mut self, stored: &ObjectCopy) {
        let is_it = |copy: &ObjectCopy| Arc::ptr_eq(&copy.content, &stored.content);
        self.overwritten.retain(|copy| !is_it(copy));
        if let Some(copy) = self.slots.get_mut(&stored.content.slot).filter(|copy| is_it(copy)) {
            copy.is_stored = true;
        }
    }
}

/// Copies of the slots, and where they go.
pub struct Archive {
    objects: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    held: Mutex<Held>,
}

impl Archive {
    /// An archive in `objects`.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>, clock: Arc<dyn Clock>) -> Self {
        Self { objects, clock, held: Mutex::default() }
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts for the metrics.
    #[must_use]
    pub fn counts(&self) -> ArchiveCounts {
        let held = self.held();
        ArchiveCounts { waiting: held.waiting().count(), lost: held.lost, last_copy: held.last_copy }
    }

    /// Takes in the slots that a leader has read and will continue.
    fn observe_read(&self, slots: &[StoredSlot]) {
        let mut held = self.held();
        for ring in [Ring::Log, Ring::Snapshots] {
            let numbered = |slot: usize, bytes: &[u8]| {
                archive::number(slot, bytes).filter(|_| archive::ring(slot) == Some(ring))
            };
            let newest = slots
                .iter()
                .filter_map(|slot| Some((numbered(slot.slot, &slot.bytes)?, slot.bytes.len())))
                .max();
            // The newest segment is this process's own, and nothing of it is gone.
            let is_own = |(number, length): &(u64, usize)| {
                held.slots.values().any(|ObjectCopy { content, .. }| {
                    numbered(content.slot, &content.bytes) == Some(*number) && content.bytes.len() <= *length
                })
            };
            if let Some((number, _)) = newest.filter(|newest| !is_own(newest)) {
                held.continued.insert(ring, (number, self.clock.wall().as_millisecond()));
            }
        }
        for StoredSlot { slot, bytes, .. } in slots {
            held.observe(Arc::new(SegmentWrite { slot: *slot, bytes: bytes.clone() }));
        }
    }

    /// Copies what the object store lacks. Once `leads` is false, the slots are another leader's to copy.
    ///
    /// # Errors
    /// The first error. What isn't stored yet stays.
    pub async fn copy(&self, leads: impl Fn() -> bool) -> Result<(), object_store::Error> {
        let waiting: Vec<ObjectCopy> = self.held().waiting().cloned().collect();
        for copy in waiting {
            if !leads() {
                let mut held = self.held();
                held.slots.clear();
                held.last_copy = 0;
                if !held.overwritten.iter().any(|waiting| waiting.name == copy.name) {
                    continue;
                }
            }
            self.objects.put(&Path::from(copy.name.as_str()), copy.content.bytes.clone().into()).await?;
            self.held().observe_stored(&copy);
        }
        let mut held = self.held();
        if held.waiting().next().is_none() && !held.slots.is_empty() {
            held.last_copy = self.clock.wall().as_second();
        }
        Ok(())
    }

    /// Copies until `stop` begins, and once more then; `report` gets the counts after each copy.
    pub async fn keep(&self, leads: impl Fn() -> bool, report: impl Fn(&ArchiveCounts), stop: &Shutdown) {
        loop {
            tokio::select! {
                () = stop.wait() => break,
                () = tokio::time::sleep(COPY_EVERY) => self.try_copy(&leads).await,
            }
            report(&self.counts());
        }
        if tokio::time::timeout(LAST_COPY, self.try_copy(&leads)).await.is_err() {
            tracing::warn!(
                "the object store doesn't answer: the next leader copies the rest of the decision log"
            );
        }
    }

    async fn try_copy(&self, leads: impl Fn() -> bool) {
        if let Err(error) = self.copy(leads).await {
            let waiting = self.held().waiting().count();
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                waiting,
                "failed to copy the decision log into its object store, retrying",
            );
        }
    }
}

/// A store whose content is copied into an archive.
pub struct ArchivedStore<S> {
    slots: S,
    archive: Arc<Archive>,
}

impl<S> ArchivedStore<S> {
    /// The store `slots`, copied into `archive`.
    #[must_use]
    pub const fn new(slots: S, archive: Arc<Archive>) -> Self {
        Self { slots, archive }
    }
}

#[async_trait]
impl<S: RecordStore> RecordStore for ArchivedStore<S> {
    async fn read(&self) -> Result<Vec<StoredSlot>, StoreError> {
        let slots = self.slots.read().await?;
        self.archive.observe_read(&slots);
        Ok(slots)
    }

    async fn write(&self, write: &SlotWrite) -> Result<String, StoreError> {
        let version = self.slots.write(write).await?;
        self.archive.held().observe(Arc::clone(&write.segment));
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use croft_record::{
        archive::segments_between,
        entry::{Entry, EntryKind},
        record::Record,
        writer::{Bounds, Writer},
    };
    use croft_runtime::clock::SystemClock;
    use futures::TryStreamExt as _;
    use jiff::Timestamp;
    use object_store::memory::InMemory;

    use super::*;

    /// Wall time only, which each look moves by a second.
    struct At(AtomicI64);

    impl Clock for At {
        fn monotonic(&self) -> std::time::Instant {
            SystemClock.monotonic()
        }

        fn wall(&self) -> Timestamp {
            Timestamp::from_second(self.0.fetch_add(1, Ordering::Relaxed)).unwrap()
        }
    }

    const SECOND: i64 = 1_800_000_000;

    /// Two small segments fill a slot each.
    fn bounds() -> Bounds {
        Bounds { segment_bytes: 400, member_text_bytes: 200 }
    }

    fn archive(objects: &Arc<InMemory>, led_from: i64) -> Archive {
        Archive::new(
            Arc::clone(objects) as Arc<dyn ObjectStore>,
            Arc::new(At(AtomicI64::new(SECOND + led_from))),
        )
    }

    fn entry(after: i64, message: &str) -> Entry {
        // Text that gzip can't shorten much.
        let message = format!("{message} {after:x} {:x}", after.wrapping_mul(0x1e37_79b9_7f4a_7c15));
        Entry { message, ..Entry::new((SECOND + after) * 1_000, EntryKind::Event) }
    }

    fn write(archive: &Archive, writer: &mut Writer, entries: &[Entry]) {
        for segment in writer.append(&mut entries.to_vec()) {
            archive.held().observe(Arc::new(segment));
        }
    }

    fn slots(archive: &Archive) -> Vec<StoredSlot> {
        let held = archive.held();
        let slot = |(slot, copy): (&usize, &ObjectCopy)| StoredSlot {
            slot: *slot,
            version: String::new(),
            bytes: copy.content.bytes.clone(),
        };
        held.slots.iter().map(slot).collect()
    }

    async fn names(objects: &InMemory) -> Vec<String> {
        let mut names: Vec<String> =
            objects.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap();
        names.sort();
        names
    }

    async fn messages(objects: &InMemory) -> Vec<String> {
        let mut segments = Vec::new();
        for name in segments_between(names(objects).await, 0, i64::MAX) {
            let bytes = objects.get(&Path::from(name.as_str())).await.unwrap().bytes().await.unwrap();
            segments.push((name, bytes.to_vec()));
        }
        let record = Record::read(segments.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
        assert!(record.damaged.is_empty());
        record.entries.iter().map(|entry| entry.message.split(' ').next().unwrap().to_owned()).collect()
    }

    #[tokio::test]
    async fn every_segment_is_copied_and_outlives_its_slot() {
        let objects = Arc::new(InMemory::new());
        let archive = archive(&objects, 0);
        let (mut writer, _) = Writer::resume([], bounds());
        for n in 0..200 {
            write(&archive, &mut writer, &[entry(n, &n.to_string())]);
            archive.copy(|| true).await.unwrap();
        }
        let all: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        assert_eq!(messages(&objects).await, all, "the ring holds sixteen segments");
        assert!(names(&objects).await.len() > 16);
        assert_eq!(archive.counts(), ArchiveCounts { waiting: 0, lost: 0, last_copy: SECOND + 199 });
    }

    #[tokio::test]
    async fn an_object_store_that_was_away_gets_what_the_slots_and_the_queue_hold() {
        let objects = Arc::new(InMemory::new());
        let archive = archive(&objects, 0);
        let (mut writer, _) = Writer::resume([], bounds());
        let mut overwritten = 0;
        for n in 0.. {
            write(&archive, &mut writer, &[entry(n, &n.to_string())]);
            overwritten = archive.held().overwritten.len();
            if archive.counts().lost == 2 {
                break;
            }
        }
        assert_eq!(overwritten, MOST_OVERWRITTEN);
        assert_eq!(archive.counts().waiting, MOST_OVERWRITTEN + croft_record::writer::SLOTS);
        archive.copy(|| true).await.unwrap();
        assert_eq!(archive.counts(), ArchiveCounts { waiting: 0, lost: 2, last_copy: SECOND });
        assert_eq!(names(&objects).await.len(), MOST_OVERWRITTEN + croft_record::writer::SLOTS);
    }

    #[tokio::test]
    async fn a_new_leader_continues_beside_what_the_former_one_wrote() {
        let objects = Arc::new(InMemory::new());
        let first = archive(&objects, 0);
        let (mut writer, _) = Writer::resume([], Bounds::default());
        write(&first, &mut writer, &[entry(1, "one"), entry(2, "two")]);
        first.copy(|| true).await.unwrap();
        let held = slots(&first);

        // It wrote an entry that its archive didn't get. Another one leads, and the first doesn't know it yet.
        let second = archive(&objects, 60);
        second.observe_read(&held);
        let (mut writer, _) =
            Writer::resume(held.iter().map(|slot| slot.bytes.as_slice()), Bounds::default());
        write(&second, &mut writer, &[entry(60, "three")]);
        second.copy(|| true).await.unwrap();
        first.copy(|| true).await.unwrap();
        assert_eq!(messages(&objects).await, ["one", "two", "three"]);
        let begun = names(&objects).await;
        assert_eq!(begun.len(), 2, "each leader's own: {begun:?}");

        // A read of its own after a failed write changes no name.
        second.observe_read(&slots(&second));
        write(&second, &mut writer, &[entry(61, "four")]);
        second.copy(|| true).await.unwrap();
        assert_eq!(names(&objects).await, begun);

        // A backup from before is restored: what was written since stays readable beside what comes now.
        second.observe_read(&held);
        let (mut writer, _) =
            Writer::resume(held.iter().map(|slot| slot.bytes.as_slice()), Bounds::default());
        write(&second, &mut writer, &[entry(90, "five")]);
        second.copy(|| true).await.unwrap();
        assert_eq!(messages(&objects).await, ["one", "two", "three", "five", "four"], "by number, then time");
    }

    #[tokio::test]
    async fn a_process_that_no_longer_leads_copies_only_what_no_slot_has() {
        let objects = Arc::new(InMemory::new());
        let archive = archive(&objects, 0);
        let (mut writer, _) = Writer::resume([], bounds());
        for n in 0.. {
            write(&archive, &mut writer, &[entry(n, &n.to_string())]);
            if !archive.held().overwritten.is_empty() {
                break;
            }
        }
        archive.copy(|| false).await.unwrap();
        assert_eq!(names(&objects).await.len(), 1);
        assert_eq!(archive.counts(), ArchiveCounts::default());
    }
}
