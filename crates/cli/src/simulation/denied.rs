//! Pods that admission refuses.

use croft_scheduler::PodKey;

/// Pods refused for the same reason.
#[derive(Clone, Debug)]
pub(crate) struct Denied {
    /// The pods.
    pub(crate) pods: Vec<PodKey>,
    /// The message of the denial.
    pub(crate) refusal: String,
}

/// The reason of refused pods, beside those of [`croft_scheduler::ReasonKind`].
pub(crate) const DENIED: &str = "Denied";
