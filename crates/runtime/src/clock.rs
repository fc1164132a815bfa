//! The only place that reads a clock.

use std::time::Instant;

use jiff::Timestamp;

/// The source of time. Code below an executor takes readings as arguments.
pub trait Clock: Send + Sync + 'static {
    /// A time for intervals and deadlines: it never goes back, and means nothing outside the process.
    fn monotonic(&self) -> Instant;
    /// A time for people and other processes.
    fn wall(&self) -> Timestamp;
}

/// The clocks of the operating system.
///
/// The monotonic one is tokio's, so that code under a paused tokio clock sees the virtual time that its own sleeps
/// pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}
