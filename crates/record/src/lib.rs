//! Croft's decision log: what the controller decided, when, and why; its ledger, and snapshots of the cluster. No I/O and no clock.
//!
//! ```text
//!   controller ──Entry──▶ Writer ──SegmentWrite──▶ store: a ring of 16 slots
//!                                                        │
//!   croft explain --at, croft history ◀──query── Record ◀┘
//! ```
//!
//! A segment is a gzip file of JSON lines, so `zcat` reads it. A [`writer::Writer`] appends to the newest segment and overwrites
//! the oldest once the ring is full: the log is as long as its size allows. [`record::Record`] reads whatever a store holds,
//! damaged segments included, and `query` answers for one node, pod or tenant.
//!
//! | module | owns |
//! |---|---|
//! | `payer` | who pays for what of a node: tenant, namespace, workload and purpose, with requests |
//! | `entry` | one decision: kind, object, reason, message, and the figures of a plan |
//! | `segment` | entries as bytes and back |
//! | `writer` | sequence numbers, rotation, the size of the log |
//! | `record` | the entries of a store in order |
//! | `ledger` | who paid what for which node: exact amounts by hour and account; the hours and days that are closed |
//! | `archive` | names of segments and closed hours in an object store |
//! | `slots` | names of the objects that hold slots |
//! | `decision` | entries that belong together: nodes launched or removed, pods left pending |
//! | `query` | the entries about a node, a pod or a tenant, and the state at a time |
//! | `snapshot` | which objects there were at a time: fields, differences, encoding |

pub mod archive;
pub mod decision;
pub mod entry;
pub mod ledger;
pub mod payer;
pub mod query;
pub mod record;
mod segment;
pub mod slots;
pub mod snapshot;
pub mod writer;

/// The key of a segment in the object that holds it.
pub const SEGMENT_KEY: &str = "segment.jsonl.gz";
/// The label of those objects, with the value `record`.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The value of [`COMPONENT_LABEL`].
pub const COMPONENT: &str = "record";
/// The annotation of the CroftConfig whose change asks for a snapshot at once.
pub const SNAPSHOT_REQUESTED: &str = "croft.dev/snapshot-requested";
