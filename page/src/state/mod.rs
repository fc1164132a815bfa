//! The state of the process: objects and log from watches, and the models that are built from them.
//!
//! ```text
//!  watch ──trim──▶ store: Cluster, Log ──build (at most a tenth of a processor)──▶ Model, Change
//!  metrics API ──usage──▶ Cluster  └──past (when a reader asks for a time)───────▶ Model of a snapshot
//! ```

pub mod build;
pub mod past;
pub mod sampled;
pub mod store;
pub mod usage;
pub mod watch;
