//! Shutdown: a request to stop, passed to every part of the process.

use std::{future::Future, io};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that a second signal ended before it was finished: 128 + SIGTERM, as in shells.
const IMPATIENT_EXIT_CODE: i32 = 143;

/// A request to stop that every part of the process can wait for.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// A shutdown that only [`Shutdown::begin`] begins.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A shutdown that SIGTERM or SIGINT begins. A second signal ends the process at once.
    ///
    /// # Errors
    /// If the handlers can't be installed. Must be called inside a tokio runtime.
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

    /// Begins the shutdown.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// True once the shutdown has begun.
    #[must_use]
    pub fn begun(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns once the shutdown has begun.
    pub fn wait(&self) -> impl Future<Output = ()> + Send + 'static {
        self.0.clone().cancelled_owned()
    }

    /// A shutdown that can begin alone, and begins with this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
