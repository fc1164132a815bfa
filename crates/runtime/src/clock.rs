//! The only place that reads a clock.

use std::time::Instant;

use jiff::Timestamp;

/// Where time comes from. Everything below an executor takes the readings as arguments.
pub trait Clock: Send + Sync + 'static {
    /// For intervals and deadlines: never goes back, means nothing outside the process.
    fn monotonic(&self) -> Instant;
    /// For what people and other processes read.
    fn wall(&self) -> Timestamp;
}

/// The machine's clocks.
///
/// The monotonic one is tokio's, so that code under a paused tokio clock sees the virtual time that its own
/// sleeps pass.
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
