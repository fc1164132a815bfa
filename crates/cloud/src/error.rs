//! Errors of a cloud, classified by how to handle them.

use std::{fmt, time::Duration};

use croft_scheduler::CapacityType;

/// Defines [`FaultClass`] with its names and meanings.
macro_rules! fault_classes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// How to handle a refusal. Every error code of a cloud belongs to exactly one class.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultClass {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl FaultClass {
            /// Every class.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in metrics and conditions.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Its meaning, for the reference page.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}

fault_classes! {
    /// Too many requests: nothing was done; retry later and call less often.
    Throttled = "Throttled",
    /// An error of the cloud or a broken connection: the call may have taken effect.
    Unavailable = "Unavailable",
    /// Credentials are missing, expired or malformed: every call fails until they are corrected.
    Unauthenticated = "Unauthenticated",
    /// The credentials lack a permission: this call fails until the policy grants it.
    Forbidden = "Forbidden",
    /// The offering has no capacity: choose another.
    NoCapacity = "NoCapacity",
    /// A quota of the account is used up: other calls may work, this one needs a higher quota.
    Quota = "QuotaReached",
    /// Something that the request names doesn't exist (any more): look it up again, then retry.
    NotFound = "NotFound",
    /// Something with that name exists already.
    Exists = "AlreadyExists",
    /// The client token was used for another request: an earlier attempt took effect.
    TokenReused = "TokenReused",
    /// The request is invalid: the class or the pool must change.
    Invalid = "InvalidRequest",
}

impl FaultClass {
    /// True if the same call may succeed later without any change.
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

/// A refusal of a cloud with its meaning and remedy, for conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The call that was refused, such as `CreateFleet`.
    pub action: &'static str,
    /// The cloud's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// How to handle it.
    pub class: FaultClass,
    /// The cloud's message.
    pub message: String,
    /// The code's meaning, as a clause.
    pub meaning: &'static str,
    /// The remedy, as a sentence.
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
        /// The operation with the object's name: `list instances of cluster c`.
        what: String,
        /// The refusal.
        fault: Fault,
    },
    /// The class isn't Ready; its conditions say why.
    #[error("failed to use EC2NodeClass {class}: {why}")]
    ClassNotReady {
        /// The class's name.
        class: String,
        /// The message of its first false condition.
        why: String,
    },
}

impl CloudError {
    /// How to handle it.
    #[must_use]
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Refused { fault, .. } => fault.class,
            Self::ClassNotReady { .. } => FaultClass::Invalid,
        }
    }
}

/// An offering: what capacity is measured for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfferingKey {
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
}

/// Why a launch returned no instance.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LaunchError {
    /// Definite: none of the request's offerings had capacity. They are marked unavailable already; the next attempt
    /// may follow at once, with a new attempt number and the present `instance_types`.
    #[error("failed to launch for NodeClaim {claim}: no capacity in {} offerings; {fault}", offerings.len())]
    NoCapacity {
        /// The claim's name.
        claim: String,
        /// The offerings without capacity.
        offerings: Vec<OfferingKey>,
        /// The first refusal.
        fault: Fault,
    },
    /// Definite: nothing was launched, and the same request will never be accepted.
    #[error("failed to launch for NodeClaim {claim}: {fault}")]
    Refused {
        /// The claim's name.
        claim: String,
        /// The refusal.
        fault: Fault,
    },
    /// Definite: nothing was launched; the same prepared request may be sent again later.
    #[error("failed to launch for NodeClaim {claim}, again in {after:?}: {fault}")]
    Later {
        /// The claim's name.
        claim: String,
        /// When to send it again.
        after: Duration,
        /// The refusal.
        fault: Fault,
    },
    /// The outcome is unknown: look for the instance by the claim's uid, then send the same prepared request again. Its
    /// token makes the cloud return the first instance, if there was one.
    #[error("failed to learn the outcome of the launch for NodeClaim {claim}: {fault}")]
    Unknown {
        /// The claim's name.
        claim: String,
        /// The call that failed.
        fault: Fault,
    },
    /// The class isn't Ready; its conditions say why. Nothing was launched.
    #[error("failed to launch for NodeClaim {claim}: EC2NodeClass {class} can't be used: {why}")]
    ClassNotReady {
        /// The claim's name.
        claim: String,
        /// The class's name.
        class: String,
        /// The message of its first false condition.
        why: String,
    },
}

impl LaunchError {
    /// The name in conditions and events.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoCapacity { fault, .. } | Self::Refused { fault, .. } | Self::Later { fault, .. } => {
                fault.class.as_str()
            }
            Self::Unknown { .. } => Self::OUTCOME_UNKNOWN,
            Self::ClassNotReady { .. } => Self::CLASS_NOT_READY,
        }
    }

    const OUTCOME_UNKNOWN: &str = "OutcomeUnknown";
    const CLASS_NOT_READY: &str = "ClassNotReady";

    /// Every name that [`LaunchError::reason`] returns, with its meaning, for the reference page.
    pub fn reasons() -> impl Iterator<Item = (&'static str, &'static str)> {
        let classes = FaultClass::ALL.iter().map(|class| (class.as_str(), class.description()));
        classes.chain([
            (
                Self::OUTCOME_UNKNOWN,
                "The answer was lost: the instance is looked up by the claim's uid, then the same request is sent again.",
            ),
            (Self::CLASS_NOT_READY, "The EC2NodeClass isn't Ready; its conditions have the reason. Nothing was launched."),
        ])
    }

    /// True if this attempt certainly launched no instance.
    #[must_use]
    pub fn is_definite(&self) -> bool {
        !matches!(self, Self::Unknown { .. })
    }
}
