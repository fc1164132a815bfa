//! Conditions of claims.

use croft_api::{
    NodeClaim, NodeClaimStatus,
    condition::{INITIALIZED, INTERRUPTED, LAUNCHED, READY, REGISTERED, Statement, is_true, set},
};
use croft_cloud::InterruptionKind;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use crate::{
    definitions::conditions as reasons,
    kube_api::{Call, Target, Verb},
    merge_patch,
};

/// The steps of a claim, in order; `Ready` rolls them up.
const STEPS: [&str; 3] = [LAUNCHED, REGISTERED, INITIALIZED];

/// Sets `statement` in `status`, and `Ready` accordingly.
pub fn set_with_ready(
    status: &mut NodeClaimStatus,
    statement: Statement,
    generation: Option<i64>,
    now: Timestamp,
) {
    set(&mut status.conditions, statement, generation, Time(now));
    let missing = STEPS.iter().find(|step| !is_true(&status.conditions, step));
    let ready = match missing {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: reasons::READY,
            message: "the node takes pods".to_owned(),
        },
        Some(step) => Statement {
            kind: READY,
            status: Some(false),
            reason: match *step {
                LAUNCHED => reasons::NOT_LAUNCHED,
                REGISTERED => reasons::NOT_REGISTERED,
                _ => reasons::NOT_INITIALIZED,
            },
            message: find_condition(status, step).map(|c| c.message.clone()).unwrap_or_default(),
        },
    };
    set(&mut status.conditions, ready, generation, Time(now));
}

/// A claim's condition by its type.
#[must_use]
pub fn find_condition<'a>(status: &'a NodeClaimStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == kind)
}

/// The kind of interruption that the claim's condition names.
#[must_use]
pub fn interruption_kind(claim: &NodeClaim) -> Option<InterruptionKind> {
    use InterruptionKind::{Rebalance, ScheduledChange, SpotWarning, StateChange};
    let condition = find_condition(claim.status.as_ref()?, INTERRUPTED)?;
    [StateChange, SpotWarning, ScheduledChange, Rebalance]
        .into_iter()
        .find(|kind| kind.as_str() == condition.reason)
}

/// True if the claim says that its instance is stopping or terminating: nothing on it can be waited for.
#[must_use]
pub fn is_instance_going(claim: &NodeClaim) -> bool {
    interruption_kind(claim) == Some(InterruptionKind::StateChange)
}

/// The call that writes `status` as `claim`'s status, unless it already is. The call holds only for the version of the
/// claim that was decided on.
#[must_use]
pub fn write_status(claim: &NodeClaim, status: &NodeClaimStatus) -> Option<Call> {
    let old = claim.status.clone().unwrap_or_default();
    let patch = merge_patch::diff_of(&old, status)?;
    Some(Call {
        target: Target::Claim(claim.metadata.name.clone()?),
        verb: Verb::PatchStatus(json!({
            "metadata": {
                "uid": claim.metadata.uid,
                "resourceVersion": claim.metadata.resource_version,
            },
            "status": patch,
        })),
    })
}
