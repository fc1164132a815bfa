//! The loop that drives the engine: changes and reports in, actions out as tasks.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, Id, JoinSet},
};

use crate::{
    action::{Action, Key},
    config::settings::Settings,
    engine::Engine,
    executor::Executor,
    kube_api::Change,
    metrics::Metrics,
    result::{ActionReport, Backoff},
    solver::Solver,
    time::Now,
};

/// Concurrent actions; more would only wait in the API server's queues.
const CONCURRENT_ACTIONS: usize = 128;
/// Changes taken in before the next pass.
const CHANGES_PER_PASS: usize = 2_048;
/// A pass takes at most a third of the time, whatever the rate of changes.
const PAUSE_FACTOR: u32 = 2;
/// How long in-flight actions may take to end when the process stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two checks whether this process leads.
const STANDBY_PAUSE: Duration = Duration::from_millis(200);
const TAKE_OVER_RETRY: Duration = Duration::from_secs(1);

/// Drives one engine. `L` tells whether this process leads.
pub struct Driver<L> {
    engine: Engine,
    executor: Executor,
    metrics: Metrics,
    shortest_pause: Duration,
    leads: L,
    tasks: JoinSet<ActionReport>,
    in_flight: BTreeMap<Id, (Vec<Key>, AbortHandle)>,
    slots: Arc<Semaphore>,
    led: bool,
}

impl<L: Fn() -> bool> Driver<L> {
    /// A driver of a new engine.
    #[must_use]
    pub fn new(settings: Settings, executor: Executor, metrics: Metrics, leads: L) -> Self {
        let shortest_pause = settings.shortest_pause;
        let mut engine = Engine::new(settings);
        if let Some(identity) = executor.records_as() {
            engine.start_recording(identity);
        }
        Self {
            shortest_pause,
            engine,
            executor,
            metrics,
            leads,
            tasks: JoinSet::new(),
            in_flight: BTreeMap::new(),
            slots: Arc::new(Semaphore::new(CONCURRENT_ACTIONS)),
            led: false,
        }
    }

    /// The same driver, whose engine makes plans with `solver`.
    #[must_use]
    pub fn with_solver(mut self, solver: Solver) -> Self {
        self.engine.set_solver(solver);
        self
    }

    /// Drives until `stopping` ends. Calls `synced` once the first lists are complete.
    pub async fn drive(
        &mut self,
        mut changes: mpsc::Receiver<Change>,
        stopping: impl Future<Output = ()>,
        synced: impl Fn(bool),
    ) {
        tokio::pin!(stopping);
        let mut reported_synced = false;
        let mut next: Option<Duration> = Some(Duration::ZERO);
        let mut not_before = Duration::ZERO;
        loop {
            let now = self.executor.now();
            let due = next.map(|at| at.max(not_before).saturating_sub(now.mono));
            tokio::select! {
                biased;
                () = &mut stopping => return,
                Some(ended) = self.tasks.join_next_with_id() => self.complete(ended),
                Some(change) = changes.recv() => {
                    let now = self.executor.now();
                    self.engine.observe(change, now);
                    for _ in 1..CHANGES_PER_PASS {
                        let Ok(change) = changes.try_recv() else { break };
                        self.engine.observe(change, now);
                    }
                }
                () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {}
                else => return,
            }
            while let Some(ended) = self.tasks.try_join_next_with_id() {
                self.complete(ended);
            }
            if !reported_synced && self.engine.snapshot().is_synced_for_capacity() {
                reported_synced = true;
                synced(true);
            }
            let now = self.executor.now();
            if !(self.leads)() {
                if std::mem::take(&mut self.led) {
                    self.metrics.stop_leading();
                }
                next = Some(now.mono + STANDBY_PAUSE);
                continue;
            }
            if now.mono < not_before {
                // Something has changed: the next pass starts as soon as the pause after the last one is over.
                next = Some(not_before);
                continue;
            }
            if !self.led && !self.take_over(now).await {
                next = Some(self.executor.now().mono + TAKE_OVER_RETRY);
                continue;
            }
            next = self.run_pass();
            let took = self.executor.now().mono.saturating_sub(now.mono);
            not_before = self.executor.now().mono + (took * PAUSE_FACTOR).max(self.shortest_pause);
        }
    }

    /// Lists the claims before the first pass. The watch may lag behind the former leader's last writes, and a plan
    /// made without its last claims would launch them again.
    async fn take_over(&mut self, now: Now) -> bool {
        if !self.engine.snapshot().is_synced_for_capacity() {
            return false;
        }
        match self.executor.list_claims().await {
            Ok(claims) => {
                self.engine.take_over(claims, now);
                self.led = true;
                true
            }
            Err(error) => {
                tracing::warn!(%error, "failed to list the claims, retrying");
                false
            }
        }
    }

    fn run_pass(&mut self) -> Option<Duration> {
        let now = self.executor.now();
        let mut step = self.engine.step(now);
        for action in std::mem::take(&mut step.actions) {
            self.start(action);
        }
        let took = self.executor.now().mono.saturating_sub(now.mono);
        self.metrics.observe_pass(&self.engine, took.as_secs_f64());
        self.metrics.observe_bound(&step.bound);
        self.metrics.observe_cloud(&self.executor.cloud_calls());
        step.requeue_at
    }

    fn start(&mut self, action: Action) {
        self.metrics.count_action(action.name());
        let keys = action.keys();
        let executor = self.executor.clone();
        let slots = Arc::clone(&self.slots);
        let task = self.tasks.spawn(async move {
            let _slot = slots.acquire_owned().await;
            executor.run(action).await
        });
        self.in_flight.insert(task.id(), (keys, task));
    }

    fn complete(&mut self, ended: Result<(Id, ActionReport), tokio::task::JoinError>) {
        let now = self.executor.now();
        match ended {
            Ok((id, report)) => {
                self.in_flight.remove(&id);
                self.engine.complete(report, now);
            }
            Err(error) => {
                tracing::error!(%error, "the task of an action failed; deciding again");
                let keys = self.in_flight.remove(&error.id()).map(|(keys, _)| keys).unwrap_or_default();
                self.engine.complete(
                    ActionReport { backoff: Backoff::Exponential, ..ActionReport::done(keys) },
                    now,
                );
            }
        }
    }

    /// Lets in-flight actions end, but for the wait on the interruption queue.
    pub async fn stop(&mut self) {
        // Without the lease, the leader gate would refuse it.
        if self.led
            && let Some(action) = self.engine.last_record(self.executor.now())
        {
            self.start(action);
        }
        for (_, task) in self.in_flight.values().filter(|(keys, _)| keys.contains(&Key::Interruptions)) {
            task.abort();
        }
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::info!("in-flight actions are left to the next leader");
        }
    }
}
