//! Definitions of metrics: name, stability, type, unit, labels and meaning, from which a process registers them and the
//! reference page is generated.

use std::sync::atomic::{AtomicUsize, Ordering};

pub use prometheus_client::metrics::MetricType;
use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, MetricEncoder},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::{self, Registry},
};

use crate::share::Share;

/// The unit of a metric, the suffix of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Unit {
    const fn of_library(self) -> &'static registry::Unit {
        match self {
            Self::Seconds => &registry::Unit::Seconds,
            Self::Bytes => &registry::Unit::Bytes,
        }
    }
}

/// How far a metric may change between releases. The words are those of Kubernetes' metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// It may change or disappear in any release.
    Alpha,
    /// Name, type and labels stay for a release after a change is announced; labels may be added.
    Beta,
    /// Name, type and labels stay until the next major version.
    Stable,
}

impl Stability {
    /// Every level, the least stable first.
    pub const ALL: [Self; 3] = [Self::Alpha, Self::Beta, Self::Stable];

    /// As written in the reference page.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alpha => "alpha",
            Self::Beta => "beta",
            Self::Stable => "stable",
        }
    }

    /// Its meaning, without a full stop.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Alpha => "may change or disappear in any release",
            Self::Beta => {
                "name, type and labels stay for a release after a change is announced; labels may be added"
            }
            Self::Stable => "name, type and labels stay until the next major version",
        }
    }
}

/// A number as a gauge shows it.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a metric is a float, and memory ends before its integers do")]
pub fn float(count: usize) -> f64 {
    count as f64
}

/// The definition of a metric. [`metrics!`](crate::metrics) makes them.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, without unit and `_total`.
    pub name: &'static str,
    /// How far it may change between releases.
    pub stability: Stability,
    /// Its type.
    pub kind: MetricType,
    /// Its unit.
    pub unit: Option<Unit>,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// Its meaning, without a full stop.
    pub help: &'static str,
}

impl Metric {
    /// The name as it is scraped.
    #[must_use]
    pub fn full_name(&self) -> String {
        let unit = self.unit.map(|unit| format!("_{}", unit.of_library().as_str())).unwrap_or_default();
        let total = if matches!(self.kind, MetricType::Counter) { "_total" } else { "" };
        format!("{}{unit}{total}", self.name)
    }

    /// Registers `metric` as it is defined, and returns it for those who change it.
    pub fn register<M: registry::Metric + Clone>(&self, registry: &mut Registry, metric: M) -> M {
        let shown = metric.clone();
        match self.unit {
            Some(unit) => {
                registry.register_with_unit(self.name, self.help, unit.of_library().clone(), shown);
            }
            None => registry.register(self.name, self.help, shown),
        }
        metric
    }

    /// Begins the exposition of the metric.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn describe<'e>(
        &self,
        encoder: &'e mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'e>, std::fmt::Error> {
        encoder.encode_descriptor(self.name, self.help, self.unit.map(Unit::of_library), self.kind)
    }

    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn gauge(&self, encoder: &mut DescriptorEncoder<'_>, value: f64) -> Result<(), std::fmt::Error> {
        ConstGauge::new(value).encode(self.describe(encoder)?)
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn counter(&self, encoder: &mut DescriptorEncoder<'_>, count: u64) -> Result<(), std::fmt::Error> {
        ConstCounter::new(count).encode(self.describe(encoder)?)
    }

    /// Writes a counter for each set of labels.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn counters<L: EncodeLabelSet>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        counts: impl IntoIterator<Item = (L, u64)>,
    ) -> Result<(), std::fmt::Error> {
        let mut family = self.describe(encoder)?;
        for (labels, count) in counts {
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a gauge for each of `kinds`, with its name as the label `kind`.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn sizes(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        kinds: &[&str],
        sizes: &[AtomicUsize],
    ) -> Result<(), std::fmt::Error> {
        let mut family = self.describe(encoder)?;
        for (kind, size) in kinds.iter().zip(sizes) {
            let size = ConstGauge::new(float(size.load(Ordering::Relaxed)));
            size.encode(family.encode_family(&[("kind", *kind)])?)?;
        }
        Ok(())
    }

    /// Writes the refusals of each share, with its name as the label `resource`.
    ///
    /// # Errors
    /// If the encoder can't be written to.
    pub fn refusals(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        shares: &[(&str, &Share)],
    ) -> Result<(), std::fmt::Error> {
        self.counters(encoder, shares.iter().map(|(name, share)| ([("resource", *name)], share.refused())))
    }
}

/// Drops the space and the full stop of a doc comment.
#[must_use]
pub const fn without_full_stop(text: &'static str) -> &'static str {
    let text = text.trim_ascii();
    match text.as_bytes() {
        [_, .., b'.'] => text.split_at(text.len() - 1).0,
        _ => text,
    }
}

/// Defines metrics, and `METRICS`, the list of them in this order. The doc comment is the help text.
///
/// ```
/// croft_runtime::metrics! {
///     /// Requests by their result.
///     REQUESTS = Stable Counter "demo_requests" ["result"];
///     /// Time from a request to its answer.
///     DURATION = Alpha Histogram "demo_duration" [] in Seconds;
/// }
/// assert_eq!(REQUESTS.help, "Requests by their result");
/// assert_eq!(DURATION.stability.as_str(), "alpha");
/// let names: Vec<String> = METRICS.iter().map(|metric| metric.full_name()).collect();
/// assert_eq!(names, ["demo_requests_total", "demo_duration_seconds"]);
/// ```
#[macro_export]
macro_rules! metrics {
    ($(
        $(#[doc = $doc:literal])+
        $const:ident = $stability:ident $kind:ident $name:literal [$($label:literal),*] $(in $unit:ident)?;
    )+) => {
        $($(#[doc = $doc])+
        pub const $const: $crate::metric::Metric = $crate::metric::Metric {
            name: $name,
            stability: $crate::metric::Stability::$stability,
            kind: $crate::metric::MetricType::$kind,
            unit: $crate::metrics!(@unit $($unit)?),
            labels: &[$($label),*],
            help: $crate::metric::without_full_stop(concat!($($doc),+)),
        };)+
        /// Every metric.
        pub const METRICS: &[$crate::metric::Metric] = &[$($const),+];
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some($crate::metric::Unit::$unit) };
}
