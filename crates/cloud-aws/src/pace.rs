//! Rate limits of calls: a token bucket per kind of call, slower after each throttling.
//!
//! EC2 keeps such buckets per account and region, and every refused call drains them further: a provisioner at full
//! speed throttles itself and others. So the rate is halved when a call is throttled and grows with each success, as in
//! TCP.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_smithy_runtime_api::client::{orchestrator::HttpResponse, result::SdkError};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use croft_cloud::{CallCount, Fault, FaultClass};
use tokio::time::Instant;

use crate::refusal;

/// A bucket with its clock.
#[derive(Debug)]
pub(crate) struct Pace {
    started: Instant,
    bucket: Mutex<Bucket>,
    /// Answers by call and result.
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

/// A bucket; time is an argument.
#[derive(Debug)]
struct Bucket {
    burst: f64,
    top: f64,
    tokens: f64,
    rate: f64,
    at: Duration,
    /// Throttled answers before this time belong to the last halving.
    deaf_until: Duration,
}

/// The lower bound of the rate, per second.
const SLOWEST: f64 = 0.2;
/// Answers to concurrent calls count as one.
const DEAF: Duration = Duration::from_millis(500);

impl Bucket {
    fn new(burst: u32, per_second: u32) -> Self {
        let (burst, rate) = (f64::from(burst), f64::from(per_second));
        Self { burst, top: rate, tokens: burst, rate, at: Duration::ZERO, deaf_until: Duration::ZERO }
    }

    /// Takes a token. Returns how long to wait for it.
    fn take(&mut self, now: Duration) -> Duration {
        let gained = now.saturating_sub(self.at).as_secs_f64() * self.rate;
        self.tokens = (self.tokens + gained).min(self.burst) - 1.0;
        self.at = now;
        // A negative value is a position in the queue: earlier callers are served first.
        if self.tokens >= 0.0 { Duration::ZERO } else { Duration::from_secs_f64(-self.tokens / self.rate) }
    }

    fn throttled(&mut self, now: Duration) {
        if now < self.deaf_until {
            return;
        }
        self.rate = (self.rate / 2.0).max(SLOWEST);
        self.tokens = self.tokens.min(0.0);
        self.deaf_until = now + DEAF;
    }

    fn passed(&mut self) {
        self.rate = (self.rate * 1.05).min(self.top);
    }
}

impl Pace {
    /// `burst` calls at once, then `per_second`.
    pub(crate) fn new(burst: u32, per_second: u32) -> Self {
        Self {
            started: Instant::now(),
            bucket: Mutex::new(Bucket::new(burst, per_second)),
            counts: Mutex::default(),
        }
    }

    fn bucket(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a token.
    pub(crate) async fn turn(&self) {
        let wait = self.bucket().take(self.started.elapsed());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    /// Counts an answer to a call of `action`: a fault of this class, or none.
    pub(crate) fn count(&self, action: &'static str, fault: Option<FaultClass>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let result = fault.map_or("ok", FaultClass::as_str);
        *counts.entry((action, result)).or_default() += 1;
    }

    /// The call was throttled.
    pub(crate) fn throttled(&self) {
        self.bucket().throttled(self.started.elapsed());
    }

    /// The call wasn't throttled.
    pub(crate) fn passed(&self) {
        self.bucket().passed();
    }

    /// Pause before a throttled call may be retried.
    pub(crate) fn pause(&self) -> Duration {
        Duration::from_secs_f64((2.0 / self.bucket().rate).clamp(0.5, 30.0))
    }
}

/// One bucket per kind of call, as EC2 keeps them.
#[derive(Debug)]
pub(crate) struct Paces {
    /// Describe calls.
    pub(crate) read: Pace,
    /// Mutating calls.
    pub(crate) write: Pace,
    /// CreateFleet.
    pub(crate) launch: Pace,
}

impl Paces {
    /// The answers so far, by call and result.
    pub(crate) fn calls(&self) -> Vec<CallCount> {
        let mut all: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for pace in [&self.read, &self.write, &self.launch] {
            for (key, count) in pace.counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                *all.entry(*key).or_default() += count;
            }
        }
        all.into_iter().map(|((call, result), count)| CallCount { call, result, count }).collect()
    }
}

impl Default for Paces {
    fn default() -> Self {
        Self { read: Pace::new(100, 20), write: Pace::new(50, 10), launch: Pace::new(100, 20) }
    }
}

impl Pace {
    /// The answer to a call of `action`; adjusts the rate.
    pub(crate) fn record<T, E>(
        &self,
        action: &'static str,
        answer: Result<T, SdkError<E, HttpResponse>>,
    ) -> Result<T, Fault>
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        match answer {
            Ok(value) => {
                self.passed();
                self.count(action, None);
                Ok(value)
            }
            Err(error) => {
                let fault = refusal::fault(action, &error);
                self.count(action, Some(fault.class));
                if fault.class == FaultClass::Throttled {
                    self.throttled();
                }
                Err(fault)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wait of the last of `calls` that are all made at `now`.
    fn last_turn(bucket: &mut Bucket, calls: u32, now: Duration) -> f64 {
        (0..calls).map(|_| bucket.take(now)).last().unwrap_or_default().as_secs_f64()
    }

    #[test]
    fn answers_are_counted_over_all_buckets_by_call_and_result() {
        let paces = Paces::default();
        paces.read.count("CreateTags", None);
        paces.write.count("CreateTags", None);
        paces.launch.count("CreateFleet", Some(FaultClass::NoCapacity));
        let call = |call, result, count| CallCount { call, result, count };
        assert_eq!(paces.calls(), [call("CreateFleet", "NoCapacity", 1), call("CreateTags", "ok", 2)]);
    }

    #[test]
    fn bucket_allows_a_burst_then_its_rate() {
        let mut bucket = Bucket::new(10, 5);
        assert_eq!(last_turn(&mut bucket, 10, Duration::ZERO), 0.0);
        assert!((last_turn(&mut bucket, 10, Duration::ZERO) - 2.0).abs() < 1e-9);
        assert_eq!(last_turn(&mut bucket, 10, Duration::from_secs(60)), 0.0, "full again");
    }

    #[test]
    fn concurrent_throttling_halves_the_rate_once_and_success_restores_it() {
        let mut bucket = Bucket::new(1, 8);
        let now = Duration::from_secs(1);
        for _ in 0..20 {
            bucket.throttled(now);
        }
        assert!((bucket.rate - 4.0).abs() < 1e-9, "{}", bucket.rate);
        assert!((last_turn(&mut bucket, 8, now) - 2.0).abs() < 0.3, "4 a second");
        bucket.throttled(now + DEAF);
        assert!((bucket.rate - 2.0).abs() < 1e-9, "{}", bucket.rate);
        for _ in 0..100 {
            bucket.throttled(now + DEAF * 100);
            bucket.passed();
        }
        for _ in 0..200 {
            bucket.passed();
        }
        assert!((bucket.rate - 8.0).abs() < 1e-9, "{}", bucket.rate);
    }
}
