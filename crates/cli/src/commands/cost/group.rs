//! Sums of the ledger's lines.

use std::collections::BTreeMap;

use clap::ValueEnum;
use croft_record::{
    ledger::{amount::Amount, book::Line},
    payer::Purpose,
};
use jiff::{Timestamp, tz::TimeZone};

/// A dimension that costs are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Dimension {
    /// The tenant; empty for what belongs to none, or to several
    Tenant,
    /// The namespace; empty for what no pod requests
    Namespace,
    /// The workload, as Kind/name; empty for what no pod requests
    Workload,
    /// The pool
    Pool,
    /// The template of the pool; empty if it has only one kind of node
    Template,
    /// on-demand, spot or reserved
    CapacityType,
    /// used, daemonsets, headroom, idle, starting or draining
    Purpose,
    /// The hour
    Hour,
    /// The day
    Day,
}

impl Dimension {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Tenant => "TENANT",
            Self::Namespace => "NAMESPACE",
            Self::Workload => "WORKLOAD",
            Self::Pool => "POOL",
            Self::Template => "TEMPLATE",
            Self::CapacityType => "CAPACITY",
            Self::Purpose => "PURPOSE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
        }
    }

    fn value(self, line: &Line) -> String {
        let account = &line.account;
        match self {
            Self::Tenant => account.payer.tenant.clone(),
            Self::Namespace => account.payer.namespace.clone(),
            Self::Workload => account.payer.workload.clone(),
            Self::Pool => account.pool.clone(),
            Self::Template => account.template.clone(),
            Self::CapacityType => account.capacity_type.clone(),
            Self::Purpose => account.purpose.as_str().to_owned(),
            Self::Hour => in_utc(line.hour, "%Y-%m-%dT%H:00:00Z"),
            Self::Day => in_utc(line.hour, "%Y-%m-%d"),
        }
    }
}

/// A time in UTC.
pub(super) fn in_utc(millis: i64, format: &str) -> String {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default();
    at.to_zoned(TimeZone::UTC).strftime(format).to_string()
}

/// The cost of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    /// The price of what no commitment pays for.
    pub(super) total: Amount,
    /// The list price of what a commitment pays for.
    pub(super) committed: Amount,
    by_purpose: BTreeMap<Purpose, Amount>,
}

impl Sum {
    pub(super) fn merge(&mut self, other: &Self) {
        self.total += other.total;
        self.committed += other.committed;
        for (purpose, amount) in &other.by_purpose {
            *self.by_purpose.entry(*purpose).or_default() += *amount;
        }
    }

    pub(super) fn of(&self, purpose: Purpose) -> Amount {
        self.by_purpose.get(&purpose).copied().unwrap_or_default()
    }
}

/// The sum of each group, by its values.
pub(super) fn group(by: &[Dimension], lines: &[Line]) -> BTreeMap<Vec<String>, Sum> {
    let mut groups: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
    for line in lines {
        let sum = groups.entry(by.iter().map(|dimension| dimension.value(line)).collect()).or_default();
        if line.account.is_committed() {
            sum.committed += line.amount;
            continue;
        }
        sum.total += line.amount;
        *sum.by_purpose.entry(line.account.purpose).or_default() += line.amount;
    }
    groups
}
