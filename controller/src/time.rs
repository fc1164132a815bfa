//! The time that deciders are given.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// One moment on both clocks. Times written into the API use `wall`, waits use `mono`, so that a stepped wall clock
/// shortens no grace period that began in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall clock.
    pub wall: Timestamp,
    /// Monotonic clock, since some moment before the process started.
    pub mono: Duration,
}

impl Now {
    /// Time since `then` on the wall clock; zero for a time in the future.
    #[must_use]
    pub fn since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.wall.duration_since(then)).unwrap_or(Duration::ZERO)
    }

    /// The wall clock `after` from now.
    #[must_use]
    pub fn wall_in(&self, after: Duration) -> Timestamp {
        SignedDuration::try_from(after)
            .ok()
            .and_then(|d| self.wall.checked_add(d).ok())
            .unwrap_or(Timestamp::MAX)
    }
}

/// The earlier of two times.
#[must_use]
pub fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
