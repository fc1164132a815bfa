//! Leader election on a `coordination.k8s.io/v1` Lease. Used by the controller and by the webhook's certificate
//! reconciler.
//!
//! ```text
//!   candidate ──(free, or its holder silent for its duration)──▶ leader ──(renewed)──▶ leader
//!       ▲                                                          │
//!       └──(deadline passed, or another process holds it)────────────┘
//! ```
//!
//! A holder counts as silent by this process's own monotonic clock, from the moment at which this process saw the
//! record change. The times on the Lease are for people, so clocks of processes may differ.
//!
//! A leader may act until `sent + renew deadline`, where `sent` is the moment before its last successful renewal was
//! sent. That is 3 s before any other process may take the Lease, whatever the network did to the answer, and without
//! any code having to run at that moment: see [`Leader::is_valid`].

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::{sync::watch, task::JoinHandle, time};

use crate::{
    clock::Clock,
    restore::{RestoreDetector, Restores},
    shutdown::Shutdown,
};

/// Name, holder and times of a Lease.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// The identity of this process: unique among all processes that ever ran.
    pub identity: String,
    /// Time after which others may take the Lease of a silent holder.
    pub duration: Duration,
    /// Time after the start of a renewal for which its holder may act on it. Less than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two attempts.
    pub retry: Duration,
}

impl LeaseConfig {
    /// Lease 10 s, renew deadline 7 s, retry 1.5 s: a standby takes over within 15 s.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            duration: Duration::from_secs(10),
            renew_deadline: Duration::from_secs(7),
            retry: Duration::from_millis(1500),
        }
    }
}

/// The time until which this process may act.
#[derive(Clone, Debug)]
pub struct Leader {
    term: watch::Receiver<Option<Instant>>,
    restores: Restores,
}

impl Leader {
    /// Restorations of older data, which every candidate notices by the Lease, leader or not.
    #[must_use]
    pub fn restores(&self) -> Restores {
        self.restores.clone()
    }

    /// True if an effect may start at `now`.
    #[must_use]
    pub fn is_valid(&self, now: Instant) -> bool {
        self.term.borrow().is_some_and(|deadline| now < deadline)
    }

    /// Returns once this process leads; never, if the election has ended.
    pub async fn acquired(&mut self) {
        if self.term.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns once this process no longer leads: at the deadline at the latest.
    pub async fn lost(&mut self) {
        loop {
            let Some(deadline) = *self.term.borrow_and_update() else { return };
            tokio::select! {
                changed = self.term.changed() => if changed.is_err() { return },
                () = time::sleep_until(deadline.into()) => {
                    if *self.term.borrow() == Some(deadline) {
                        return;
                    }
                }
            }
        }
    }
}

/// Takes part in the election in the background until `stop` begins. Then releases the Lease, so that a standby takes
/// it at once, and the task ends.
#[must_use]
pub fn elect(
    client: Client,
    config: LeaseConfig,
    clock: Arc<dyn Clock>,
    stop: Shutdown,
) -> (Leader, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(None);
    let api = Api::namespaced(client, &config.namespace);
    let detector = RestoreDetector::default();
    let leader = Leader { term: receiver, restores: detector.restores() };
    let candidate = Candidate { api, config, clock, observed: None, detector, term: sender };
    (leader, tokio::spawn(candidate.run(stop)))
}

struct Candidate {
    api: Api<Lease>,
    config: LeaseConfig,
    clock: Arc<dyn Clock>,
    observed: Option<ObservedLease>,
    detector: RestoreDetector,
    term: watch::Sender<Option<Instant>>,
}

/// The Lease as last observed, and the time since which it is unchanged.
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

/// The next step of a candidate.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Another process holds the Lease and has renewed it recently.
    Wait,
    /// This process holds the Lease.
    Renew,
    /// The Lease is free, or its holder is silent.
    Take,
}

fn decide(spec: &LeaseSpec, silent: Duration, config: &LeaseConfig) -> Step {
    match spec.holder_identity.as_deref() {
        None | Some("") => Step::Take,
        Some(holder) if holder == config.identity => Step::Renew,
        Some(_) => {
            let duration = spec
                .lease_duration_seconds
                .and_then(|seconds| u64::try_from(seconds).ok())
                .map_or(config.duration, Duration::from_secs);
            if silent >= duration { Step::Take } else { Step::Wait }
        }
    }
}

/// The record that `step` writes, from the current one.
fn record(old: &LeaseSpec, step: &Step, config: &LeaseConfig, now: Timestamp) -> LeaseSpec {
    let now = MicroTime(now);
    let taken = *step == Step::Take;
    LeaseSpec {
        holder_identity: Some(config.identity.clone()),
        lease_duration_seconds: i32::try_from(config.duration.as_secs()).ok(),
        renew_time: Some(now.clone()),
        acquire_time: if taken { Some(now) } else { old.acquire_time.clone() },
        lease_transitions: Some(old.lease_transitions.unwrap_or(0).saturating_add(i32::from(taken))),
        ..LeaseSpec::default()
    }
}

impl Candidate {
    async fn run(mut self, stop: Shutdown) {
        let mut logged: Option<String> = None;
        loop {
            tokio::select! {
                biased;
                () = stop.wait() => break,
                () = self.round(&mut logged) => {}
            }
            tokio::select! {
                biased;
                () = stop.wait() => break,
                () = time::sleep(self.config.retry) => {}
            }
        }
        self.release().await;
    }

    async fn round(&mut self, logged: &mut Option<String>) {
        let sent = self.clock.monotonic();
        // A request that hangs must leave time for another one that could succeed.
        let attempt = time::timeout(self.config.renew_deadline / 2, self.attempt()).await;
        let held = self.term.borrow().is_some();
        match attempt {
            Ok(Ok(true)) => {
                if !held {
                    tracing::info!(lease = self.config.name, identity = self.config.identity, "leading");
                }
                *logged = None;
                self.term.send_replace(Some(sent + self.config.renew_deadline));
                return;
            }
            Ok(Ok(false)) => {
                if held {
                    tracing::warn!(lease = self.config.name, "another process leads now");
                    self.term.send_replace(None);
                }
                *logged = None;
                return;
            }
            Ok(Err(error)) => self.log_once(logged, error.to_string()),
            Err(_) => self.log_once(logged, "no answer in time".to_owned()),
        }
        // After an error the observation may be stale: this write or another process's may have happened.
        if let Some(observed) = &mut self.observed {
            observed.lease.metadata.resource_version = None;
        }
        if self.term.borrow().is_some_and(|deadline| self.clock.monotonic() >= deadline) {
            tracing::warn!(lease = self.config.name, "the lease couldn't be renewed in time");
            self.term.send_replace(None);
        }
    }

    fn log_once(&self, logged: &mut Option<String>, error: String) {
        if logged.as_ref() != Some(&error) {
            tracing::warn!(lease = self.config.name, error, "failed to renew or take the lease");
            *logged = Some(error);
        }
    }

    /// Returns true if this process holds the Lease by a write that succeeded.
    async fn attempt(&mut self) -> kube::Result<bool> {
        // A leader writes onto the version of its last write; every other candidate reads first.
        let current = match self.observed.take() {
            Some(observed)
                if self.term.borrow().is_some() && observed.lease.metadata.resource_version.is_some() =>
            {
                observed
            }
            before => match self.api.get_opt(&self.config.name).await? {
                Some(lease) => self.observe(before, lease),
                None => return self.create().await,
            },
        };
        let spec = current.lease.spec.clone().unwrap_or_default();
        let silent = self.clock.monotonic().saturating_duration_since(current.since);
        let step = decide(&spec, silent, &self.config);
        if step == Step::Wait {
            self.observed = Some(current);
            return Ok(false);
        }
        let mut lease = current.lease.clone();
        lease.spec = Some(record(&spec, &step, &self.config, self.clock.wall()));
        self.observed = Some(current);
        match self.api.replace(&self.config.name, &PostParams::default(), &lease).await {
            Ok(lease) => {
                self.record_observed(lease);
                Ok(true)
            }
            // Another process wrote in between: the next round reads again.
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                if let Some(observed) = &mut self.observed {
                    observed.lease.metadata.resource_version = None;
                }
                // A leader whose record another client only annotated is still within its deadline.
                let still = self.term.borrow().is_some_and(|deadline| self.clock.monotonic() < deadline);
                if still { Err(kube::Error::Api(status)) } else { Ok(false) }
            }
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self) -> kube::Result<bool> {
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                namespace: Some(self.config.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(record(&LeaseSpec::default(), &Step::Take, &self.config, self.clock.wall())),
        };
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.record_observed(lease);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn record_observed(&mut self, lease: Lease) {
        self.detector.observe(&lease.metadata);
        self.observed = Some(ObservedLease { lease, since: self.clock.monotonic() });
    }

    fn observe(&mut self, before: Option<ObservedLease>, lease: Lease) -> ObservedLease {
        self.detector.observe(&lease.metadata);
        match before {
            Some(observed) if observed.lease.spec == lease.spec => {
                ObservedLease { lease, since: observed.since }
            }
            _ => ObservedLease { lease, since: self.clock.monotonic() },
        }
    }

    async fn release(mut self) {
        if self.term.send_replace(None).is_none() {
            return;
        }
        let Some(ObservedLease { mut lease, .. }) = self.observed.take() else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.renew_time = Some(MicroTime(self.clock.wall()));
        }
        let write = PostParams::default();
        let released =
            time::timeout(self.config.retry, self.api.replace(&self.config.name, &write, &lease)).await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::info!(lease = self.config.name, "failed to release the lease; it expires by itself");
        }
    }
}

#[cfg(test)]
#[path = "lease_test.rs"]
mod tests;
