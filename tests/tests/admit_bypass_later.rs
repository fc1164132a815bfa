//! Another mutating webhook that runs after Croft's and reverts its changes: Croft's second call repairs them, and what
//! is reverted again is denied by the policies. `CROFT_MUTATION` chooses the mode.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "bypass/later.rs"]
mod later;

use croft_testkit::Options;
use croft_tests::arena::{marked_arena, mode};

#[tokio::test]
async fn changes_reverted_by_a_later_webhook_are_repeated_or_denied() {
    croft_runtime::process::install_crypto();
    let (plane, _croft) = marked_arena(Options::default()).await.unwrap();
    later::attack(&plane, mode().unwrap()).await;
}
