//! One simulation: demand, solve, static capacity, consolidation.

use std::{collections::BTreeMap, sync::Arc};

use croft_manifest::{Input, InputError};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{Cluster, ExistingPlacement, InstanceType, Options, Plan, PlannedInstance};

use super::{
    consolidation::{self, Savings},
    demand::{self, Created, Demand},
    denied::Denied,
    static_capacity,
};
use crate::class_types::ClassTypes;

/// A plan for an input.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The scheduler's answer.
    pub plan: Plan,
    /// Headroom pods by node or new instance.
    pub headroom: BTreeMap<String, usize>,
    /// Pods that admission refuses, which are therefore never created.
    pub denied: Vec<Denied>,
    /// Findings that don't make the input invalid.
    pub warnings: Vec<String>,
    /// Milliseconds from the parsed input to the plan.
    pub elapsed_ms: u64,
    /// The commands of consolidation, if requested.
    pub savings: Option<Savings>,
    types: Arc<[InstanceType]>,
}

impl Simulation {
    /// True if the instance's price is an estimate, not published.
    #[must_use]
    pub fn is_estimate(&self, instance: &PlannedInstance) -> bool {
        let offerings =
            self.types.iter().filter(|t| t.name == instance.instance_type).flat_map(|t| &t.offerings);
        offerings
            .into_iter()
            .any(|o| o.estimated && o.zone == instance.zone && o.capacity_type == instance.capacity_type)
    }

    /// Number of headroom pods on a node or new instance.
    #[must_use]
    pub fn headroom_on(&self, node: &str) -> usize {
        self.headroom.get(node).copied().unwrap_or(0)
    }

    /// True if pending or headroom pods have a place on a node that exists.
    pub(super) fn has_pods_for(&self, node: &str) -> bool {
        let is_planned = |place: &ExistingPlacement| place.node == node && !place.pods.is_empty();
        self.headroom_on(node) > 0 || self.plan.existing.iter().any(is_planned)
    }

    /// True if no pod stays pending.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.plan.unschedulable.is_empty() && self.denied.is_empty()
    }
}

/// Plans for `input` with the instance types `types`.
///
/// # Errors
/// Values that the scheduler refuses, by object and field.
pub fn simulate(
    input: &Input,
    types: Arc<[InstanceType]>,
    options: &Options,
) -> Result<Simulation, InputError> {
    simulate_with_consolidation(input, types, options, false)
}

/// The same, with a search for a cheaper cluster if `consolidate` is set.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with_consolidation(
    input: &Input,
    types: Arc<[InstanceType]>,
    options: &Options,
    consolidate: bool,
) -> Result<Simulation, InputError> {
    let start = SystemClock.monotonic();
    let Planned { mut simulation, cluster, .. } = plan(input, types, options, false)?;
    if consolidate {
        let savings = consolidation::search(input, &cluster, &simulation.types, options, &simulation);
        simulation.savings = Some(savings);
    }
    simulation.elapsed_ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(simulation)
}

/// A plan, and what a search for a cheaper cluster begins with.
pub(super) struct Planned {
    /// The plan.
    pub(super) simulation: Simulation,
    /// The cluster before the plan, with headroom where the plan has it on nodes that exist.
    pub(super) cluster: Cluster,
    /// The objects that the input lacked, if they were to be kept.
    pub(super) created: Created,
}

/// Plans for `input`, without a search for a cheaper cluster.
///
/// # Errors
/// As [`simulate`].
pub(super) fn plan(
    input: &Input,
    types: Arc<[InstanceType]>,
    options: &Options,
    keep_created: bool,
) -> Result<Planned, InputError> {
    let types = ClassTypes::new(input, &types);
    let Demand { mut cluster, denied, mut warnings, created } = demand::build(input, &types, keep_created)?;
    let replicas = static_capacity::launch(input, &types, &mut cluster, &mut warnings);
    let mut plan = croft_scheduler::solve(&cluster, options, &|| false);
    warnings.extend(plan.warnings.iter().cloned());
    static_capacity::nominate_headroom(&plan, &mut cluster);
    replicas.add_to(&mut plan);
    let headroom = static_capacity::remove_headroom_pods(&mut plan, &mut warnings);
    let types = Arc::clone(types.all());
    let simulation = Simulation { plan, headroom, denied, warnings, elapsed_ms: 0, savings: None, types };
    Ok(Planned { simulation, cluster, created })
}

/// Whether a node could be removed now, or why it is kept, as a sentence; `None` for a node that isn't in the input.
///
/// # Errors
/// As [`simulate`].
pub fn node_outlook(
    input: &Input,
    types: Arc<[InstanceType]>,
    node: &str,
) -> Result<Option<String>, InputError> {
    let simulation = simulate_with_consolidation(input, types, &Options::default(), true)?;
    Ok(simulation.savings.and_then(|savings| consolidation::outlook(&savings, node)))
}
