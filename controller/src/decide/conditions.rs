//! Conditions of claims.

use croft_api::{
    NodeClaim, NodeClaimStatus,
    condition::{INITIALIZED, LAUNCHED, READY, REGISTERED, Statement, is_true, set},
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;

use crate::{
    merge,
    seam::{Call, Target, Verb},
};

/// The steps of a claim, in order; `Ready` sums them up.
const STEPS: [&str; 3] = [LAUNCHED, REGISTERED, INITIALIZED];

/// Says `statement` in `status`, and what `Ready` says then.
pub fn say(status: &mut NodeClaimStatus, statement: Statement, generation: Option<i64>, now: Timestamp) {
    set(&mut status.conditions, statement, generation, Time(now));
    let missing = STEPS.iter().find(|step| !is_true(&status.conditions, step));
    let ready = match missing {
        None => Statement {
            kind: READY,
            status: Some(true),
            reason: "Ready",
            message: "the node takes pods".to_owned(),
        },
        Some(step) => {
            let told = find(status, step);
            Statement {
                kind: READY,
                status: Some(false),
                reason: not_yet(step),
                message: told.map(|c| c.message.clone()).unwrap_or_default(),
            }
        }
    };
    set(&mut status.conditions, ready, generation, Time(now));
}

fn not_yet(step: &str) -> &'static str {
    match step {
        LAUNCHED => "NotLaunched",
        REGISTERED => "NotRegistered",
        _ => "NotInitialized",
    }
}

/// A claim's condition by its type.
#[must_use]
pub fn find<'a>(status: &'a NodeClaimStatus, kind: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|c| c.type_ == kind)
}

/// The call that makes `claim`'s status `status`, if it isn't that already. It holds only for the version of the
/// claim that it was decided on.
#[must_use]
pub fn write_status(claim: &NodeClaim, status: &NodeClaimStatus) -> Option<Call> {
    let old = claim.status.clone().unwrap_or_default();
    let patch = merge::diff_of(&old, status)?;
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
