//! The scheduler behind a panic boundary: if one plan panics, that plan fails, and the process goes on.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use croft_scheduler::{Cluster, Options, Plan, solve};

/// The purpose of a plan, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Pending pods, and headroom.
    Pods,
    /// Pools with static capacity.
    Replicas,
    /// Replacements of nodes, and new places for their pods.
    Disruption,
    /// The search for a cheaper cluster.
    Consolidation,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 4] = [Self::Pods, Self::Replicas, Self::Disruption, Self::Consolidation];

    /// The value of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Replicas => "replicas",
            Self::Disruption => "disruption",
            Self::Consolidation => "consolidation",
        }
    }
}

/// A plan that panicked, with the panic's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scheduler panicked: {0}")]
pub struct Panicked(pub String);

/// Measures the time of plans.
pub trait SolveMeter: Send + Sync {
    /// A reading of the monotonic clock, before a plan.
    fn start(&self) -> Instant;
    /// Records the time since `started`, after a plan.
    fn stop(&self, purpose: Purpose, started: Instant);
}

type Solve = dyn Fn(&Cluster, &Options) -> Plan + Send + Sync;

/// Makes plans, and counts panics.
#[derive(Clone)]
pub struct Solver {
    solve: Arc<Solve>,
    panics: Arc<[AtomicU64; Purpose::ALL.len()]>,
    meter: Option<Arc<dyn SolveMeter>>,
}

impl Default for Solver {
    fn default() -> Self {
        Self::new(|cluster, options| solve(cluster, options, &|| false))
    }
}

impl fmt::Debug for Solver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Solver").field("panics", &self.panics).finish_non_exhaustive()
    }
}

impl Solver {
    /// A solver that calls `solve`: the scheduler's, or a test's that panics.
    #[must_use]
    pub fn new(solve: impl Fn(&Cluster, &Options) -> Plan + Send + Sync + 'static) -> Self {
        Self { solve: Arc::new(solve), panics: Arc::default(), meter: None }
    }

    /// The same solver, whose plans `meter` measures.
    #[must_use]
    pub fn measured_by(self, meter: Arc<dyn SolveMeter>) -> Self {
        Self { meter: Some(meter), ..self }
    }

    /// Makes a plan.
    ///
    /// # Errors
    /// If it panics.
    pub fn plan(&self, purpose: Purpose, cluster: &Cluster, options: &Options) -> Result<Plan, Panicked> {
        self.catch_and_count(purpose, || (self.solve)(cluster, options))
    }

    /// Runs `work` with the function that makes plans.
    ///
    /// # Errors
    /// If it panics.
    pub fn run<T>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&dyn Fn(&Cluster, &Options) -> Plan) -> T,
    ) -> Result<T, Panicked> {
        self.catch_and_count(purpose, || work(&*self.solve))
    }

    fn catch_and_count<T>(&self, purpose: Purpose, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        let started = self.meter.as_ref().map(|meter| meter.start());
        let result = catch(work).inspect_err(|_| self.count_panic(purpose));
        if let (Some(meter), Some(started)) = (&self.meter, started) {
            meter.stop(purpose, started);
        }
        result
    }

    /// Counts a panic that was caught elsewhere.
    pub fn count_panic(&self, purpose: Purpose) {
        if let Some(count) = self.panics.get(purpose as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many plans of each purpose have panicked.
    pub fn panics(&self) -> impl Iterator<Item = (Purpose, u64)> {
        let count = |purpose: Purpose| {
            self.panics.get(purpose as usize).map_or(0, |count| count.load(Ordering::Relaxed))
        };
        Purpose::ALL.into_iter().map(move |purpose| (purpose, count(purpose)))
    }
}

/// Runs `work`, which makes plans. A plan reads the cluster, which has no interior mutability; any other state that
/// it changes is its own. So a panic leaves nothing inconsistent that is used again.
///
/// # Errors
/// If it panics.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message =
            message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        tracing::error!(error = message, "the scheduler panicked");
        Panicked(message.to_owned())
    })
}
