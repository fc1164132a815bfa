//! Expired and drifted nodes: replaced whatever it costs, as many at once as the budgets allow.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use croft_api::{
    NodeClaim, TenantPool,
    condition::{DRIFTED, EXPIRED, INITIALIZED, Statement, set},
    disruption::DisruptionReason,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{
    budgets::Ledger,
    drift::{self, Standing},
    expiry, guard,
    moves::{self, Moves},
};
use crate::{
    action::{Action, Key},
    decide::{Memory, Round, conditions, reference},
    names,
    seam::{Call, Target, Verb},
    snapshot::is,
};

/// Between two looks at all nodes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Nodes replaced by one move: if one of its machines doesn't come, all of them stay.
const TOGETHER: usize = 5;

/// A node that is to be replaced.
struct Due<'a> {
    name: &'a String,
    claim: &'a Arc<NodeClaim>,
    node: &'a str,
    reason: DisruptionReason,
    why: String,
}

/// Decides about every node that is too old or not as it would be launched now.
pub fn decide<'a>(round: &mut Round<'a>, memory: &mut Memory, ledger: &mut Ledger<'a>, moves: &Moves<'_>) {
    let looked = memory.disruption.looked.filter(|at| !round.has_lasted(*at, LOOK_EVERY));
    if looked.is_some() {
        return;
    }
    memory.disruption.looked = Some(round.now.mono);
    let snapshot = round.snapshot;
    let mut due: BTreeMap<&String, Vec<Due<'_>>> = BTreeMap::new();
    let (mut said, mut stamps) = (Vec::new(), Vec::new());
    for (name, claim) in &snapshot.claims {
        if claim.metadata.deletion_timestamp.is_some() || !is(claim, INITIALIZED) {
            continue;
        }
        let Some((pool_name, pool)) = snapshot.pools.get_key_value(&claim.spec.pool) else { continue };
        let Some((node, view)) = snapshot.node_of(claim) else { continue };
        let class = snapshot.class_of(pool).and_then(|c| snapshot.classes.get(c));
        let standing = class.map(|class| drift::judge(claim, view, pool, &class.object));
        let drifted = match standing {
            Some(Standing::Drifted(fields)) => Some(fields.join(", ")),
            Some(Standing::Unstamped(stamp)) => {
                stamps.push((name, claim, stamp));
                None
            }
            Some(Standing::Current) | None => None,
        };
        let expired = expiry::at(claim, pool).filter(|at| {
            let left = Duration::try_from(at.duration_since(round.now.wall)).unwrap_or(Duration::ZERO);
            if !left.is_zero() {
                round.wake_in(left);
            }
            left.is_zero()
        });
        said.push((name, claim, expired.is_some(), drifted.clone()));
        let (reason, why) = match (expired, drifted) {
            (Some(_), _) => (DisruptionReason::Expired, "it is older than expireAfter".to_owned()),
            (None, Some(fields)) => (DisruptionReason::Drifted, format!("{fields} changed since its launch")),
            (None, None) => continue,
        };
        if moves.is_replaced(name) || moves.is_awaited(name) || memory.disruption.holds(name, round) {
            continue;
        }
        if let Some(keeps) = keeps(round, claim, node, view, pool) {
            let note = format!("{}: {why}, but {keeps}", reason.as_str());
            round.tell(reference(&**claim), false, "DisruptionBlocked", note);
            continue;
        }
        due.entry(pool_name).or_default().push(Due { name, claim, node, reason, why });
    }
    for (pool_name, mut due) in due {
        let Some(pool) = snapshot.pools.get(pool_name) else { continue };
        if moves.concerns(pool_name) || pool.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // The oldest first, and all of one move for the same reason.
        due.sort_by_key(|d| {
            (d.reason != DisruptionReason::Expired, d.claim.metadata.creation_timestamp.clone())
        });
        let Some(reason) = due.first().map(|d| d.reason) else { continue };
        due.retain(|d| d.reason == reason);
        due.truncate(ledger.left(round, pool, reason).min(TOGETHER));
        replace(round, ledger, reason, &due);
    }
    // Last: a claim that is being written would hold up its deletion.
    for (name, claim, stamp) in stamps {
        round.act(restamp(name, claim, &stamp));
    }
    for (name, claim, expired, drifted) in said {
        say(round, name, claim, expired, drifted.as_deref());
    }
}

fn replace<'a>(round: &mut Round<'a>, ledger: &mut Ledger<'a>, reason: DisruptionReason, due: &[Due<'a>]) {
    // All that fit together; else the first that does alone.
    let sets = [due.get(..)].into_iter().chain((0..due.len()).map(|at| due.get(at..=at))).flatten();
    for set in sets.filter(|set| !set.is_empty()) {
        let nodes: Vec<&str> = set.iter().map(|d| d.node).collect();
        match moves::instead(round.snapshot, set.iter().map(|d| d.claim), &nodes) {
            Ok(plan) => {
                let claims: Vec<(&str, &Arc<NodeClaim>)> =
                    set.iter().map(|d| (d.name.as_str(), d.claim)).collect();
                let why = set.first().map_or("", |d| d.why.as_str());
                if moves::begin(round, reason.as_str(), &claims, &plan.machines, why) {
                    set.iter().for_each(|d| ledger.take(&d.claim.spec.pool));
                }
                return;
            }
            Err(why) => {
                if let [one] = set {
                    let note = format!("{}: {}, but without the node {why}", reason.as_str(), one.why);
                    round.tell(reference(&**one.claim), true, "DisruptionBlocked", note);
                }
            }
        }
    }
}

/// A pool's terminationGracePeriod is the word that nothing holds a node for ever: pods then don't hold it here.
fn keeps(
    round: &Round<'_>,
    claim: &NodeClaim,
    node: &str,
    view: &crate::snapshot::NodeView,
    pool: &TenantPool,
) -> Option<guard::Keeps> {
    let bounded = claim.spec.termination_grace_period.is_some();
    guard::asked(claim, view, pool).or_else(|| if bounded { None } else { guard::pods(round.snapshot, node) })
}

fn restamp(name: &str, claim: &NodeClaim, stamp: &str) -> Action {
    Action::Write {
        key: Key::Claim(name.to_owned()),
        call: Call {
            target: Target::Claim(name.to_owned()),
            verb: Verb::Patch(json!({"metadata": {
                "uid": claim.metadata.uid,
                "annotations": {names::LAUNCHED_WITH: stamp},
            }})),
        },
        rest: Duration::ZERO,
    }
}

/// Says on the claim what is so, and takes back what isn't any more.
fn say(round: &mut Round<'_>, name: &str, claim: &NodeClaim, expired: bool, drifted: Option<&str>) {
    let Some(mut status) = claim.status.clone() else { return };
    let mut changed = false;
    let said = [
        (EXPIRED, expired, "TooOld", "the node is older than its pool's expireAfter".to_owned()),
        (
            DRIFTED,
            drifted.is_some(),
            "FieldsChanged",
            format!("changed since the launch: {}", drifted.unwrap_or_default()),
        ),
    ];
    for (kind, is, reason, message) in said {
        if is {
            let statement = Statement { kind, status: Some(true), reason, message };
            let generation = claim.metadata.generation;
            changed |= set(&mut status.conditions, statement, generation, Time(round.now.wall));
        } else {
            let before = status.conditions.len();
            status.conditions.retain(|c| c.type_ != kind);
            changed |= status.conditions.len() != before;
        }
    }
    if changed && let Some(call) = conditions::write_status(claim, &status) {
        round.act(Action::Write { key: Key::Claim(name.to_owned()), call, rest: Duration::ZERO });
    }
}
