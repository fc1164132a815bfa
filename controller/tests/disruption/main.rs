//! Disruption, decided by the real engine on pictures that a test makes up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod breaker;
mod edits;
mod evidence;
mod pauses;
mod shares;
mod steps;
mod swings;
mod templates;
mod world;
mod zones;
