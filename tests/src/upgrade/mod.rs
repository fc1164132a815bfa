//! A cluster as an earlier version of Croft left it, and what may not change when a later one takes over.
//!
//! ```text
//!   scene ──earlier version──▶ etcd, journal of ec2-sim ──Recorded──▶ tests/fixtures/releases/<version>
//!                                                                          │
//!                 later version ◀── etcd, ec2-sim with that journal ◀──────┘
//! ```
//!
//! `make record-release` writes the folder of the present version; it is written once for each release, and never again.
//! `tests/tests/upgrade.rs` starts the present version on every recorded one. `make upgrade-test` builds an earlier commit
//! and upgrades from that instead.

#![expect(
    clippy::indexing_slicing,
    reason = "objects of the scene itself, whose missing fields read as null"
)]

mod observed;
mod recorded;
mod scene;

pub use observed::{Observed, readmitted};
pub use recorded::Recorded;
pub use scene::{IN_FLIGHT_POOL, POOLS, make_scene, scale};
