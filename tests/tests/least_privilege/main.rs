//! What Croft's own identities may do: what a stolen token is refused, and that no granted verb is unused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod stolen;
mod verbs;
