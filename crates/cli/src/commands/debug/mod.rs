//! `croft debug dump`: a snapshot of the cluster that `croft simulate -f` replays, without secrets.
//!
//! [`croft_record::snapshot::fields`] says which fields of each kind are written, `objects` turns what was read into documents, and `records` reads what
//! helps a reader of the snapshot and what `simulate` skips: versions, the leader, Leases, events, metrics.

mod command;
mod objects;
mod records;

pub(crate) use command::{DebugArgs, run};
