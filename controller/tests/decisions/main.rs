//! Decision tables: what is, and what is to be done about it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod backoff;
mod bench;
mod claims;
mod destructive;
mod evictions;
mod evidence;
mod figures;
mod gone;
mod initialization;
mod interruption;
mod kubernetes;
mod limits;
mod panics;
mod pools;
mod record;
mod replay;
mod reserved;
mod standing;
mod unread;
mod volumes;
