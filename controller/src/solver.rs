//! The scheduler behind a boundary: where one plan panics, that plan fails, and the process goes on.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use croft_scheduler::{Cluster, Options, Plan, solve};

/// What a plan is made for, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Run {
    /// Pods that wait, and headroom.
    Pods,
    /// Pools of a fixed size.
    Replicas,
    /// Replacements of nodes, and what becomes of their pods.
    Disruption,
    /// The search for a cheaper cluster.
    Consolidation,
}

impl Run {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pods, Self::Replicas, Self::Disruption, Self::Consolidation];

    /// The word for metrics.
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

/// A plan that wasn't made, with the words of the panic.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("planning panicked: {0}")]
pub struct Panicked(pub String);

type Solve = dyn Fn(&Cluster, &Options) -> Plan + Send + Sync;

/// Makes plans.
#[derive(Clone)]
pub struct Solver {
    solve: Arc<Solve>,
    panics: Arc<[AtomicU64; Run::ALL.len()]>,
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
    /// A solver that asks `solve`: the scheduler's, or a test's that panics. Nothing outside the process chooses it.
    #[must_use]
    pub fn new(solve: impl Fn(&Cluster, &Options) -> Plan + Send + Sync + 'static) -> Self {
        Self { solve: Arc::new(solve), panics: Arc::default() }
    }

    /// A plan.
    ///
    /// # Errors
    /// When making it panics.
    pub fn plan(&self, run: Run, cluster: &Cluster, options: &Options) -> Result<Plan, Panicked> {
        self.guard(run, || (self.solve)(cluster, options))
    }

    /// Does what makes plans by the function that it is given.
    ///
    /// # Errors
    /// When that panics.
    pub fn with<T>(
        &self,
        run: Run,
        work: impl FnOnce(&dyn Fn(&Cluster, &Options) -> Plan) -> T,
    ) -> Result<T, Panicked> {
        self.guard(run, || work(&*self.solve))
    }

    fn guard<T>(&self, run: Run, work: impl FnOnce() -> T) -> Result<T, Panicked> {
        catch(work).inspect_err(|_| self.note(run))
    }

    /// Counts a panic that was caught elsewhere.
    pub fn note(&self, run: Run) {
        if let Some(count) = self.panics.get(run as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many plans of each kind have panicked.
    pub fn panics(&self) -> impl Iterator<Item = (Run, u64)> {
        let count = |run: Run| self.panics.get(run as usize).map_or(0, |count| count.load(Ordering::Relaxed));
        Run::ALL.into_iter().map(move |run| (run, count(run)))
    }
}

/// Does `work`, which makes plans. A plan reads the cluster, which has no interior mutability, and whatever else it changes
/// it has made itself: a panic half-way leaves nothing behind that is used again.
///
/// # Errors
/// When it panics.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words");
        tracing::error!(panic = words, "planning panicked");
        Panicked(words.to_owned())
    })
}
