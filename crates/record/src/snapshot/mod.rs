//! Snapshots of the cluster's state: which objects there were at a time, as far as they decide a place or a cost.
//!
//! ```text
//!   objects ──fields──▶ Mirror ──every ten minutes──▶ SnapshotWriter ──SegmentWrite──▶ store: a ring of 8 slots
//!                                                                                        │
//!   croft simulate --at ◀──────────────────── objects at a time ◀────────read────────────┘
//! ```
//!
//! A segment is a gzip file of JSON lines. Its first snapshot and the first of each hour have every object, the others what has
//! changed since the one before.
//!
//! | module | owns |
//! |---|---|
//! | `fields` | which fields of each kind are kept: none that may hold a secret |
//! | `split` | the part of an object that others of its kind share |
//! | `mirror` | the objects that exist, in memory |
//! | `writer` | snapshots as lines, rotation, sizes |
//! | `read` | the objects at a time |

pub mod fields;
pub mod mirror;
pub mod read;
mod split;
pub mod writer;

use serde::{Deserialize, Serialize};

/// The format of the lines.
const FORMAT: u32 = 1;

/// The first line of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    /// The format of the lines.
    snapshots: u32,
    /// The number of the segment; numbers grow.
    segment: u64,
}

/// The first line of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begin {
    /// Its time, in milliseconds since 1970.
    at: i64,
    /// True if it has every object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    whole: bool,
}

/// The last line of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct End {
    /// The number of objects that exist then.
    objects: usize,
}

/// Part of a snapshot: an object, one that is gone (`k` alone), or what objects share (`t` and `v`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Part {
    /// Kind, namespace and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    k: Option<String>,
    /// The number of the shared part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    t: Option<u32>,
    /// The fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<serde_json::Value>,
}

/// A line of a snapshot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Line {
    Begin(Begin),
    End(End),
    Part(Part),
}
