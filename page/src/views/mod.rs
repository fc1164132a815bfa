//! The views: what the page shows, as data, for one scope. Pure.
//!
//! ```text
//!  Model, Log ──▶ overview, map, tenant, pool, node, pod, entries, bill, curves, past
//!  Cluster, manifest ──▶ what_if
//! ```
//!
//! Money is in millionths of a dollar per hour (prices) or of a dollar (bills), times are milliseconds since 1970, CPU is in
//! thousandths, memory in bytes.

pub mod bill;
pub mod curves;
pub mod entries;
pub mod map;
pub mod node;
pub mod overview;
pub mod past;
pub mod pod;
pub mod pool;
pub mod tenant;
pub mod what_if;
