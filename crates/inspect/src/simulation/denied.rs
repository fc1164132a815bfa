//! Pods that admission refuses.

use croft_scheduler::PodKey;

/// Pods refused for the same reason.
#[derive(Clone, Debug)]
pub struct Denied {
    /// The pods.
    pub pods: Vec<PodKey>,
    /// The message of the denial.
    pub refusal: String,
}

/// The reason of refused pods, beside those of [`croft_scheduler::ReasonKind`].
pub const DENIED: &str = "Denied";
