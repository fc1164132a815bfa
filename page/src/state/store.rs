//! The state of the page: objects by kind, the log, and the model that views read.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, broadcast};

use super::{past::PastModels, sampled::SampledTimes};
use crate::{
    cluster::{log::Log, objects::Cluster},
    metrics::Metrics,
    model::{change::Change, facts::Model},
};

/// Changes that a stream may be behind before it has to read everything again.
const CHANGES_KEPT: usize = 64;

/// The state of the process.
pub struct State {
    name: String,
    cluster: RwLock<Cluster>,
    log: RwLock<Log>,
    model: ArcSwap<Model>,
    past_models: PastModels,
    sampled_times: SampledTimes,
    changes: broadcast::Sender<Arc<Change>>,
    dirty: Notify,
    metrics: Arc<Metrics>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            name: String::new(),
            cluster: RwLock::default(),
            log: RwLock::default(),
            model: ArcSwap::default(),
            past_models: PastModels::default(),
            sampled_times: SampledTimes::default(),
            changes: broadcast::Sender::new(CHANGES_KEPT),
            dirty: Notify::new(),
            metrics: Arc::default(),
        }
    }
}

impl State {
    /// The state of a cluster of this name.
    #[must_use]
    pub fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    /// The name of the cluster; empty if it isn't known.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The objects.
    pub fn cluster(&self) -> RwLockReadGuard<'_, Cluster> {
        self.cluster.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the objects; a build follows.
    pub fn change(&self, change: impl FnOnce(&mut Cluster)) {
        let mut cluster: RwLockWriteGuard<'_, Cluster> =
            self.cluster.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut cluster);
        self.dirty.notify_one();
    }

    /// The decision log.
    pub fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the log; a build follows.
    pub fn change_log(&self, change: impl FnOnce(&mut Log)) {
        change(&mut self.log.write().unwrap_or_else(PoisonError::into_inner));
        self.dirty.notify_one();
    }

    /// The newest model. Takes no lock.
    #[must_use]
    pub fn model(&self) -> Arc<Model> {
        self.model.load_full()
    }

    /// The models of earlier times that were asked for last.
    #[must_use]
    pub const fn past_models(&self) -> &PastModels {
        &self.past_models
    }

    /// The points of curves that were read in the last minute.
    #[must_use]
    pub const fn sampled_times(&self) -> &SampledTimes {
        &self.sampled_times
    }

    /// Publishes a model, and how it differs from the last one.
    pub fn publish(&self, model: Model, change: Change) {
        self.model.store(Arc::new(model));
        // Without a stream there is no receiver.
        let _ = self.changes.send(Arc::new(change));
    }

    /// The counters of the process.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The changes from now on.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Arc<Change>> {
        self.changes.subscribe()
    }

    /// Returns once something has changed since the last call.
    pub async fn changed(&self) {
        self.dirty.notified().await;
    }
}
