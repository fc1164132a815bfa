//! Plans that panic: the pods that make them panic are found by the pools that they may enter, and left out, so that the
//! other pools are planned as ever.
//!
//! ```text
//!   plan for all ──panics──▶ halves, and halves of them, until what panics alone is found ──▶ left out
//!                                                                                               │
//!   planned with the rest again, when its pods, nodes or pools have changed (10 s later at least) ◀┘  or after 5 min
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use croft_api::condition::Statement;
use croft_scheduler::{Options, Plan, consolidation::Consolidation};

use crate::{
    snapshot::Snapshot,
    solver::{Panicked, Run},
    time::{Now, earliest},
};

/// What has changed is tried again after this long.
const TRY_CHANGED: Duration = Duration::from_secs(10);
/// What hasn't changed: the panic may depend on something else.
const TRY_AGAIN: Duration = Duration::from_secs(300);
/// The condition of a pool whose plans panic.
const PLANNING_FAILED: &str = "PlanningFailed";

/// The pools that some waiting pods may enter; pods with the same ones are left out together.
type Pools = Vec<String>;

#[derive(Debug)]
struct LeftOut {
    picture: u64,
    at: Duration,
    why: String,
}

/// What is left out of plans, and which other plans have panicked.
#[derive(Debug, Default)]
pub struct Apart {
    left_out: BTreeMap<Pools, LeftOut>,
    /// By pool and kind of plan.
    failed: BTreeMap<(String, Run), String>,
}

impl Apart {
    /// Plans for the pods that wait, without those that make it panic.
    pub fn plan(&mut self, snapshot: &Snapshot, options: &Options, now: Now) -> Plan {
        if !self.left_out.is_empty() {
            self.readmit(snapshot, now);
        }
        let planned = if self.left_out.is_empty() {
            snapshot.solver.plan(Run::Pods, &snapshot.cluster, options)
        } else {
            let rest = snapshot.cluster.with_waiting(|pools| !self.left_out.contains_key(pools));
            snapshot.solver.plan(Run::Pods, &rest, options)
        };
        planned.unwrap_or_else(|_| self.find(snapshot, options, now))
    }

    /// Lets those be planned again that are not what they were when they were left out.
    fn readmit(&mut self, snapshot: &Snapshot, now: Now) {
        let waiting = snapshot.cluster.waiting_by_pools();
        self.left_out.retain(|pools, left_out| {
            let passed = now.mono.saturating_sub(left_out.at);
            let Some(pods) = waiting.get(pools) else { return false };
            let changed = left_out.picture != picture(snapshot, pools, *pods);
            passed < if changed { TRY_CHANGED } else { TRY_AGAIN }
        });
    }

    /// When something that is left out is due to be tried again. True if that is now.
    pub fn due(&self, now: Now) -> (bool, Option<Duration>) {
        let times = self.left_out.values().map(|left_out| left_out.at.saturating_add(TRY_AGAIN));
        let next = times.fold(None, |next, at| earliest(next, Some(at)));
        (next.is_some_and(|at| at <= now.mono), next.filter(|at| *at > now.mono))
    }

    /// Finds out whose pods panic, leaves them out, and plans for the others.
    fn find(&mut self, snapshot: &Snapshot, options: &Options, now: Now) -> Plan {
        let waiting = snapshot.cluster.waiting_by_pools();
        let suspects: Vec<&Pools> =
            waiting.keys().filter(|pools| !self.left_out.contains_key(*pools)).collect();
        let plan_for = |chosen: &[&Pools]| {
            let some = snapshot.cluster.with_waiting(|pools| chosen.iter().any(|c| c.as_slice() == pools));
            snapshot.solver.plan(Run::Pods, &some, options)
        };
        let mut culprits = Vec::new();
        let (_, plan) = sound(&suspects, &plan_for, &mut culprits);
        for (pools, Panicked(why)) in culprits {
            let pods = waiting.get(pools).copied().unwrap_or_default();
            let picture = picture(snapshot, pools, pods);
            self.left_out.insert(pools.clone(), LeftOut { picture, at: now.mono, why });
        }
        plan
    }

    /// Notes how a plan of another kind for a pool ended.
    pub fn note(&mut self, pool: &str, run: Run, panicked: Option<&Panicked>) {
        let key = (pool.to_owned(), run);
        match panicked {
            Some(Panicked(why)) => {
                self.failed.insert(key, why.clone());
            }
            None => {
                self.failed.remove(&key);
            }
        }
    }

    /// Forgets pools that are gone.
    pub fn keep(&mut self, snapshot: &Snapshot) {
        self.failed.retain(|(pool, _), _| snapshot.pools.contains_key(pool));
    }

    /// What a pool says while its plans panic.
    #[must_use]
    pub fn statement(&self, pool: &str) -> Option<Statement> {
        let pods = self.left_out.iter().find(|(pools, _)| pools.iter().any(|name| name == pool));
        let pods = pods.map(|(_, left_out)| (Run::Pods, left_out.why.as_str()));
        let others = self.failed.iter().filter(|((name, _), _)| name == pool);
        let (run, why) = pods.or_else(|| others.map(|((_, run), why)| (*run, why.as_str())).next())?;
        Some(Statement {
            kind: PLANNING_FAILED,
            status: Some(true),
            reason: "SolverPanicked",
            message: format!(
                "planning for it ({}) panicked: {why}. It is left out until its pods, nodes or spec change, and other \
                 pools are planned; please report this with the log of croft-controller",
                run.as_str()
            ),
        })
    }
}

/// The largest of the sets tried whose plan doesn't panic, with that plan; what panics alone, or only together with what
/// was found sound before it, goes to `culprits`.
fn sound<'p>(
    suspects: &[&'p Pools],
    plan_for: &impl Fn(&[&Pools]) -> Result<Plan, Panicked>,
    culprits: &mut Vec<(&'p Pools, Panicked)>,
) -> (Vec<&'p Pools>, Plan) {
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
        // Without any pod it panics as well: nothing can be planned.
        return (Vec::new(), Plan::default());
    }
    let (kept, plan) = sound(left, plan_for, culprits);
    let (more, other) = sound(right, plan_for, culprits);
    if kept.is_empty() {
        return (more, other);
    }
    if more.is_empty() {
        return (kept, plan);
    }
    let both: Vec<&Pools> = kept.iter().chain(&more).copied().collect();
    match plan_for(&both) {
        Ok(plan) => (both, plan),
        Err(why) => {
            culprits.extend(more.into_iter().map(|pools| (pools, why.clone())));
            (kept, plan)
        }
    }
}

/// Changes with whatever the plan for these pods depends on.
fn picture(snapshot: &Snapshot, pools: &[String], pods: u64) -> u64 {
    pools.iter().map(|pool| snapshot.touched(pool)).fold(pods, u64::wrapping_add)
}

/// Searches for a cheaper cluster in all of `pools` at once; if that panics, in each alone. Answers what was found, and the
/// pools whose search panicked.
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
                all.moves.extend(found.moves);
                all.stays.extend(found.stays);
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
