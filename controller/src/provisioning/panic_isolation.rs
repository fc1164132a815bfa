//! Isolates pods that make the scheduler panic: they are found by bisection over the pools that pods may enter, and left
//! out, so that the other pools are planned as before.
//!
//! ```text
//!   plan for all ──panics──▶ halves, and halves of them, until the pods are found that panic alone ──▶ left out
//!                                                                                                        │
//!   readmitted when their pods, nodes or pools have changed (after 10 s at least), or after 5 minutes ◀──┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::condition::Statement;
use croft_scheduler::{Options, Plan, consolidation::Consolidation};

use crate::{
    definitions::conditions as reasons,
    solver::{Panicked, Purpose, Solver},
    state::Snapshot,
    time::{Now, earliest},
};

/// Changed pods are tried again after this long.
const RETRY_CHANGED: Duration = Duration::from_secs(10);
/// Unchanged pods are tried again after this long: the panic may depend on something else.
const RETRY_UNCHANGED: Duration = Duration::from_secs(300);

/// The pools that some pending pods may enter; pods with the same pools are left out together.
type PoolSet = Vec<String>;

#[derive(Debug)]
struct LeftOut {
    inputs: u64,
    at: Duration,
    why: String,
}

/// Pods left out of plans, and other plans that have panicked.
#[derive(Debug, Default)]
pub struct PanicIsolation {
    left_out: BTreeMap<PoolSet, LeftOut>,
    /// By pool and purpose of the plan.
    failed: BTreeMap<(String, Purpose), String>,
}

impl PanicIsolation {
    /// Plans for the pending pods, without those that make the plan panic.
    pub fn plan(&mut self, snapshot: &Snapshot, solver: &Solver, options: &Options, now: Now) -> Plan {
        if !self.left_out.is_empty() {
            self.readmit(snapshot, now);
        }
        let planned = if self.left_out.is_empty() {
            solver.plan(Purpose::Pods, snapshot.cluster(), options)
        } else {
            let rest = snapshot.cluster().with_waiting(|pools| !self.left_out.contains_key(pools));
            solver.plan(Purpose::Pods, &rest, options)
        };
        planned.unwrap_or_else(|_| self.find_culprits(snapshot, solver, options, now))
    }

    /// Readmits pods that have changed since they were left out.
    fn readmit(&mut self, snapshot: &Snapshot, now: Now) {
        let waiting = snapshot.cluster().waiting_by_pools();
        self.left_out.retain(|pools, left_out| {
            let passed = now.mono.saturating_sub(left_out.at);
            let Some(pods) = waiting.get(pools) else { return false };
            let changed = left_out.inputs != plan_inputs(snapshot, pools, *pods);
            passed < if changed { RETRY_CHANGED } else { RETRY_UNCHANGED }
        });
    }

    /// When pods that are left out are due for another try. True if that is now.
    pub fn retry_due(&self, now: Now) -> (bool, Option<Duration>) {
        let times = self.left_out.values().map(|left_out| left_out.at.saturating_add(RETRY_UNCHANGED));
        let next = times.fold(None, |next, at| earliest(next, Some(at)));
        (next.is_some_and(|at| at <= now.mono), next.filter(|at| *at > now.mono))
    }

    /// Finds the pods that make the plan panic, leaves them out, and plans for the others.
    fn find_culprits(&mut self, snapshot: &Snapshot, solver: &Solver, options: &Options, now: Now) -> Plan {
        let waiting = snapshot.cluster().waiting_by_pools();
        let suspects: Vec<&PoolSet> =
            waiting.keys().filter(|pools| !self.left_out.contains_key(*pools)).collect();
        let plan_for = |chosen: &[&PoolSet]| {
            let some = snapshot.cluster().with_waiting(|pools| chosen.iter().any(|c| c.as_slice() == pools));
            solver.plan(Purpose::Pods, &some, options)
        };
        let mut culprits = Vec::new();
        let (_, plan) = largest_sound_set(&suspects, &plan_for, &mut culprits);
        for (pools, Panicked(why)) in culprits {
            let pods = waiting.get(pools).copied().unwrap_or_default();
            let inputs = plan_inputs(snapshot, pools, pods);
            self.left_out.insert(pools.clone(), LeftOut { inputs, at: now.mono, why });
        }
        plan
    }

    /// Records the outcome of another plan for a pool.
    pub fn record(&mut self, pool: &str, purpose: Purpose, panicked: Option<&Panicked>) {
        let key = (pool.to_owned(), purpose);
        match panicked {
            Some(Panicked(why)) => {
                self.failed.insert(key, why.clone());
            }
            None => {
                self.failed.remove(&key);
            }
        }
    }

    /// Forgets deleted pools.
    pub fn retain_known(&mut self, snapshot: &Snapshot) {
        self.failed.retain(|(pool, _), _| snapshot.pools().contains_key(pool));
    }

    /// The condition of a pool whose plans panic.
    #[must_use]
    pub fn statement(&self, pool: &str) -> Option<Statement> {
        let pods = self.left_out.iter().find(|(pools, _)| pools.iter().any(|name| name == pool));
        let pods = pods.map(|(_, left_out)| (Purpose::Pods, left_out.why.as_str()));
        let others = self.failed.iter().filter(|((name, _), _)| name == pool);
        let (purpose, why) =
            pods.or_else(|| others.map(|((_, purpose), why)| (*purpose, why.as_str())).next())?;
        Some(Statement {
            kind: reasons::PLANNING_FAILED,
            status: Some(true),
            reason: reasons::SOLVER_PANICKED,
            message: format!(
                "the scheduler panicked on it ({}): {why}. It is left out until its pods, nodes or spec change; other pools \
                 are planned. Report this with the log of croft-controller",
                purpose.as_str()
            ),
        })
    }
}

/// The largest of the sets tried whose plan doesn't panic, with that plan. Sets that panic alone, or only together
/// with the sound set before them, go to `culprits`.
fn largest_sound_set<'p>(
    suspects: &[&'p PoolSet],
    plan_for: &impl Fn(&[&PoolSet]) -> Result<Plan, Panicked>,
    culprits: &mut Vec<(&'p PoolSet, Panicked)>,
) -> (Vec<&'p PoolSet>, Plan) {
    let why = match plan_for(suspects) {
        Ok(plan) => return (suspects.to_vec(), plan),
        Err(why) => why,
    };
    if let [one] = suspects {
        culprits.push((*one, why));
        return (Vec::new(), Plan::default());
    }
    let (left, right) = suspects.split_at(suspects.len() / 2);
    if left.is_empty() {
        // It panics without any pod, too: nothing can be planned.
        return (Vec::new(), Plan::default());
    }
    let (kept, plan) = largest_sound_set(left, plan_for, culprits);
    let (more, other) = largest_sound_set(right, plan_for, culprits);
    if kept.is_empty() {
        return (more, other);
    }
    if more.is_empty() {
        return (kept, plan);
    }
    let both: Vec<&PoolSet> = kept.iter().chain(&more).copied().collect();
    match plan_for(&both) {
        Ok(plan) => (both, plan),
        Err(why) => {
            culprits.extend(more.into_iter().map(|pools| (pools, why.clone())));
            (kept, plan)
        }
    }
}

/// Changes with any input of the plan for these pods.
fn plan_inputs(snapshot: &Snapshot, pools: &[String], pods: u64) -> u64 {
    pools.iter().map(|pool| snapshot.pool_version(pool)).fold(pods, u64::wrapping_add)
}

/// Searches for a cheaper cluster in all of `pools` at once; if that panics, in each pool alone. Returns what was
/// found, and the pools whose search panicked.
pub fn search(
    pools: &BTreeSet<String>,
    search: impl Fn(&BTreeSet<String>) -> Result<Consolidation, Panicked>,
) -> (Consolidation, BTreeMap<String, Panicked>) {
    if let Ok(found) = search(pools) {
        return (found, BTreeMap::new());
    }
    let (mut all, mut panicked) = (Consolidation::default(), BTreeMap::new());
    for pool in pools {
        match search(&BTreeSet::from([pool.clone()])) {
            Ok(found) => {
                all.commands.extend(found.commands);
                all.rejections.extend(found.rejections);
                all.before = all.before.saturating_add(found.before);
                all.after = all.after.saturating_add(found.after);
                all.steps = all.steps.saturating_add(found.steps);
                all.cut_short |= found.cut_short;
            }
            Err(why) => {
                panicked.insert(pool.clone(), why);
            }
        }
    }
    (all, panicked)
}
