//! Snapshots as lines, in a ring of segments.

use std::collections::HashMap;

use super::{
    Begin, End, FORMAT, Header, Part,
    mirror::{Held, Mirror},
    read,
};
use crate::{
    ledger::{book::hour_of, closed::LEDGER_SLOTS},
    segment::{line, member},
    writer::{SLOTS, SegmentWrite},
};

/// Slots of snapshots, which follow those of log and ledger.
pub const SNAPSHOT_SLOTS: usize = 8;
/// The first of them.
pub const FIRST_SLOT: usize = SLOTS + LEDGER_SLOTS;
/// The largest segment, in bytes: base64 makes it a third larger, and an object of Kubernetes may have a megabyte.
pub const SEGMENT_BYTES: usize = 700 * 1024;

/// True for the slots of snapshots.
#[must_use]
pub const fn is_snapshot_slot(slot: usize) -> bool {
    slot >= FIRST_SLOT && slot < FIRST_SLOT + SNAPSHOT_SLOTS
}

/// A snapshot is larger than a segment may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// Its bytes.
    pub bytes: usize,
    /// The largest segment.
    pub most: usize,
}

/// Appends snapshots to the newest segment, and begins the next one when that is full.
#[derive(Clone, Debug)]
pub struct SnapshotWriter {
    most: usize,
    number: u64,
    bytes: Vec<u8>,
    /// The hour of the last snapshot with every object; none before this writer's first.
    whole: Option<i64>,
    /// Numbers of the shared parts since then.
    shared: HashMap<Box<str>, u32>,
}

impl SnapshotWriter {
    /// Continues what slots hold: appends to the newest segment if it is intact, else begins the next. The first snapshot has every object.
    pub fn resume<'a>(slots: impl IntoIterator<Item = &'a [u8]>, most: usize) -> Self {
        let numbered = slots.into_iter().filter_map(|bytes| Some((read::number(bytes)?, bytes)));
        let Some((number, bytes)) = numbered.max_by_key(|(number, _)| *number) else {
            return Self::begin(0, most);
        };
        if read::scan(bytes).is_some_and(|scan| scan.intact) {
            Self::new(number, bytes.to_vec(), most)
        } else {
            Self::begin(number.saturating_add(1), most)
        }
    }

    /// True before the first snapshot, which has every object.
    #[must_use]
    pub const fn is_fresh(&self) -> bool {
        self.whole.is_none()
    }

    fn begin(number: u64, most: usize) -> Self {
        Self::new(number, member(&line(&Header { snapshots: FORMAT, segment: number })), most)
    }

    fn new(number: u64, bytes: Vec<u8>, most: usize) -> Self {
        Self { most, number, bytes, whole: None, shared: HashMap::new() }
    }

    /// Appends a snapshot of `mirror` at `at`, in milliseconds since 1970. Returns the slot to write.
    ///
    /// # Errors
    /// If a snapshot of every object has no room in an empty segment. Then nothing was appended.
    pub fn append(&mut self, mirror: &mut Mirror, at: i64) -> Result<SegmentWrite, TooLarge> {
        let is_whole = self.whole != Some(hour_of(at));
        let added = self.encode(mirror, at, is_whole);
        if self.bytes.len().saturating_add(added.len()) <= self.most {
            self.bytes.extend(added);
        } else {
            let mut next = Self::begin(self.number.saturating_add(1), self.most);
            let added = next.encode(mirror, at, true);
            let bytes = next.bytes.len().saturating_add(added.len());
            if bytes > self.most {
                // The objects that were numbered aren't in the segment.
                self.whole = None;
                return Err(TooLarge { bytes, most: self.most });
            }
            next.bytes.extend(added);
            *self = next;
        }
        mirror.mark_unchanged();
        let slot = usize::try_from(self.number % SNAPSHOT_SLOTS as u64).unwrap_or(0);
        Ok(SegmentWrite { slot: FIRST_SLOT + slot, bytes: self.bytes.clone() })
    }

    fn encode(&mut self, mirror: &Mirror, at: i64, is_whole: bool) -> Vec<u8> {
        let mut text = line(&Begin { at, whole: is_whole });
        if is_whole {
            self.whole = Some(hour_of(at));
            self.shared.clear();
            mirror.all().for_each(|(key, held)| self.object(&mut text, key, held));
        } else {
            mirror.changed().for_each(|(key, held)| self.object(&mut text, key, held));
        }
        text.extend(line(&End { objects: mirror.len() }));
        member(&text)
    }

    fn object(&mut self, text: &mut Vec<u8>, key: &str, held: Option<&Held>) {
        let quoted = serde_json::Value::from(key);
        let Some(Held { shared, own, .. }) = held else {
            text.extend(line(&Part { k: Some(key.to_owned()), t: None, v: None }));
            return;
        };
        let number = match self.shared.get(&**shared) {
            Some(known) => *known,
            None => {
                let next = u32::try_from(self.shared.len()).unwrap_or(u32::MAX);
                text.extend(format!("{{\"t\":{next},\"v\":{shared}}}\n").into_bytes());
                self.shared.insert((&**shared).into(), next);
                next
            }
        };
        text.extend(format!("{{\"k\":{quoted},\"t\":{number},\"v\":{own}}}\n").into_bytes());
    }
}
