//! The page's counters, and their exposition for `/metrics`. [`crate::definitions`] names and documents them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

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

use crate::{definitions, model::facts::Model};

/// Upper bounds of the histogram, in seconds: from a static file to a what-if of a large cluster.
const BOUNDS_SECONDS: [f64; 9] = [1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 30.0];
/// The route of a request that no route takes.
const NO_ROUTE: &str = "none";
/// The kinds that the model's size is shown by.
const KINDS: [&str; 4] = ["tenants", "pools", "nodes", "pods"];

/// Reviews of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Review {
    /// Of a token.
    Token,
    /// Of a right.
    SubjectAccess,
}

impl Review {
    const ALL: [Self; 2] = [Self::Token, Self::SubjectAccess];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Token => "TokenReview",
            Self::SubjectAccess => "SubjectAccessReview",
        }
    }
}

/// The page's counters.
#[derive(Debug)]
pub struct Metrics {
    requests: Mutex<BTreeMap<(String, u16), u64>>,
    duration: Histogram,
    reviews: [AtomicU64; Review::ALL.len()],
    builds: AtomicU64,
    build_micros: AtomicU64,
    objects: [AtomicUsize; KINDS.len()],
    /// Requests in flight, by address.
    pub inflight: Share,
    /// Requests in flight that have a reader, by user.
    pub read: Arc<Share>,
    /// Open streams of events, by user.
    pub streams: Arc<Share>,
    /// Connections and handshakes, of both listeners.
    pub shares: Arc<Shares>,
    /// Watches that failed.
    pub watch_errors: AtomicU64,
    /// End of the certificate in use, in seconds since 1970.
    pub certificate_expiry: Arc<AtomicI64>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Mutex::default(),
            duration: Histogram::new(BOUNDS_SECONDS),
            reviews: Default::default(),
            builds: AtomicU64::new(0),
            build_micros: AtomicU64::new(0),
            objects: Default::default(),
            inflight: Share::default(),
            read: Arc::default(),
            streams: Arc::default(),
            shares: Arc::default(),
            watch_errors: AtomicU64::new(0),
            certificate_expiry: Arc::default(),
        }
    }
}

impl Metrics {
    /// Counts an answer; `route` is none for a path that no route takes.
    pub fn count_request(&self, route: Option<&str>, code: u16, time: Duration) {
        let key = (route.unwrap_or(NO_ROUTE).to_owned(), code);
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += 1;
        self.duration.observe(time.as_secs_f64());
    }

    /// Counts a review that is sent.
    pub fn count_review(&self, review: Review) {
        if let Some(count) = self.reviews.get(review as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a build of the model.
    pub fn observe_build(&self, model: &Model, time: Duration) {
        self.builds.fetch_add(1, Ordering::Relaxed);
        self.build_micros.store(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        let sizes = [model.tenants.len(), model.pools.len(), model.nodes.len(), model.pods.len()];
        for (shown, size) in self.objects.iter().zip(sizes) {
            shown.store(size, Ordering::Relaxed);
        }
    }

    /// Registers all metrics.
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(Exposition(self.clone())));
    }
}

#[derive(Debug)]
struct Exposition(Arc<Metrics>);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let metrics = &*self.0;
        let counts = metrics.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let labelled = counts
            .into_iter()
            .map(|((route, code), count)| ([("route", route), ("code", code.to_string())], count));
        definitions::REQUESTS.counters(&mut encoder, labelled)?;
        metrics.duration.encode(definitions::REQUEST_DURATION.describe(&mut encoder)?)?;
        let reviews = Review::ALL.iter().zip(&metrics.reviews);
        let reviews = reviews.map(|(one, count)| ([("kind", one.as_str())], count.load(Ordering::Relaxed)));
        definitions::REVIEWS.counters(&mut encoder, reviews)?;
        let Shares { connections, handshakes, peers: _ } = &*metrics.shares;
        #[expect(clippy::cast_precision_loss, reason = "shown, never decided on")]
        let (expiry, build) = (
            metrics.certificate_expiry.load(Ordering::Relaxed) as f64,
            metrics.build_micros.load(Ordering::Relaxed) as f64 / 1e6,
        );
        for (metric, value) in [
            (definitions::INFLIGHT_REQUESTS, float(metrics.inflight.used())),
            (definitions::OPEN_STREAMS, float(metrics.streams.used())),
            (definitions::OPEN_CONNECTIONS, float(connections.used())),
            (definitions::MODEL_BUILD, build),
            (definitions::CERTIFICATE_EXPIRY, expiry),
        ] {
            metric.gauge(&mut encoder, value)?;
        }
        for (metric, value) in
            [(definitions::MODEL_BUILDS, &metrics.builds), (definitions::WATCH_ERRORS, &metrics.watch_errors)]
        {
            metric.counter(&mut encoder, value.load(Ordering::Relaxed))?;
        }
        let refusing = [
            ("connections", connections),
            ("handshakes", handshakes),
            ("requests", &metrics.inflight),
            ("requests_of_user", &metrics.read),
            ("streams", &metrics.streams),
        ];
        definitions::REFUSED.refusals(&mut encoder, &refusing)?;
        definitions::MODEL_OBJECTS.sizes(&mut encoder, &KINDS, &metrics.objects)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn every_definition_has_a_line() {
        let metrics = Arc::new(Metrics::default());
        metrics.count_request(Some("/api/v1/pods/{namespace}/{name}"), 404, Duration::from_millis(3));
        metrics.count_request(None, 404, Duration::from_millis(3));
        metrics.count_review(Review::SubjectAccess);
        metrics.observe_build(&Model::default(), Duration::from_millis(250));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for metric in definitions::METRICS {
            assert!(text.contains(&metric.full_name()), "{}: {text}", metric.name);
        }
        for line in [
            r#"croft_page_requests_total{route="/api/v1/pods/{namespace}/{name}",code="404"} 1"#,
            r#"croft_page_requests_total{route="none",code="404"} 1"#,
            r#"croft_page_reviews_total{kind="TokenReview"} 0"#,
            r#"croft_page_reviews_total{kind="SubjectAccessReview"} 1"#,
            "croft_page_model_build_seconds 0.25",
            r#"croft_page_model_objects{kind="pods"} 0"#,
        ] {
            assert!(text.contains(line), "{line} isn't in {text}");
        }
    }
}
