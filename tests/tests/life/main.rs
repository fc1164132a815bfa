//! Nodes on the lab, from a tenant's manifests to their end: launches, limits, interruptions, disruption, and the decision log
//! that explains them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod any_order;
mod bad_input;
mod disruption;
mod evidence;
mod karpenter_labels;
mod kinds_of_nodes;
mod per_tenant;
mod pools;
mod record;
mod templates;
mod two_tenants;
mod walkthroughs;
mod wallet;
