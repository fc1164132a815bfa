//! `croft simulate`: which machines would be launched for this input, at what cost, and why what is left waits.
//!
//! ```text
//!  Input ──workload──▶ pods ──builtin, admission──▶ pods as created ──▶ scheduler::Cluster ──solve──▶ Simulation
//! ```
//!
//! The controller calls the same `solve` with the same conversions; what is printed is what would happen.

mod catalog;
mod cluster;
mod consolidate;
mod json;
mod keeps;
mod standing;
mod text;

use std::{collections::BTreeMap, path::PathBuf, process::ExitCode, sync::Arc};

use clap::{Args, ValueEnum};
use croft_runtime::clock::{Clock as _, SystemClock};
use croft_scheduler::{InstanceType, Machine, Options, Plan, PodKey, Reason};

use crate::{
    failure::Failure,
    input::{self, FileArgs, Input, InputError},
    output::Output,
};
pub use catalog::read as read_catalog;
pub(crate) use cluster::{belongs, is_created};
pub use consolidate::Savings;

/// Options of `croft simulate`.
#[derive(Args, Clone, Debug)]
pub struct SimulateArgs {
    #[command(flatten)]
    files: FileArgs,
    /// Catalogue of instance types and prices, as a JSON file; the built-in one if left out
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// Search longer for a cheaper plan: a multiple of the default effort; 0 is plain first-fit-decreasing
    #[arg(long, value_name = "N", default_value_t = 1)]
    effort: u32,
    /// Show also what would move to make the cluster cheaper, and why each other node stays
    #[arg(long)]
    consolidate: bool,
    /// Exit with 1 if a pod stays pending
    #[arg(long)]
    fail_on_pending: bool,
    /// How the plan is printed
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// What would happen.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The scheduler's answer.
    pub plan: Plan,
    /// How many spare places each node or machine of the plan holds.
    pub spare: BTreeMap<String, usize>,
    /// Pods that admission refuses: they would never be there.
    pub denied: Vec<Denied>,
    /// What is odd in the input and was worked around.
    pub warnings: Vec<String>,
    /// From the parsed input to the plan.
    pub elapsed_ms: u64,
    /// What would move to make the cluster cheaper, if that was asked.
    pub savings: Option<Savings>,
    types: Arc<[InstanceType]>,
}

/// Pods that admission refuses, all for the same reason.
#[derive(Clone, Debug)]
pub struct Denied {
    /// The pods.
    pub pods: Vec<PodKey>,
    /// One per pool, each with the refusal's words.
    pub refusal: String,
}

/// The reason of pods that admission refuses, beside those of [`croft_scheduler::ReasonKind`].
pub const DENIED: &str = "Denied";

impl Simulation {
    /// True if the machine's price was derived from others instead of published.
    #[must_use]
    pub fn is_estimate(&self, machine: &Machine) -> bool {
        let offerings =
            self.types.iter().filter(|t| t.name == machine.instance_type).flat_map(|t| &t.offerings);
        offerings
            .into_iter()
            .any(|o| o.estimated && o.zone == machine.zone && o.capacity_type == machine.capacity_type)
    }

    /// How many spare places a node or machine holds.
    fn spare(&self, node: &str) -> usize {
        self.spare.get(node).copied().unwrap_or(0)
    }

    /// True if every pod has a place.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.plan.unschedulable.is_empty() && self.denied.is_empty()
    }
}

/// Plans for `input` with `types` on offer.
///
/// # Errors
/// What the scheduler can't read, by object and field.
pub fn simulate(
    input: &Input,
    types: Arc<[InstanceType]>,
    options: &Options,
) -> Result<Simulation, InputError> {
    plan(input, types, options, false)
}

fn plan(
    input: &Input,
    types: Arc<[InstanceType]>,
    options: &Options,
    consolidate: bool,
) -> Result<Simulation, InputError> {
    let begun = SystemClock.monotonic();
    let cluster::Demand { mut cluster, denied, mut warnings } = cluster::build(input, &types)?;
    let fixed = standing::launch(input, &types, &mut cluster, &mut warnings);
    let mut plan = croft_scheduler::solve(&cluster, options, &|| false);
    warnings.extend(plan.warnings.iter().cloned());
    fixed.settle(&mut plan);
    let spare = standing::take_spare(&mut plan, &mut warnings);
    let savings = consolidate.then(|| consolidate::search(input, &cluster, &types, options));
    let elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Simulation { plan, spare, denied, warnings, elapsed_ms, types, savings })
}

/// Why a node stays or could go, in words; nothing if the input doesn't say enough to judge.
///
/// # Errors
/// What the scheduler can't read, by object and field.
pub(crate) fn why_node(
    input: &Input,
    types: Arc<[InstanceType]>,
    node: &str,
) -> Result<Option<String>, InputError> {
    let simulation = plan(input, types, &Options::default(), true)?;
    Ok(simulation.savings.and_then(|savings| consolidate::why(&savings, node)))
}

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs, out: &mut Output) -> Result<ExitCode, Failure> {
    let SimulateArgs { files, catalog, effort, consolidate, fail_on_pending, output } = args;
    let mut input = files.load()?;
    let types = match catalog {
        Some(path) => read_catalog(path)?,
        None => croft_cloud::builtin_catalog(),
    };
    let options = Options { effort: *effort, ..Options::default() };
    let mut simulation = plan(&input, types, &options, *consolidate)?;
    let mut warnings = std::mem::take(&mut input.warnings);
    warnings.append(&mut simulation.warnings);
    out.warn(&warnings)?;
    match output {
        Format::Json => json::write(&simulation, &input, out)?,
        Format::Text => text::write(&simulation, &input, out)?,
    }
    Ok(if *fail_on_pending && !simulation.is_complete() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Pods that wait for the same reasons, in the order of the plan.
fn waiting(simulation: &Simulation, input: &Input) -> Vec<(Vec<PodKey>, Vec<WaitReason>)> {
    let mut groups: Vec<(Vec<PodKey>, Vec<WaitReason>)> = Vec::new();
    for denied in &simulation.denied {
        let mut pools: Vec<&str> = input.pools.iter().filter_map(|p| p.metadata.name.as_deref()).collect();
        pools.sort_unstable();
        if pools.is_empty() {
            pools.push("");
        }
        let reasons = pools
            .into_iter()
            .map(|pool| WaitReason {
                pool: pool.to_owned(),
                reason: DENIED.to_owned(),
                detail: denied.refusal.clone(),
            })
            .collect();
        groups.push((denied.pods.clone(), reasons));
    }
    let mut last: Option<Arc<[Reason]>> = None;
    for left in &simulation.plan.unschedulable {
        let same = last.as_ref().is_some_and(|l| Arc::ptr_eq(l, &left.reasons) || **l == *left.reasons);
        if same && let Some((pods, _)) = groups.last_mut() {
            pods.push(left.pod.clone());
            continue;
        }
        last = Some(Arc::clone(&left.reasons));
        groups.push((vec![left.pod.clone()], left.reasons.iter().map(WaitReason::from).collect()));
    }
    groups
}

/// Why one pool doesn't take a pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
struct WaitReason {
    pool: String,
    reason: String,
    detail: String,
}

impl From<&Reason> for WaitReason {
    fn from(reason: &Reason) -> Self {
        Self { pool: reason.pool.clone(), reason: reason.reason.to_string(), detail: reason.detail.clone() }
    }
}

impl From<input::Problem> for InputError {
    fn from(problem: input::Problem) -> Self {
        Self::Problems(vec![problem])
    }
}
