//! Conditions: the state of every resource, and what to do about it. The controller writes them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// A condition type of one or more kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionType {
    /// Its name, such as `Ready`.
    pub name: &'static str,
    /// The kinds that have it.
    pub on: &'static str,
    /// Its meaning: the doc comment of its constant, as Markdown.
    pub description: &'static str,
}

/// Defines constants for condition types, and a table of them from which the reference page is generated.
///
/// Each entry is `CONSTANT = "Type", on "kinds";` below its doc comment.
#[macro_export]
macro_rules! documented_conditions {
    (
        $(#[doc = $about:literal])+ $vis:vis const $table:ident;
        $($(#[doc = $doc:literal])+ $name:ident = $type:literal, on $on:literal;)+
    ) => {
        $($(#[doc = $doc])+ $vis const $name: &str = $type;)+

        $(#[doc = $about])+
        $vis const $table: &[$crate::condition::ConditionType] = &[$($crate::condition::ConditionType {
            name: $type,
            on: $on,
            description: concat!($($doc),+).trim_ascii(),
        },)+];
    };
}

documented_conditions! {
    /// Every condition type that this crate defines.
    pub const CONDITIONS;

    /// The resource is in force. Summarizes its other conditions.
    READY = "Ready", on "every kind";
    /// The tenant's claims are in force; or webhook and policies know the pool's key.
    ACCEPTED = "Accepted", on "Tenant, TenantPool";
    /// The newest version of the spec can be decoded and keeps the rules of its CRD. False while an earlier version is in
    /// force instead; absent if it never was.
    SPEC_VALID = "SpecValid", on "every kind";
    /// The instance has been launched.
    LAUNCHED = "Launched", on "NodeClaim";
    /// The node has registered and carries the labels of its pool.
    REGISTERED = "Registered", on "NodeClaim";
    /// The node is Ready, without startup taints and with its devices.
    INITIALIZED = "Initialized", on "NodeClaim";
    /// The instance differs from what its pool or class would launch now.
    DRIFTED = "Drifted", on "NodeClaim";
    /// The node is older than its pool's `expireAfter`.
    EXPIRED = "Expired", on "NodeClaim";
    /// The cloud has announced the end of the instance. The reason is the kind of the announcement.
    INTERRUPTED = "Interrupted", on "NodeClaim";
    /// The instance has the tag by which the cluster's instances are listed. Absent unless the tag was lost once.
    INSTANCE_TAGGED = "InstanceTagged", on "NodeClaim";
    /// The status checks of the instance pass. Absent unless one failed once.
    INSTANCE_HEALTHY = "InstanceHealthy", on "NodeClaim";
    /// The node is to be removed to save money; the reason says why it stays otherwise.
    CONSOLIDATABLE = "Consolidatable", on "NodeClaim";
    /// `spec.limits` prevent launches.
    LIMITS_REACHED = "LimitsReached", on "CroftConfig";
    /// Zones are closed by `spec.zones`. Present only while some are.
    ZONES_CLOSED = "ZonesClosed", on "CroftConfig";
    /// Pods and DaemonSets are changed by what `spec.admission.mutation` says.
    MUTATION_IN_FORCE = "MutationInForce", on "CroftConfig";
    /// No limit bounds the cost of the nodes.
    UNLIMITED = "Unlimited", on "Tenant, TenantPool";
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Its type, such as [`READY`].
    pub kind: &'static str,
    /// True, False, or Unknown when `None`.
    pub status: Option<bool>,
    /// A CamelCase reason from a closed set.
    pub reason: &'static str,
    /// A sentence: what is wrong, and what to do.
    pub message: String,
}

impl Statement {
    /// The status as a condition has it.
    #[must_use]
    pub const fn status_text(&self) -> &'static str {
        match self.status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }

    /// True if `conditions` say something else: status, reason or message differ, or the condition is missing.
    #[must_use]
    pub fn differs(&self, conditions: &[Condition]) -> bool {
        conditions.iter().find(|c| c.type_ == self.kind).is_none_or(|c| {
            c.status != self.status_text() || c.reason != self.reason || c.message != self.message
        })
    }
}

/// Writes `statement` into `conditions`, keeping the transition time while the status stays. Returns whether anything
/// changed that a reader would see.
pub fn set(
    conditions: &mut Vec<Condition>,
    statement: Statement,
    generation: Option<i64>,
    now: Time,
) -> bool {
    let new = Condition {
        type_: statement.kind.to_owned(),
        status: statement.status_text().to_owned(),
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

/// True if `conditions` have the type `kind` with status True.
#[must_use]
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    conditions.iter().any(|c| c.type_ == kind && c.status == "True")
}
