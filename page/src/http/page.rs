//! The parts that the handlers share.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use croft_runtime::{clock::Clock, health::Gate, shutdown::Shutdown};
use tokio::{sync::Semaphore, time::timeout};

use super::error::ApiError;
use crate::{access::Reviewer, args::BoundArgs, metrics::Metrics, model::facts::Model, state::store::State};

/// How long a computation may wait for its turn.
const TURN: Duration = Duration::from_secs(5);

/// The parts that the handlers share.
pub struct Page {
    /// Objects, log and model.
    pub state: Arc<State>,
    /// Tokens to scopes.
    pub reviewer: Reviewer,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Bounds of requests.
    pub bounds: BoundArgs,
    /// Open once there is a model.
    pub built: Gate,
    /// Begins when the process is asked to stop: streams end.
    pub stop: Shutdown,
    /// Counters, of requests in flight and open streams among them.
    pub metrics: Arc<Metrics>,
    /// One simulation or long sum at a time.
    computing: Semaphore,
}

impl Page {
    /// Handlers for `state`.
    #[must_use]
    pub fn new(
        state: Arc<State>,
        reviewer: Reviewer,
        clock: Arc<dyn Clock>,
        bounds: BoundArgs,
        built: Gate,
        stop: Shutdown,
    ) -> Arc<Self> {
        let (metrics, computing) = (state.metrics().clone(), Semaphore::new(1));
        Arc::new(Self { state, reviewer, clock, bounds, built, stop, metrics, computing })
    }

    /// The newest model.
    ///
    /// # Errors
    /// [`ApiError::Starting`] before the first.
    pub fn model(&self) -> Result<Arc<Model>, ApiError> {
        if self.built.is_open() { Ok(self.state.model()) } else { Err(ApiError::Starting) }
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> i64 {
        self.clock.wall().as_millisecond()
    }

    /// Runs `work` beside the server, one at a time.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if its turn doesn't come, [`ApiError::Failed`] if it panics.
    pub async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = timeout(TURN, self.computing.acquire()).await;
        let (Ok(Ok(_turn)),) = (turn,) else { return Err(ApiError::Busy) };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a computation failed");
            ApiError::Failed
        })
    }

    /// Counts a stream of events.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if there are too many.
    pub fn open_stream(self: &Arc<Self>) -> Result<OpenStream, ApiError> {
        let open = OpenStream(self.clone());
        if self.metrics.streams.fetch_add(1, Ordering::AcqRel) < self.bounds.max_streams {
            Ok(open)
        } else {
            Err(ApiError::Busy)
        }
    }
}

/// A stream that is open; counted until it is dropped.
pub struct OpenStream(Arc<Page>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.metrics.streams.fetch_sub(1, Ordering::AcqRel);
    }
}
