//! Conditions: how every resource says what is and what to do about it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The condition over all others of a resource.
pub const READY: &str = "Ready";
/// A tenant's claims hold.
pub const ACCEPTED: &str = "Accepted";
/// The newest version of a spec can be read and keeps the rules of its CRD. Said only where it doesn't or didn't: what is
/// in force then is an earlier version.
pub const SPEC_VALID: &str = "SpecValid";
/// A claim's machine has been launched.
pub const LAUNCHED: &str = "Launched";
/// A claim's node has registered and carries the pool's labels.
pub const REGISTERED: &str = "Registered";
/// A claim's node is Ready, without startup taints and with its devices.
pub const INITIALIZED: &str = "Initialized";

/// A claim's machine isn't what its pool or class would launch now.
pub const DRIFTED: &str = "Drifted";
/// A claim's machine is older than its pool's `expireAfter`.
pub const EXPIRED: &str = "Expired";

/// The cloud has said that it takes a claim's machine away; the reason is the kind of its news.
pub const INTERRUPTED: &str = "Interrupted";
/// A claim's instance has the tag by which the cluster's instances are listed. Said once the tag was lost.
pub const INSTANCE_TAGGED: &str = "InstanceTagged";
/// Whether a claim's machine is to be given back for saving's sake, and why not otherwise.
pub const CONSOLIDATABLE: &str = "Consolidatable";

/// `spec.limits` of the CroftConfig keep nodes from being launched.
pub const LIMITS_REACHED: &str = "LimitsReached";
/// No limit bounds what the nodes of a Tenant or a TenantPool cost.
pub const UNLIMITED: &str = "Unlimited";

/// What a condition says: enough to make a [`Condition`] of, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The condition's type, such as [`READY`].
    pub kind: &'static str,
    /// True, False, or Unknown when `None`.
    pub status: Option<bool>,
    /// A CamelCase word from a closed set.
    pub reason: &'static str,
    /// A sentence that says what is, and what to do.
    pub message: String,
}

/// Writes `statement` into `conditions`, keeping the transition time while the status stays. True if anything
/// changed that a reader would see.
pub fn set(
    conditions: &mut Vec<Condition>,
    statement: Statement,
    generation: Option<i64>,
    now: Time,
) -> bool {
    let status = match statement.status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    };
    let new = Condition {
        type_: statement.kind.to_owned(),
        status: status.to_owned(),
        reason: statement.reason.to_owned(),
        message: statement.message,
        observed_generation: generation,
        last_transition_time: now,
    };
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            let kept = if old.status == new.status {
                old.last_transition_time.clone()
            } else {
                new.last_transition_time.clone()
            };
            let new = Condition { last_transition_time: kept, ..new };
            let changed = *old != new;
            *old = new;
            changed
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

/// True if `conditions` hold `kind` with status True.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}
