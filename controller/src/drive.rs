//! The loop that drives the engine: changes and reports in, actions out as tasks.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, Id, JoinSet},
};

use crate::{
    act::Executor,
    action::{Action, Key, Report, Rest},
    engine::{Engine, KINDS},
    metrics::Metrics,
    settings::Settings,
    snapshot::Change,
    time::Now,
};

/// Actions at once; more would only wait in the API server's queues.
const ACTIONS_AT_ONCE: usize = 128;
/// Changes taken in before the next round of decisions.
const CHANGES_AT_ONCE: usize = 2_048;
/// A round takes at most a third of the time, however much happens.
const ROUND_SHARE: u32 = 2;
/// How long actions under way may take to end when the process stops.
const FAREWELL: Duration = Duration::from_secs(5);
/// Between two looks whether this process leads now.
const STANDBY_PAUSE: Duration = Duration::from_millis(200);
const TAKE_OVER_RETRY: Duration = Duration::from_secs(1);

/// Drives one engine. `L` says whether this process leads.
pub struct Driver<L> {
    engine: Engine,
    executor: Executor,
    metrics: Metrics,
    shortest_pause: Duration,
    leads: L,
    tasks: JoinSet<Report>,
    held: BTreeMap<Id, (Vec<Key>, AbortHandle)>,
    slots: Arc<Semaphore>,
    led: bool,
}

impl<L: Fn() -> bool> Driver<L> {
    /// A driver of a new engine.
    #[must_use]
    pub fn new(settings: Settings, executor: Executor, metrics: Metrics, leads: L) -> Self {
        Self {
            shortest_pause: settings.shortest_pause,
            engine: Engine::new(settings),
            executor,
            metrics,
            leads,
            tasks: JoinSet::new(),
            held: BTreeMap::new(),
            slots: Arc::new(Semaphore::new(ACTIONS_AT_ONCE)),
            led: false,
        }
    }

    /// Drives until `stopping` ends. `synced` is told once the first lists are in.
    pub async fn drive(
        &mut self,
        mut changes: mpsc::Receiver<Change>,
        stopping: impl Future<Output = ()>,
        synced: impl Fn(bool),
    ) {
        tokio::pin!(stopping);
        let mut told_synced = false;
        let mut next: Option<Duration> = Some(Duration::ZERO);
        let mut not_before = Duration::ZERO;
        loop {
            let now = self.executor.now();
            let due = next.map(|at| at.max(not_before).saturating_sub(now.mono));
            tokio::select! {
                biased;
                () = &mut stopping => return,
                Some(ended) = self.tasks.join_next_with_id() => self.ended(ended),
                Some(change) = changes.recv() => {
                    let now = self.executor.now();
                    self.engine.observe(change, now);
                    for _ in 1..CHANGES_AT_ONCE {
                        let Ok(change) = changes.try_recv() else { break };
                        self.engine.observe(change, now);
                    }
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
                else => return,
            }
            while let Some(ended) = self.tasks.try_join_next_with_id() {
                self.ended(ended);
            }
            if !told_synced && self.engine.snapshot.is_synced(&KINDS) {
                told_synced = true;
                synced(true);
            }
            let now = self.executor.now();
            if !(self.leads)() {
                self.led = false;
                next = Some(now.mono + STANDBY_PAUSE);
                continue;
            }
            if now.mono < not_before {
                // Something has happened: decide as soon as the last round's pause is over.
                next = Some(not_before);
                continue;
            }
            if !self.led && !self.take_over(now).await {
                next = Some(self.executor.now().mono + TAKE_OVER_RETRY);
                continue;
            }
            next = self.round();
            let took = self.executor.now().mono.saturating_sub(now.mono);
            not_before = self.executor.now().mono + (took * ROUND_SHARE).max(self.shortest_pause);
        }
    }

    /// What the leader before wrote last may not have come by the watch yet, and a plan made without its last
    /// claims would launch them again.
    async fn take_over(&mut self, now: Now) -> bool {
        if !self.engine.snapshot.is_synced(&KINDS) {
            return false;
        }
        match self.executor.claims().await {
            Ok(claims) => {
                self.engine.claims_listed(claims, now);
                self.led = true;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "failed to take over, tried again");
                false
            }
        }
    }

    fn round(&mut self) -> Option<Duration> {
        let now = self.executor.now();
        let step = self.engine.step(now);
        for action in step.actions {
            self.start(action);
        }
        let took = self.executor.now().mono.saturating_sub(now.mono);
        self.metrics.stepped(&self.engine, took.as_secs_f64());
        step.wake
    }

    fn start(&mut self, action: Action) {
        self.metrics.action(action.name());
        let keys = action.keys();
        let executor = self.executor.clone();
        let slots = Arc::clone(&self.slots);
        let task = self.tasks.spawn(async move {
            let _slot = slots.acquire_owned().await;
            executor.run(action).await
        });
        self.held.insert(task.id(), (keys, task));
    }

    fn ended(&mut self, ended: Result<(Id, Report), tokio::task::JoinError>) {
        let now = self.executor.now();
        match ended {
            Ok((id, report)) => {
                self.held.remove(&id);
                self.engine.complete(report, now);
            }
            Err(error) => {
                tracing::error!(%error, "an action's task failed; it is decided anew");
                let keys = self.held.remove(&error.id()).map(|(keys, _)| keys).unwrap_or_default();
                self.engine.complete(Report { rest: Rest::Grow, ..Report::done(keys) }, now);
            }
        }
    }

    /// Lets actions under way end; waiting for news isn't worth waiting for.
    pub async fn farewell(&mut self) {
        for (_, task) in self.held.values().filter(|(keys, _)| keys.contains(&Key::News)) {
            task.abort();
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(FAREWELL, all).await.is_err() {
            tracing::info!("actions under way are left to the next leader");
        }
    }
}
