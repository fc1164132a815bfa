//! The endpoint that is asked, and how a review ends there: the labels of the request counter.

/// The endpoint of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `/mutate`: objects may be patched.
    Mutate = 0,
    /// `/validate`: objects are final.
    Validate = 1,
    /// `/warn`: workloads whose pods will be refused get a warning; nothing is refused.
    Warn = 2,
    /// Mutation followed by validation, for callers that give one answer.
    Both = 3,
}

impl Phase {
    /// Every phase, in the order of its number.
    pub const ALL: [Self; 4] = [Self::Mutate, Self::Validate, Self::Warn, Self::Both];

    /// The value of the label `phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutate => "mutate",
            Self::Validate => "validate",
            Self::Warn => "warn",
            Self::Both => "both",
        }
    }
}

/// How a review ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed, unchanged.
    Allowed = 0,
    /// Allowed with a patch.
    Patched = 1,
    /// Refused by a rule.
    Denied = 2,
    /// Refused for now: the namespace is not in the index yet.
    UnknownNamespace = 3,
    /// The body is no review that can be evaluated.
    Malformed = 4,
    /// The body is too long, or arrived too slowly.
    Oversized = 5,
    /// Turned away: too many reviews were in flight.
    Overload = 6,
    /// The evaluation panicked: answered with 500, and the other reviews go on.
    Panicked = 7,
}

impl Outcome {
    /// Every outcome, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Patched,
        Self::Denied,
        Self::UnknownNamespace,
        Self::Malformed,
        Self::Oversized,
        Self::Overload,
        Self::Panicked,
    ];

    /// The value of the label `outcome`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Patched => "patched",
            Self::Denied => "denied",
            Self::UnknownNamespace => "unknown_namespace",
            Self::Malformed => "malformed",
            Self::Oversized => "oversized",
            Self::Overload => "overload",
            Self::Panicked => "panicked",
        }
    }
}
