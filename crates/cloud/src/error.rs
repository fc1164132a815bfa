//! What can go wrong at a cloud, classed by what to do about it.

use std::{fmt, time::Duration};

use croft_scheduler::CapacityType;

/// What to do about a refusal. Every error code of a cloud maps to exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultClass {
    /// Too many requests: nothing was done; wait longer between calls, then the same again.
    Throttled,
    /// The cloud's own trouble or a broken connection: the call may or may not have taken effect.
    Unavailable,
    /// Credentials are missing, expired or malformed: nothing works until they are right.
    Unauthenticated,
    /// The credentials lack a right: this call can't work until the policy grants it.
    Forbidden,
    /// This type, zone and capacity type has no instance to give now: choose another.
    NoCapacity,
    /// A quota of the account is used up: others may work, this waits for an increase.
    Quota,
    /// Something named in the request isn't there (any more): discover again, then repeat.
    NotFound,
    /// Something with that name is there already.
    Exists,
    /// The same client token was used for another request: an earlier attempt got through.
    TokenReused,
    /// The request can't work as written: the class or the pool must change.
    Invalid,
}

impl FaultClass {
    /// The word that metrics and conditions use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Throttled => "Throttled",
            Self::Unavailable => "Unavailable",
            Self::Unauthenticated => "Unauthenticated",
            Self::Forbidden => "Forbidden",
            Self::NoCapacity => "NoCapacity",
            Self::Quota => "QuotaReached",
            Self::NotFound => "NotFound",
            Self::Exists => "AlreadyExists",
            Self::TokenReused => "TokenReused",
            Self::Invalid => "InvalidRequest",
        }
    }

    /// True if the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn passes_by_itself(self) -> bool {
        matches!(self, Self::Throttled | Self::Unavailable | Self::NoCapacity | Self::NotFound)
    }
}

impl fmt::Display for FaultClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One refusal of a cloud, with what it means and what to do: fit for a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call that was refused, such as `CreateFleet`.
    pub action: &'static str,
    /// The cloud's own code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// What to do about it.
    pub class: FaultClass,
    /// The cloud's own words.
    pub message: String,
    /// What the code means, in a clause.
    pub meaning: &'static str,
    /// What the reader should do, in a sentence.
    pub remedy: &'static str,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}: {}", self.action, self.code, self.meaning)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        if !self.remedy.is_empty() {
            write!(f, ". {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Why a call other than a launch failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CloudError {
    /// The cloud refused.
    #[error("failed to {what}: {fault}")]
    Refused {
        /// What was wanted, with the object's name: `list instances of cluster c`.
        what: String,
        /// The refusal.
        fault: Fault,
    },
    /// The class can't be used as it is; its conditions say why.
    #[error("failed to use EC2NodeClass {class}: {why}")]
    ClassNotReady {
        /// The class's name.
        class: String,
        /// The sentence of its first condition that doesn't hold.
        why: String,
    },
}

impl CloudError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Refused { fault, .. } => fault.class,
            Self::ClassNotReady { .. } => FaultClass::Invalid,
        }
    }
}

/// One place where an instance can be had: what capacity runs out of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfferingKey {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
}

/// How a launch ended, if not with an instance.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LaunchError {
    /// Definite: none of the request's offerings had an instance. They are set aside already; the next
    /// attempt can be made at once, with a new attempt number and what `instance_types` offers now.
    #[error("failed to launch for NodeClaim {claim}: no capacity in {} offerings; {fault}", offerings.len())]
    NoCapacity {
        /// The claim's name.
        claim: String,
        /// What had no instance.
        offerings: Vec<OfferingKey>,
        /// The first refusal.
        fault: Fault,
    },
    /// Definite: nothing was launched, and the same request won't ever be accepted.
    #[error("failed to launch for NodeClaim {claim}: {fault}")]
    Refused {
        /// The claim's name.
        claim: String,
        /// The refusal.
        fault: Fault,
    },
    /// Definite: nothing was launched; the same prepared request may be sent again after a while.
    #[error("failed to launch for NodeClaim {claim}, again in {after:?}: {fault}")]
    Later {
        /// The claim's name.
        claim: String,
        /// When to send it again.
        after: Duration,
        /// The refusal.
        fault: Fault,
    },
    /// The outcome is unknown: look for the instance by the claim's uid, then send the same prepared
    /// request again. Its token makes the cloud answer with the first instance if there was one.
    #[error("failed to learn the outcome of the launch for NodeClaim {claim}: {fault}")]
    Unknown {
        /// The claim's name.
        claim: String,
        /// What broke.
        fault: Fault,
    },
    /// The class can't be used as it is; its conditions say why. Nothing was launched.
    #[error("failed to launch for NodeClaim {claim}: EC2NodeClass {class} can't be used: {why}")]
    ClassNotReady {
        /// The claim's name.
        claim: String,
        /// The class's name.
        class: String,
        /// The sentence of its first condition that doesn't hold.
        why: String,
    },
}

impl LaunchError {
    /// The word for conditions, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoCapacity { fault, .. } | Self::Refused { fault, .. } | Self::Later { fault, .. } => {
                fault.class.as_str()
            }
            Self::Unknown { .. } => "OutcomeUnknown",
            Self::ClassNotReady { .. } => "ClassNotReady",
        }
    }

    /// True if it is certain that no instance was launched by this attempt.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}
