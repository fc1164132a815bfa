//! Status of the CroftConfig: whether its settings are in force, and whether its limits are reached.
//!
//! The controller is the only writer of this status. Every other condition of the whole cluster is one more statement
//! here.

use std::{sync::Arc, time::Duration};

use croft_api::{
    CroftConfig,
    condition::{LIMITS_REACHED, READY, SPEC_VALID, Statement, ZONES_CLOSED, set},
    config::SINGLETON,
    stored::INVALID_SPEC,
};
use croft_scheduler::{LIMIT_COST, LIMIT_NODES, Price, Quantity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use crate::{
    action::{Action, Key},
    definitions::conditions as reasons,
    kube_api::{Kind, Target, Verb},
    kubernetes_features, merge_patch,
    nodepool::static_capacity::StaticCapacity,
    reconcile::{ReconcileContext, object_reference},
    state::{
        Snapshot,
        holdings::{Holdings, count},
    },
};

/// If only a message has changed, it is written this long after the last write: usage changes with every node.
const MESSAGE_EVERY: Duration = Duration::from_secs(30);

/// Writes the status.
#[derive(Debug, Default)]
pub struct ConfigStatus {
    /// The last comparison of the status, and its inputs.
    compared: Option<(Duration, StatusInputs)>,
    written: Option<Duration>,
}

/// The inputs of the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StatusInputs {
    changes: u64,
    /// Pods and headroom pods that the cluster's limits leave unschedulable.
    held: usize,
    /// Pools with static capacity lack nodes because of the cluster's limits.
    short: bool,
    /// The reason of the condition of the mode.
    mode: Option<&'static str>,
    /// The status has all of this.
    written: bool,
}

impl ConfigStatus {
    /// Writes the status, if its inputs have changed. `held` are pods that the cluster's limits leave unschedulable,
    /// `mutation` says what changes pods.
    pub fn reconcile(
        &mut self,
        ctx: &mut ReconcileContext<'_>,
        held: usize,
        static_capacity: &StaticCapacity,
        mutation: Option<Statement>,
    ) {
        let snapshot = ctx.snapshot;
        let Some(config) = snapshot.config() else { return };
        if config.metadata.deletion_timestamp.is_some() || !ctx.is_idle(&Key::Config) {
            return;
        }
        let short = static_capacity.is_held_by_cluster_limits();
        let mode = mutation.as_ref().map(|statement| statement.reason);
        let inputs = StatusInputs { changes: snapshot.changes(), held, short, mode, written: true };
        if let Some((at, compared)) = self.compared
            && (compared == inputs || !ctx.has_lasted(at, ctx.settings.status_every))
        {
            return;
        }
        self.compared = Some((ctx.now.mono, inputs));
        let mut statements = statements(ctx, inputs, config);
        statements.extend(mutation);
        let old = config.status.clone().unwrap_or_default();
        let mut new = old.clone();
        new.conditions.retain(|c| statements.iter().any(|s| s.kind == c.type_));
        for statement in statements {
            set(&mut new.conditions, statement, config.metadata.generation, Time(ctx.now.wall));
        }
        let Some(patch) = merge_patch::diff_of(&old, &new) else { return };
        if without_messages(&old.conditions) == without_messages(&new.conditions)
            && self.written.is_some_and(|at| !ctx.has_lasted(at, MESSAGE_EVERY))
        {
            self.compared = Some((ctx.now.mono, StatusInputs { written: false, ..inputs }));
            return;
        }
        self.written = Some(ctx.now.mono);
        let reached = |c: &&Condition| c.type_ == LIMITS_REACHED && c.status == "True";
        let is_new = !old.conditions.iter().any(|c| reached(&c));
        if let Some(condition) = new.conditions.iter().find(reached).filter(|_| is_new) {
            ctx.event_from_condition(object_reference(&**config), condition);
        }
        ctx.request(Action::write(
            Target::Config(SINGLETON.to_owned()),
            Verb::PatchStatus(json!({
                "metadata": {"uid": config.metadata.uid, "resourceVersion": config.metadata.resource_version},
                "status": patch,
            })),
        ));
    }
}

/// All of the conditions but their messages and times.
fn without_messages(conditions: &[Condition]) -> Vec<(&str, &str, &str, Option<i64>)> {
    conditions
        .iter()
        .map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str(), c.observed_generation))
        .collect()
}

fn statements(
    ctx: &mut ReconcileContext<'_>,
    inputs: StatusInputs,
    config: &Arc<CroftConfig>,
) -> Vec<Statement> {
    let problem = ctx.snapshot.problem("CroftConfig", SINGLETON);
    let mut statements = vec![match problem {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: reasons::READY,
            message: "the settings are in force".to_owned(),
        },
        Some(problem) => Statement {
            kind: READY,
            status: Some(false),
            reason: reasons::UNREADABLE,
            message: format!(
                "{}: {}; no node is launched until it is corrected",
                problem.field, problem.problem
            ),
        },
    }];
    statements.extend(zones_condition(ctx.snapshot));
    if problem.is_none() && !config.spec.limits.is_empty() {
        statements.push(limits_condition(ctx, inputs, config));
    }
    statements.extend(kubernetes_features::cluster_condition(ctx.snapshot.release()));
    if let Some(invalid) = ctx.snapshot.invalid_objects().get(Kind::CroftConfig, SINGLETON) {
        let message = format!("{}; until it is corrected, the other settings are in force", invalid.why);
        ctx.event(object_reference(&**config), true, INVALID_SPEC, message.clone());
        let kind = SPEC_VALID;
        statements.push(Statement { kind, status: Some(false), reason: INVALID_SPEC, message });
    }
    statements
}

/// The zones that are closed, if some are.
fn zones_condition(snapshot: &Snapshot) -> Option<Statement> {
    let closed: Vec<String> = snapshot.closed_zones().values().map(ToString::to_string).collect();
    (!closed.is_empty()).then(|| Statement {
        kind: ZONES_CLOSED,
        status: Some(true),
        reason: reasons::DECLARED_BAD,
        message: closed.join("; "),
    })
}

fn limits_condition(ctx: &ReconcileContext<'_>, inputs: StatusInputs, config: &CroftConfig) -> Statement {
    let snapshot = ctx.snapshot;
    let mut used = Holdings::default();
    for pool in snapshot.pools().keys() {
        used.add(&count(snapshot, pool));
    }
    let (mut usage, mut full) = (Vec::new(), false);
    for (name, limit) in &config.spec.limits {
        let Ok(most) = limit.0.parse::<Quantity>() else { continue };
        let (amount, is_full) = match name.as_str() {
            LIMIT_NODES => (used.nodes.to_string(), used.nodes >= most.units()),
            // An unknown price may be anything.
            LIMIT_COST => {
                (used.cost_text(), used.unpriced > 0 || used.cost >= Price::from_micros(most.micros_floor()))
            }
            _ => {
                let amount = used.capacity.quantity(name);
                (amount.to_string(), amount >= most)
            }
        };
        usage.push(format!("{name} {amount} of {}", limit.0));
        full |= is_full;
    }
    let StatusInputs { held, short, .. } = inputs;
    let mut message = format!("the nodes of all pools have {}", usage.join(", "));
    if held > 0 {
        message
            .push_str(&format!("; {held} pods or headroom pods are unschedulable because of these limits"));
    }
    if short {
        message.push_str("; pools with replicas lack nodes because of these limits");
    }
    let (status, reason) = match (held > 0 || short, full) {
        (true, _) => (true, reasons::LAUNCHES_HELD),
        (false, true) => (true, reasons::FULL),
        (false, false) => (false, reasons::WITHIN_LIMITS),
    };
    if status {
        message.push_str("; raise spec.limits, or remove nodes that aren't needed");
    }
    Statement { kind: LIMITS_REACHED, status: Some(status), reason, message }
}
