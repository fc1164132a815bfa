//! The entries that a store holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    entry::Entry,
    segment::{self, FORMAT, Header},
};

/// Every entry that could be read, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The entries, by sequence number.
    pub entries: Vec<Entry>,
    /// Names of the segments that are damaged: what follows the damage is missing.
    pub damaged: Vec<String>,
}

/// Entries of a log, as the page gives them to a command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// Since when the log has entries.
    pub begins: Option<i64>,
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Record {
    /// Reads segments, each with the name of the object that holds it.
    pub fn read<'a>(segments: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        // A log that was restored from a backup numbers on from there: its entries stand beside those that were written before.
        let mut entries: BTreeMap<(u64, i64), Entry> = BTreeMap::new();
        let mut damaged = Vec::new();
        for (name, bytes) in segments.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let decoded = segment::decode(bytes);
            if !decoded.intact {
                damaged.push(name.to_owned());
            }
            entries.extend(decoded.entries.into_iter().map(|entry| ((entry.sequence, entry.at), entry)));
        }
        Self { entries: entries.into_values().collect(), damaged }
    }

    /// One segment with all entries: a file that [`Self::read`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = segment::line(&Header { record: FORMAT, segment: 0 });
        for entry in &self.entries {
            text.extend(segment::line(entry));
        }
        segment::member(&text)
    }

    /// The time of the first entry, in milliseconds since 1970.
    #[must_use]
    pub fn begins(&self) -> Option<i64> {
        self.entries.iter().map(|entry| entry.at).min()
    }
}
