//! The page against a real API server, with the identity that the manifests give it: what each reader gets by the API, what the
//! identity may do, and the page in Chromium; there also with many nodes, without an API server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod browser;
mod endpoints;
mod identity;
mod many;
mod readers;
mod world;
