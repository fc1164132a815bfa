//! The cloud's own view of an instance: its status checks, and the changes that are scheduled for it.

/// What the cloud says of a running instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceHealth {
    /// The status checks that fail. One whose result isn't known is not among them.
    pub failed: Vec<FailedCheck>,
    /// The scheduled changes that are neither done nor cancelled.
    pub scheduled: Vec<ScheduledChange>,
}

/// A status check that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCheck {
    /// The check.
    pub check: StatusCheck,
    /// Since when it fails, in seconds since 1970.
    pub since: i64,
}

/// A status check of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusCheck {
    /// The host: its power, its network, its hardware.
    System,
    /// The instance's operating system: it answers on the network.
    Instance,
    /// The attached EBS volumes: they complete reads and writes.
    Ebs,
}

impl StatusCheck {
    /// Every check.
    pub const ALL: [Self; 3] = [Self::System, Self::Instance, Self::Ebs];

    /// The name in conditions, in metrics and in a pool's `repairAfter`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "SystemStatusCheck",
            Self::Instance => "InstanceStatusCheck",
            Self::Ebs => "EBSStatusCheck",
        }
    }
}

/// A change that the cloud has scheduled for an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledChange {
    /// The cloud's name of it, such as `instance-retirement`.
    pub code: String,
    /// The earliest time of it, in seconds since 1970; `None` if unknown.
    pub not_before: Option<i64>,
}
