//! The state of the process: objects and log from watches, and the model that is built from them.
//!
//! ```text
//!  watch ──trim──▶ store: Cluster, Log ──build (at most a tenth of a processor)──▶ Model, Change
//! ```

pub mod build;
pub mod store;
pub mod watch;
