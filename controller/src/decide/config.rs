//! The CroftConfig's status: whether its settings are in force, and whether its limits are reached.
//!
//! The controller is the only writer of this status; whatever else concerns the whole cluster is one more statement
//! here.

use std::{sync::Arc, time::Duration};

use croft_api::{
    CroftConfig,
    condition::{LIMITS_REACHED, READY, SPEC_VALID, Statement, set},
    config::SINGLETON,
    stored::INVALID_SPEC,
};
use croft_scheduler::{LIMIT_COST, LIMIT_NODES, Plan, Price, Quantity, ReasonKind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use super::{Memory, Round, pools, reference};
use crate::{
    action::{Action, Key},
    merge,
    seam::{Call, Target, Verb},
};

/// A message that alone has changed is written this long after the last: usage changes with every node.
const MESSAGE_EVERY: Duration = Duration::from_secs(30);

/// What is known of the cluster's limits, and when it was last compared with the status.
#[derive(Debug, Default)]
pub struct Looked {
    /// Pods and spare places that the last plan left out for want of room under the cluster's limits.
    held: usize,
    /// When the status was last compared, and with what.
    compared: Option<(Duration, Picture)>,
    written: Option<Duration>,
}

/// What the status is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Picture {
    changes: u64,
    held: usize,
    /// Pools of a fixed size lack nodes because of the cluster's limits.
    short: bool,
    /// The status says all of this.
    said: bool,
}

impl Looked {
    /// Pods and spare places that the last plan left out for want of room under the cluster's limits.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Takes in what a plan left out; none if nothing waits.
    pub fn planned(&mut self, plan: Option<&Plan>) {
        let left = plan.into_iter().flat_map(|plan| &plan.unschedulable);
        self.held = left
            .filter(|left| left.reasons.iter().any(|reason| reason.reason == ReasonKind::ClusterLimit))
            .count();
    }
}

/// Decides what to say about the CroftConfig.
pub fn decide(round: &mut Round<'_>, memory: &mut Memory) {
    let snapshot = round.snapshot;
    let Some(config) = &snapshot.config else { return };
    if config.metadata.deletion_timestamp.is_some() || !round.is_idle(&Key::Config) {
        return;
    }
    let picture = Picture {
        changes: snapshot.changes,
        held: memory.config.held,
        short: snapshot.pools.keys().any(|pool| memory.standing.is_held_by_cluster(pool)),
        said: true,
    };
    if let Some((at, compared)) = memory.config.compared
        && (compared == picture || !round.has_lasted(at, round.settings.status_every))
    {
        return;
    }
    memory.config.compared = Some((round.now.mono, picture));
    let mut statements = statements(round, picture, config);
    if let Some(unread) = snapshot.unread.get(&("CroftConfig", SINGLETON.to_owned())) {
        let message = format!("{}; until it is corrected, the rest of the settings holds", unread.why);
        round.tell(reference(&**config), true, INVALID_SPEC, message.clone());
        statements.push(Statement { kind: SPEC_VALID, status: Some(false), reason: INVALID_SPEC, message });
    }
    let old = config.status.clone().unwrap_or_default();
    let mut new = old.clone();
    new.conditions.retain(|c| statements.iter().any(|s| s.kind == c.type_));
    for statement in statements {
        set(&mut new.conditions, statement, config.metadata.generation, Time(round.now.wall));
    }
    let Some(patch) = merge::diff_of(&old, &new) else { return };
    let lately = memory.config.written;
    if says(&old.conditions) == says(&new.conditions)
        && lately.is_some_and(|at| !round.has_lasted(at, MESSAGE_EVERY))
    {
        memory.config.compared = Some((round.now.mono, Picture { said: false, ..picture }));
        return;
    }
    memory.config.written = Some(round.now.mono);
    let reached = |list: &[Condition]| list.iter().any(|c| c.type_ == LIMITS_REACHED && c.status == "True");
    if !reached(&old.conditions)
        && let Some(condition) =
            new.conditions.iter().find(|c| c.type_ == LIMITS_REACHED && c.status == "True")
    {
        round.repeat(reference(&**config), condition);
    }
    round.act(Action::Write {
        key: Key::Config,
        call: Call {
            target: Target::Config(SINGLETON.to_owned()),
            verb: Verb::PatchStatus(json!({
                "metadata": {"uid": config.metadata.uid, "resourceVersion": config.metadata.resource_version},
                "status": patch,
            })),
        },
        rest: Duration::ZERO,
    });
}

/// What a reader acts on: all but the words.
fn says(conditions: &[Condition]) -> Vec<(&str, &str, &str, Option<i64>)> {
    conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str(), c.observed_generation))
        .collect()
}

fn statements(round: &Round<'_>, picture: Picture, config: &Arc<CroftConfig>) -> Vec<Statement> {
    let problem = round.snapshot.problems.get(&format!("CroftConfig {SINGLETON}"));
    let mut said = vec![match problem {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: "Ready",
            message: "the settings are in force".to_owned(),
        },
        Some(problem) => Statement {
            kind: READY,
            status: Some(false),
            reason: "Unreadable",
            message: format!(
                "{}: {}; no node is launched until it is corrected",
                problem.field, problem.problem
            ),
        },
    }];
    if problem.is_none() && !config.spec.limits.is_empty() {
        said.push(limits(round, picture, config));
    }
    said
}

fn limits(round: &Round<'_>, picture: Picture, config: &CroftConfig) -> Statement {
    let snapshot = round.snapshot;
    let mut held = pools::Holdings::default();
    for pool in snapshot.pools.keys() {
        held.add(&pools::count(snapshot, pool));
    }
    let (mut usage, mut full) = (Vec::new(), false);
    for (name, limit) in &config.spec.limits {
        let Ok(most) = limit.0.parse::<Quantity>() else { continue };
        let (used, is_full) = match name.as_str() {
            LIMIT_NODES => (held.nodes.to_string(), held.nodes >= most.units()),
            LIMIT_COST => (held.cost.to_string(), held.cost >= Price::from_micros(most.micros_floor())),
            _ => {
                let used = held.capacity.quantity(name);
                (used.to_string(), used >= most)
            }
        };
        usage.push(format!("{name} {used} of {}", limit.0));
        full |= is_full;
    }
    let Picture { held: waiting, short, .. } = picture;
    let mut message = format!("the nodes of all pools have {}", usage.join(", "));
    if waiting > 0 {
        message.push_str(&format!("; {waiting} pods or spare places wait for room under these limits"));
    }
    if short {
        message.push_str("; pools with replicas lack nodes for want of room under these limits");
    }
    let (status, reason) = match (waiting > 0 || short, full) {
        (true, _) => (true, "LaunchesHeld"),
        (false, true) => (true, "Full"),
        (false, false) => (false, "WithinLimits"),
    };
    if status {
        message.push_str("; raise spec.limits, or remove what isn't needed");
    }
    Statement { kind: LIMITS_REACHED, status: Some(status), reason, message }
}
