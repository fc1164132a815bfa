//! Segments of snapshots, as their slots hold them.

use std::sync::OnceLock;

use croft_record::snapshot::read::{self, Moment};

/// A segment. Its bytes are kept compressed.
pub struct Segment {
    bytes: Vec<u8>,
    begins: i64,
    /// The times of its complete snapshots, once a reader has asked: the whole segment is decoded for them.
    times: OnceLock<Vec<i64>>,
}

impl Segment {
    /// The segment of a slot; none of an empty one.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let begins = read::begins(bytes)?;
        Some(Self { bytes: bytes.to_vec(), begins, times: OnceLock::new() })
    }

    /// The time of its first snapshot, in milliseconds since 1970.
    #[must_use]
    pub const fn begins(&self) -> i64 {
        self.begins
    }

    /// The time of its last complete snapshot up to `at`.
    #[must_use]
    pub fn last_until(&self, at: i64) -> Option<i64> {
        let times = self.times.get_or_init(|| read::times([self.bytes.as_slice()]));
        times.iter().rfind(|time| **time <= at).copied()
    }

    /// The snapshot of a time.
    #[must_use]
    pub fn moment(&self, at: i64) -> Option<Moment> {
        read::moment([self.bytes.as_slice()], at)
    }
}
