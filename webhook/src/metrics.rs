//! The webhook's counters: atomics on the path of a review, and their exposition for `/metrics`.
//!
//! The server, the watch and the certificate watcher write them; [`crate::definitions`] names and documents them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_policy::Rule;
use croft_runtime::{
    metric::float,
    share::{Share, Shares},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::histogram::Histogram,
    registry::Registry,
};

use crate::{
    definitions,
    outcome::{Outcome, Phase},
};

/// Upper bounds of the histogram, in seconds: from a review that fits the processor's cache to one that waited for the
/// processor.
const BOUNDS_SECONDS: [f64; 12] =
    [5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 5e-3, 2.5e-2, 0.25, 1.0];

/// The webhook's counters.
#[derive(Debug, Default)]
pub struct Metrics {
    requests: [[AtomicU64; Outcome::ALL.len()]; Phase::ALL.len()],
    decisions: Decisions,
    duration: AdmissionDuration,
    /// Reviews in flight.
    pub inflight: Share,
    /// Bytes of reviews in flight.
    pub inflight_bytes: Share,
    /// Connections and handshakes.
    pub shares: Arc<Shares>,
    /// End of the certificate in use, in seconds since 1970.
    pub certificate_expiry: Arc<AtomicI64>,
    /// Snapshots of the index.
    pub builds: AtomicU64,
    /// Microseconds that the last snapshot took.
    pub build_micros: AtomicU64,
    /// Tenants, pools, namespaces and nodes in the index.
    pub index_objects: [AtomicUsize; INDEX_KINDS.len()],
    /// Objects whose newest version can't be decoded in full.
    pub invalid: AtomicUsize,
    /// Watches that had to be started again.
    pub watch_errors: AtomicU64,
}

/// The kinds that [`Metrics::index_objects`] counts.
pub const INDEX_KINDS: [&str; 4] = ["tenants", "pools", "namespaces", "nodes"];

impl Metrics {
    /// Counts a review that ended.
    pub fn count_request(&self, phase: Phase, outcome: Outcome) {
        if let Some(count) = self.requests.get(phase as usize).and_then(|row| row.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a review that `rule` decided.
    pub fn count_decision(&self, rule: Rule) {
        if let Some(count) = self.decisions.0.get(rule as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the time of an evaluation, without reading and waiting.
    pub fn observe_duration(&self, time: Duration) {
        self.duration.0.observe(time.as_secs_f64());
    }

    /// The number of reviews that ended so.
    #[must_use]
    pub fn requests(&self, phase: Phase, outcome: Outcome) -> u64 {
        self.requests
            .get(phase as usize)
            .and_then(|row| row.get(outcome as usize))
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Registers all metrics.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(Exposition(self.clone())));
    }
}

/// Reviews by the rule that decided them, in the order of [`Rule::ALL`].
#[derive(Debug)]
struct Decisions([AtomicU64; Rule::ALL.len()]);

impl Default for Decisions {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

/// The library's histogram: its lock costs less than 0.3 % of a review.
#[derive(Debug)]
struct AdmissionDuration(Histogram);

impl Default for AdmissionDuration {
    fn default() -> Self {
        Self(Histogram::new(BOUNDS_SECONDS))
    }
}

#[derive(Debug)]
struct Exposition(Arc<Metrics>);

/// Microseconds as seconds: shown, never decided on.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float, and 2^53 microseconds are 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = &*self.0;
        let requests = Phase::ALL.iter().zip(&metrics.requests).flat_map(|(phase, row)| {
            Outcome::ALL.iter().zip(row).map(move |(outcome, count)| {
                ([("phase", phase.as_str()), ("outcome", outcome.as_str())], count.load(Ordering::Relaxed))
            })
        });
        definitions::ADMISSION_REQUESTS.counters(&mut encoder, requests)?;
        let decisions = Rule::ALL.iter().zip(&metrics.decisions.0);
        let decisions =
            decisions.map(|(rule, count)| ([("rule", rule.as_str())], count.load(Ordering::Relaxed)));
        definitions::ADMISSION_DECISIONS.counters(&mut encoder, decisions)?;
        metrics.duration.0.encode(definitions::ADMISSION_DURATION.describe(&mut encoder)?)?;
        let Shares { connections, handshakes, peers: _ } = &*metrics.shares;
        let (reviews, bytes) = (&metrics.inflight, &metrics.inflight_bytes);
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 fit a float for 285 million years"
        )]
        let expiry = metrics.certificate_expiry.load(Ordering::Relaxed) as f64;
        let invalid = float(metrics.invalid.load(Ordering::Relaxed));
        let build = seconds(metrics.build_micros.load(Ordering::Relaxed));
        for (metric, value) in [
            (definitions::OPEN_CONNECTIONS, float(connections.used())),
            (definitions::OPEN_HANDSHAKES, float(handshakes.used())),
            (definitions::INFLIGHT_REVIEWS, float(reviews.used())),
            (definitions::INFLIGHT, float(bytes.used())),
            (definitions::CERTIFICATE_EXPIRY, expiry),
            (definitions::INVALID_OBJECTS, invalid),
            (definitions::INDEX_BUILD, build),
        ] {
            metric.gauge(&mut encoder, value)?;
        }
        for (metric, value) in
            [(definitions::INDEX_BUILDS, &metrics.builds), (definitions::WATCH_ERRORS, &metrics.watch_errors)]
        {
            metric.counter(&mut encoder, value.load(Ordering::Relaxed))?;
        }
        let refusing = [
            ("connections", connections),
            ("handshakes", handshakes),
            ("reviews", reviews),
            ("review_bytes", bytes),
        ];
        definitions::REFUSED.refusals(&mut encoder, &refusing)?;
        definitions::INDEX_OBJECTS.sizes(&mut encoder, &INDEX_KINDS, &metrics.index_objects)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    fn text(metrics: &Arc<Metrics>) -> String {
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        text
    }

    #[test]
    fn every_outcome_has_a_line_and_the_histogram_adds_up() {
        let metrics = Arc::new(Metrics::default());
        metrics.count_request(Phase::Validate, Outcome::Denied);
        metrics.count_decision(Rule::ForeignPool);
        metrics.count_decision(Rule::ReservedMetadata);
        metrics.observe_duration(Duration::from_micros(7));
        metrics.observe_duration(Duration::from_secs(9));
        let text = text(&metrics);
        for line in [
            r#"croft_webhook_admission_requests_total{phase="validate",outcome="denied"} 1"#,
            r#"croft_webhook_admission_requests_total{phase="warn",outcome="overload"} 0"#,
            r#"croft_webhook_admission_decisions_total{rule="ForeignPool"} 1"#,
            r#"croft_webhook_admission_decisions_total{rule="ReservedMetadata"} 1"#,
            r#"croft_webhook_admission_decisions_total{rule="Pinned"} 0"#,
            r#"croft_webhook_admission_duration_seconds_bucket{le="0.00001"} 1"#,
            // The objective of docs/slo.md.
            r#"croft_webhook_admission_duration_seconds_bucket{le="0.005"} 1"#,
            r#"croft_webhook_admission_duration_seconds_bucket{le="+Inf"} 2"#,
            "croft_webhook_admission_duration_seconds_count 2",
            r#"croft_webhook_index_objects{kind="nodes"} 0.0"#,
            r#"croft_webhook_refused_total{resource="handshakes"} 0"#,
            "croft_webhook_open_connections 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn metrics_shown_are_the_ones_defined() {
        let text = text(&Arc::new(Metrics::default()));
        let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).collect();
        assert_eq!(shown.len(), definitions::METRICS.len());
        for (line, metric) in shown.iter().zip(definitions::METRICS) {
            let name = metric.full_name();
            assert_eq!(line.split(' ').next(), Some(name.strip_suffix("_total").unwrap_or(&name)));
        }
    }
}
