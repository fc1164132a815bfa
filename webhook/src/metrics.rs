//! What can be counted, without a lock on the path of a review.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use croft_runtime::share::{Share, Shares};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, MetricEncoder, NoLabelSet},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};

use crate::admit::Phase;

/// How a review ended. The label is written by hand and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed as it is.
    Allowed = 0,
    /// Allowed with a patch.
    Patched = 1,
    /// Refused by policy.
    Denied = 2,
    /// Refused for now: its namespace isn't known yet.
    Unknown = 3,
    /// No review that could be judged.
    Malformed = 4,
    /// Too long, or too slow to arrive.
    Oversized = 5,
    /// Turned away: too much was under way.
    Overload = 6,
    /// Its evaluation panicked: answered with 500, and the others go on.
    Panicked = 7,
}

const OUTCOMES: [&str; 8] =
    ["allowed", "patched", "denied", "unknown_namespace", "malformed", "oversized", "overload", "panicked"];
const PHASES: [&str; 4] = ["mutate", "validate", "warn", "both"];

/// Upper bounds of the histogram, in microseconds: from a review that fits a cache to one that waited for its
/// namespace.
const BOUNDS_MICROS: [u64; 12] = [5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 250_000, 1_000_000];

/// Counters of the server.
#[derive(Debug, Default)]
pub struct Metrics {
    reviews: [[AtomicU64; OUTCOMES.len()]; PHASES.len()],
    judging: Histogram,
    /// Reviews under way.
    pub inflight: Share,
    /// Bytes of reviews under way.
    pub inflight_bytes: Share,
    /// Connections and handshakes.
    pub shares: Arc<Shares>,
    /// When the certificate in use expires, in seconds since 1970.
    pub certificate_expires: Arc<AtomicI64>,
    /// Builds of the index.
    pub builds: AtomicU64,
    /// Microseconds that the last build took.
    pub build_micros: AtomicU64,
    /// Tenants, pools, namespaces and nodes in the index.
    pub known: [AtomicUsize; KNOWN.len()],
    /// Objects whose newest version can't be read in full.
    pub invalid: AtomicUsize,
    /// Watches that had to be started again.
    pub watch_errors: AtomicU64,
}

/// What [`Metrics::known`] counts.
pub const KNOWN: [&str; 4] = ["tenants", "pools", "namespaces", "nodes"];

impl Metrics {
    /// A review ended.
    pub fn ended(&self, phase: Phase, outcome: Outcome) {
        if let Some(count) = self.reviews.get(phase as usize).and_then(|row| row.get(outcome as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A review was judged in `time`, without reading and waiting.
    pub fn judged(&self, time: Duration) {
        self.judging.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many reviews ended so.
    #[must_use]
    pub fn count(&self, phase: Phase, outcome: Outcome) -> u64 {
        self.reviews
            .get(phase as usize)
            .and_then(|row| row.get(outcome as usize))
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Shows them all under the prefix `croft_webhook`.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.sub_registry_with_prefix("croft_webhook").register_collector(Box::new(Shown(self.clone())));
    }
}

#[derive(Debug, Default)]
struct Histogram {
    buckets: [AtomicU64; BOUNDS_MICROS.len()],
    above: AtomicU64,
    sum_micros: AtomicU64,
}

impl Histogram {
    fn observe(&self, micros: u64) {
        let bucket =
            BOUNDS_MICROS.iter().position(|bound| micros <= *bound).and_then(|at| self.buckets.get(at));
        bucket.unwrap_or(&self.above).fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Shown(Arc<Metrics>);

/// Micro-units as a number with a point: only ever shown, never decided on.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float, and 2^53 microseconds are 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = &*self.0;
        {
            let mut reviews = encoder.encode_descriptor(
                "reviews",
                "Reviews by phase and how they ended",
                None,
                MetricType::Counter,
            )?;
            for (phase, row) in PHASES.iter().zip(&metrics.reviews) {
                for (outcome, count) in OUTCOMES.iter().zip(row) {
                    let labels = [("phase", *phase), ("outcome", *outcome)];
                    let count = ConstCounter::new(count.load(Ordering::Relaxed));
                    count.encode(reviews.encode_family(&labels)?)?;
                }
            }
        }
        {
            let histogram = encoder.encode_descriptor(
                "judging",
                "Time from a review that was read to its answer",
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?;
            encode_histogram(&metrics.judging, histogram)?;
        }
        let mut gauge = |name, help, unit: Option<&Unit>, value: f64| {
            let encoder = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        let Shares { connections, handshakes, peers: _ } = &*metrics.shares;
        let (reviews, bytes) = (&metrics.inflight, &metrics.inflight_bytes);
        gauge("open_connections", "Connections that are open", None, float(connections.used()))?;
        gauge("open_handshakes", "Handshakes under way", None, float(handshakes.used()))?;
        gauge("inflight_reviews", "Reviews under way", None, float(reviews.used()))?;
        gauge("inflight", "Bytes of reviews under way", Some(&Unit::Bytes), float(bytes.used()))?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 fit a float for 285 million years"
        )]
        let expires = metrics.certificate_expires.load(Ordering::Relaxed) as f64;
        gauge(
            "certificate_expires",
            "When the certificate in use expires, since 1970",
            Some(&Unit::Seconds),
            expires,
        )?;
        let help = "Tenants, TenantPools and CroftConfigs that can't be read in full";
        gauge("invalid_objects", help, None, float(metrics.invalid.load(Ordering::Relaxed)))?;
        let build = seconds(metrics.build_micros.load(Ordering::Relaxed));
        gauge("index_build", "Time of the last build of the index", Some(&Unit::Seconds), build)?;
        for (name, value) in [("index_builds", &metrics.builds), ("watch_errors", &metrics.watch_errors)] {
            let help = if name == "index_builds" { "Builds of the index" } else { "Watches that failed" };
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value.load(Ordering::Relaxed)).encode(encoder)?;
        }
        let mut refused = encoder.encode_descriptor(
            "refused",
            "What a client was refused because it held its share already, or nothing was free",
            None,
            MetricType::Counter,
        )?;
        for (resource, share) in [
            ("connections", connections),
            ("handshakes", handshakes),
            ("reviews", reviews),
            ("review_bytes", bytes),
        ] {
            let labels = [("resource", resource)];
            ConstCounter::new(share.refused()).encode(refused.encode_family(&labels)?)?;
        }
        let mut known =
            encoder.encode_descriptor("known_objects", "Objects in the index", None, MetricType::Gauge)?;
        for (kind, value) in KNOWN.iter().zip(&metrics.known) {
            ConstGauge::new(float(value.load(Ordering::Relaxed)))
                .encode(known.encode_family(&[("kind", *kind)])?)?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a metric is a float, and memory ends before its integers do")]
fn float(count: usize) -> f64 {
    count as f64
}

fn encode_histogram(histogram: &Histogram, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut buckets: Vec<(f64, u64)> =
        BOUNDS_MICROS.iter().map(|bound| seconds(*bound)).zip(histogram.buckets.iter().map(load)).collect();
    buckets.push((f64::INFINITY, load(&histogram.above)));
    let total = buckets.iter().map(|(_, count)| count).sum();
    encoder.encode_histogram::<NoLabelSet>(seconds(load(&histogram.sum_micros)), total, &buckets, None)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_outcome_has_a_line_and_the_histogram_adds_up() {
        let metrics = Arc::new(Metrics::default());
        metrics.ended(Phase::Validate, Outcome::Denied);
        metrics.judged(Duration::from_micros(7));
        metrics.judged(Duration::from_secs(9));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            r#"croft_webhook_reviews_total{phase="validate",outcome="denied"} 1"#,
            r#"croft_webhook_reviews_total{phase="warn",outcome="overload"} 0"#,
            r#"croft_webhook_judging_seconds_bucket{le="0.00001"} 1"#,
            r#"croft_webhook_judging_seconds_bucket{le="+Inf"} 2"#,
            "croft_webhook_judging_seconds_count 2",
            r#"croft_webhook_known_objects{kind="nodes"} 0.0"#,
            r#"croft_webhook_refused_total{resource="handshakes"} 0"#,
            "croft_webhook_open_connections 0.0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
