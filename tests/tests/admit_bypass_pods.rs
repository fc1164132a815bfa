//! Bypass attempts with the permissions of a namespace's admin, by pods, bindings and their subresources, on the real
//! API server with scheduler, controllers and kubelets. `CROFT_MUTATION` chooses the mode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "bypass/pods.rs"]
mod pods;

use croft_testkit::Options;
use croft_tests::arena::marked_arena;

#[tokio::test]
async fn no_pod_of_a_namespace_admin_is_misplaced() {
    let (plane, _croft) = marked_arena(Options::default()).await.unwrap();
    pods::attack(&plane).await;
}
