//! Installations: the Helm charts and the manifests, the permissions that they grant, and the days on which they are applied
//! again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod chart;
mod day2;
mod least_privilege;
mod manifests;
