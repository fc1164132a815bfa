//! The provider against the simulated EC2, with the real SDK on the wire.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod discovery;
mod ending;
mod launching;
mod rights;
