//! docs/quick-start.md, docs/tasks, tools/make/eks-smoke.sh and manifests/aws, as far as they can run here.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod account;
mod cloudformation;
mod eks_smoke;
mod page;
mod tasks;
