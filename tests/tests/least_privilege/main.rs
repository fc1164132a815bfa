//! Permissions of Croft's own identities: what a stolen token is denied, and that every granted verb is used.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod stolen;
mod verbs;
