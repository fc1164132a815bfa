//! Bypass attempts by pod templates: every kind of controller, with the real kube-controller-manager creating the pods,
//! and the subresource scale. `CROFT_MUTATION` chooses the mode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "bypass/templates.rs"]
mod templates;

use croft_testkit::Options;
use croft_tests::arena::marked_arena;

#[tokio::test]
async fn no_pod_template_leads_to_a_misplaced_pod() {
    let (plane, _croft) = marked_arena(Options::default().requests_per_second(500)).await.unwrap();
    templates::attack(&plane).await;
}
