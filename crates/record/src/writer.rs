//! Appends entries to a ring of segments.

use crate::{
    entry::Entry,
    segment::{self, FORMAT, Header},
};

/// Slots of the ring.
pub const SLOTS: usize = 16;
/// Sizes of segments. A segment must have room for one member, and a member for one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The largest segment, in bytes.
    pub segment_bytes: usize,
    /// A member of this much text is closed: a write compresses at most as much again.
    pub member_text_bytes: usize,
}

impl Default for Bounds {
    /// Base64 makes a segment a third larger, and an object of Kubernetes may have a megabyte.
    fn default() -> Self {
        Self { segment_bytes: 256 * 1024, member_text_bytes: 64 * 1024 }
    }
}

/// The new content of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentWrite {
    /// The slot.
    pub slot: usize,
    /// Its whole content.
    pub bytes: Vec<u8>,
}

/// Appends to the newest segment, and begins the next one when that is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    bounds: Bounds,
    number: u64,
    next_sequence: u64,
    /// The closed members.
    closed: Vec<u8>,
    /// The text of the open member.
    open: Vec<u8>,
    /// How much of the open member's text earlier appends have returned.
    returned: usize,
}

impl Writer {
    /// Continues what slots hold: appends to the newest segment if it is intact, else begins the next. The second result is the
    /// last sequence number there; 0 in an empty ring.
    pub fn resume<'a>(slots: impl IntoIterator<Item = &'a [u8]>, bounds: Bounds) -> (Self, u64) {
        let read = slots.into_iter().map(|bytes| (bytes, segment::decode(bytes)));
        let mut last = 0;
        let mut newest: Option<(&[u8], u64, bool)> = None;
        for (bytes, decoded) in read {
            last = decoded.entries.iter().map(|entry| entry.sequence).fold(last, u64::max);
            let Some(number) = decoded.number else { continue };
            if newest.is_none_or(|(_, known, _)| known < number) {
                newest = Some((bytes, number, decoded.intact));
            }
        }
        let next_sequence = last.saturating_add(1);
        let writer = match newest {
            Some((bytes, number, true)) => {
                Self { bounds, number, next_sequence, closed: bytes.to_vec(), open: Vec::new(), returned: 0 }
            }
            Some((_, number, false)) => Self::at(bounds, number.saturating_add(1), next_sequence),
            None => Self::at(bounds, 0, next_sequence),
        };
        (writer, last)
    }

    fn at(bounds: Bounds, number: u64, next_sequence: u64) -> Self {
        let header = segment::line(&Header { record: FORMAT, segment: number });
        Self {
            bounds,
            number,
            next_sequence,
            closed: segment::member(&header),
            open: Vec::new(),
            returned: 0,
        }
    }

    /// Numbers `entries` and appends them. Returns the slots to write, in this order; an earlier append's entries stay in the
    /// slot that it returned, so that a crash between two writes loses none of them.
    pub fn append(&mut self, entries: &mut [Entry]) -> Vec<SegmentWrite> {
        let mut writes = Vec::new();
        for entry in entries {
            entry.sequence = self.next_sequence;
            self.next_sequence = self.next_sequence.saturating_add(1);
            self.open.extend(segment::line(&entry.clone().bounded()));
            if self.open.len() >= self.bounds.member_text_bytes {
                let member = self.close(&mut writes);
                self.closed.extend(member);
                self.open.clear();
                self.returned = 0;
            }
        }
        let member = self.close(&mut writes);
        let bytes = [self.closed.as_slice(), &member].concat();
        self.returned = self.open.len();
        writes.push(SegmentWrite { slot: self.slot(), bytes });
        writes
    }

    /// The open member, after the next segment was begun if this one has no room for it.
    fn close(&mut self, writes: &mut Vec<SegmentWrite>) -> Vec<u8> {
        if self.open.is_empty() {
            return Vec::new();
        }
        let member = segment::member(&self.open);
        if self.closed.len().saturating_add(member.len()) <= self.bounds.segment_bytes {
            return member;
        }
        let fresh = self.open.split_off(self.returned.min(self.open.len()));
        let mut bytes = std::mem::take(&mut self.closed);
        if !self.open.is_empty() {
            // It had room before.
            bytes.extend(segment::member(&self.open));
        }
        writes.push(SegmentWrite { slot: self.slot(), bytes });
        let next = Self::at(self.bounds, self.number.saturating_add(1), self.next_sequence);
        *self = Self { open: fresh, ..next };
        segment::member(&self.open)
    }

    /// The slot of the segment that is written.
    fn slot(&self) -> usize {
        usize::try_from(self.number % SLOTS as u64).unwrap_or(0)
    }
}
