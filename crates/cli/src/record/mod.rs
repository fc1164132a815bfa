//! The decision log: where it is read from, times in arguments and output, and tables of entries; and the snapshots beside it.

#[cfg(feature = "aws")]
mod archive;
mod decisions;
mod show;
mod snapshots;
mod source;
mod time;

pub(crate) use decisions::write_decisions;
pub(crate) use show::{dollars, write_entries};
pub(crate) use snapshots::{SNAPSHOT_IS_OLD, SnapshotArgs};
pub(crate) use source::RecordArgs;
pub(crate) use time::{Period, parse_moment, text};
