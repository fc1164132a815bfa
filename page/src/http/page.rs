//! The parts that the handlers share.

use std::{sync::Arc, time::Duration};

use croft_runtime::{clock::Clock, health::Gate, share::OwnedPermit, shutdown::Shutdown};
use tokio::{sync::Semaphore, time::timeout};

use super::error::ApiError;
use crate::{
    access::{Held, Reviewer},
    args::BoundArgs,
    metrics::Metrics,
    model::facts::Model,
    state::store::State,
};

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
    computing: Arc<Semaphore>,
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
        let (metrics, computing) = (state.metrics().clone(), Arc::new(Semaphore::new(1)));
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

    /// Runs `work` of a user beside the server, one at a time. Users take turns, however many each one waits for. The turn lasts
    /// as long as `work`, even if its request is gone.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if its turn doesn't come, [`ApiError::Failed`] if it panics.
    pub async fn compute<T: Send + 'static>(
        &self,
        user: &Held,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turns = timeout(TURN, async {
            let own = user.computing.clone().lock_owned().await;
            (self.computing.clone().acquire_owned().await, own)
        });
        let Ok((Ok(turn), own)) = turns.await else { return Err(ApiError::Busy) };
        let computed = tokio::task::spawn_blocking(move || {
            let _turns = (turn, own);
            work()
        });
        computed.await.map_err(|error| {
            tracing::error!(%error, "a computation failed");
            ApiError::Failed
        })
    }

    /// Counts a request of a user.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if the user has its share already.
    pub fn open_request(&self, user: &Arc<Held>) -> Result<OwnedPermit<Held>, ApiError> {
        // Users behind one address, as of an Ingress, share what that address gets: half of all at most.
        let most = self.bounds.max_inflight.div_ceil(2);
        self.metrics.read.take_owned(user, |held| &held.requests, most).ok_or(ApiError::Busy)
    }

    /// Counts a stream of events of a user.
    ///
    /// # Errors
    /// [`ApiError::Busy`] if the user has its share already.
    pub fn open_stream(&self, user: &Arc<Held>) -> Result<OwnedPermit<Held>, ApiError> {
        let most = self.bounds.max_streams;
        self.metrics.streams.take_owned(user, |held| &held.streams, most).ok_or(ApiError::Busy)
    }
}
