//! One simulation: demand, solve, static capacity, consolidation.

use std::sync::Arc;

use croft_manifest::{Input, InputError};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{Cluster, InstanceType, Options};

use super::{
    consolidation,
    demand::{self, Created, Demand},
    eligibility::{closed_zones, time_of},
    leaving_nodes::leaving_nodes,
    outcome::Simulation,
    schedules, static_capacity,
};
use crate::{admission::Admission, class_types::ClassTypes};

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
    let (input, schedules) = schedules::in_force(input);
    let Planned { mut simulation, cluster, .. } = plan(&input, types, options, false)?;
    simulation.warnings.extend(schedules);
    if consolidate {
        let savings = consolidation::search(&input, &cluster, &simulation.types, options, &simulation);
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
    let types = open_types(input, ClassTypes::new(input, &types));
    let admission = Admission::with_types(input, &types)?;
    let demand = demand::build(input, &types, Some(&admission), keep_created)?;
    Ok(solve(input, &types, options, demand))
}

/// Plans for pods and DaemonSets that are as admission left them; other workloads don't count. Closed zones and schedules hold as in
/// [`simulate`].
///
/// # Errors
/// As [`simulate`].
pub(crate) fn simulate_admitted(
    input: &Input,
    types: ClassTypes,
    options: &Options,
) -> Result<Simulation, InputError> {
    let (input, schedules) = schedules::in_force(input);
    let types = open_types(&input, types);
    let demand = demand::build(&input, &types, None, false)?;
    let mut simulation = solve(&input, &types, options, demand).simulation;
    simulation.warnings.extend(schedules);
    Ok(simulation)
}

/// The types outside the zones that the input's CroftConfig closes at its time.
fn open_types(input: &Input, types: ClassTypes) -> ClassTypes {
    let closed = closed_zones(input, time_of(input));
    types.outside(|zone| closed.iter().any(|one| one.name == zone))
}

fn solve(input: &Input, types: &ClassTypes, options: &Options, demand: Demand) -> Planned {
    let Demand { mut cluster, denied, mut warnings, created } = demand;
    let replicas = static_capacity::launch(input, types, &mut cluster, &mut warnings);
    let options = Options { leaving: leaving_nodes(input), ..options.clone() };
    let mut plan = croft_scheduler::solve(&cluster, &options, &|| false);
    warnings.extend(plan.warnings.iter().cloned());
    warnings.extend(closed_zones(input, time_of(input)).iter().map(ToString::to_string));
    static_capacity::nominate_headroom(&plan, &mut cluster);
    replicas.add_to(&mut plan);
    let headroom = static_capacity::remove_headroom_pods(&mut plan, &mut warnings);
    let types = Arc::clone(types.all());
    let simulation = Simulation { plan, headroom, denied, warnings, elapsed_ms: 0, savings: None, types };
    Planned { simulation, cluster, created }
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
