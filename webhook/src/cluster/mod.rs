//! The webhook's view of the cluster: five watches, one index, one writer.
//!
//! ```text
//!  Tenant ─┐
//!  Pool    │   lists, then changes     ┌─────────────┐  snapshot   ┌───────┐
//!  Config  ├─────────────────────────▶ │ IndexWriter │ ──────────▶ │ State │ ◀── reviews
//!  Namespace (metadata)                └─────────────┘  once all   └───────┘
//!  Node   ─┘                                            are listed
//! ```

pub(crate) mod change;
pub(crate) mod index_writer;
pub(crate) mod invalid_objects;
pub mod state;
pub(crate) mod views;
pub mod watch;
