//! The cloud's status checks of instances, in the condition `InstanceHealthy` of their claims.

use std::sync::Arc;

use croft_api::{
    NodeClaim,
    condition::{INSTANCE_HEALTHY, Statement, set},
};
use croft_cloud::{FailedCheck, InstanceHealth};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    definitions::conditions as reasons,
    nodeclaim::{conditions::find_condition, writes::status_action},
    reconcile::ReconcileContext,
};

/// Writes the condition of claims whose status checks fail, or no longer do. Health that isn't known changes nothing.
pub fn reconcile(ctx: &mut ReconcileContext<'_>) {
    let snapshot = ctx.snapshot;
    for (name, claim) in snapshot.dirty_claims() {
        if claim.metadata.deletion_timestamp.is_none()
            && let Some(health) = snapshot.health_of(claim)
        {
            write_condition(ctx, name, claim, health);
        }
    }
}

fn write_condition(
    ctx: &mut ReconcileContext<'_>,
    name: &str,
    claim: &Arc<NodeClaim>,
    health: &InstanceHealth,
) {
    let passes = health.failed.is_empty();
    let known = claim.status.as_ref().and_then(|status| find_condition(status, INSTANCE_HEALTHY));
    if passes && known.is_none_or(|known| known.status == "True") {
        return;
    }
    let (reason, message) = if passes {
        (reasons::STATUS_CHECKS_PASS, "every status check of the instance passes".to_owned())
    } else {
        let failed: Vec<String> = health.failed.iter().map(describe).collect();
        (reasons::STATUS_CHECK_FAILED, failed.join("; "))
    };
    let mut status = claim.status.clone().unwrap_or_default();
    let statement = Statement { kind: INSTANCE_HEALTHY, status: Some(passes), reason, message };
    set(&mut status.conditions, statement, claim.metadata.generation, Time(ctx.now.wall));
    if let Some(action) = status_action(name, claim, &status) {
        ctx.request(action);
    }
}

/// Which check fails, and since when.
fn describe(failed: &FailedCheck) -> String {
    let since = Timestamp::from_second(failed.since).unwrap_or_default();
    format!("{} has failed since {since}", failed.check.as_str())
}
