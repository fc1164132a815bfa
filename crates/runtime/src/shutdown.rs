//! Being asked to stop, and passing it on.

use std::{future::Future, io};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that a second signal ended before it was done: 128 + SIGTERM, as shells count.
const IMPATIENT_EXIT_CODE: i32 = 143;

/// A wish to stop that everything in the process can hear.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// One that only [`Shutdown::begin`] begins.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM or SIGINT begins. A second signal ends the process at once: whoever sends it has
    /// waited long enough.
    ///
    /// # Errors
    /// When the handlers can't be installed. Must be called inside a tokio runtime.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let begun = shutdown.clone();
        tokio::spawn(async move {
            for first in [true, false] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if first {
                    tracing::info!("asked to stop");
                    begun.begin();
                }
            }
            std::process::exit(IMPATIENT_EXIT_CODE);
        });
        Ok(shutdown)
    }

    /// Asks everything to stop.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// True once asked.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns when asked.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.clone().cancelled_owned()
    }

    /// A part that can be stopped alone, and stops with the whole.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
