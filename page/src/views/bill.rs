//! Bills: lines of the ledger that a reader may see, and their sums.

use std::collections::BTreeMap;

use croft_record::{
    ledger::{amount::Amount, book::Line},
    payer::Purpose,
};
use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use crate::{access::Scope, model::facts::Model};

/// True if `scope` sees a line: its namespace, or a tenant's own if the reader sees that whole tenant.
#[must_use]
pub fn sees_line(model: &Model, scope: &Scope, line: &Line) -> bool {
    let payer = &line.account.payer;
    match (scope.is_operator(), payer.namespace.is_empty()) {
        (true, _) => true,
        (false, true) => !payer.tenant.is_empty() && scope.sees_whole_tenant(model, &payer.tenant),
        (false, false) => scope.sees_namespace(&payer.namespace) && scope.sees_tenant(model, &payer.tenant),
    }
}

/// A tenant's bill.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bill {
    /// From this time on.
    pub from: i64,
    /// Up to this time.
    pub to: i64,
    /// Since when costs are known: a later time than `from` if the log or the ledger goes back less.
    pub begins: Option<i64>,
    /// The sum without what commitments pay for, in millionths of a dollar.
    pub total: u64,
    /// The list price of what commitments pay for.
    pub committed: u64,
    /// The same by purpose: used, daemonsets, idle and so on.
    pub purposes: BTreeMap<&'static str, u64>,
    /// The same by namespace; empty for what no pod requests.
    pub namespaces: BTreeMap<String, u64>,
}

impl Bill {
    /// The bill of a tenant.
    #[must_use]
    pub fn new(model: &Model, scope: &Scope, tenant: &str, lines: &[Line]) -> Self {
        let (mut total, mut committed) = (Amount::ZERO, Amount::ZERO);
        let mut purposes: BTreeMap<Purpose, Amount> = BTreeMap::new();
        let mut namespaces: BTreeMap<String, Amount> = BTreeMap::new();
        let of_tenant = lines.iter().filter(|line| line.account.payer.tenant == tenant);
        for line in of_tenant.filter(|line| sees_line(model, scope, line)) {
            if line.account.is_committed() {
                committed += line.amount;
                continue;
            }
            total += line.amount;
            *purposes.entry(line.account.purpose).or_default() += line.amount;
            *namespaces.entry(line.account.payer.namespace.clone()).or_default() += line.amount;
        }
        Self {
            total: micros(total),
            committed: micros(committed),
            purposes: purposes.into_iter().map(|(purpose, sum)| (purpose.as_str(), micros(sum))).collect(),
            namespaces: namespaces.into_iter().map(|(namespace, sum)| (namespace, micros(sum))).collect(),
            ..Self::default()
        }
    }
}

fn micros(amount: Amount) -> u64 {
    u64::try_from(amount.micros()).unwrap_or(u64::MAX)
}

/// The beginning of the month of a time, UTC.
#[must_use]
pub fn month_of(millis: i64) -> i64 {
    let at = Timestamp::from_millisecond(millis).unwrap_or_default().to_zoned(TimeZone::UTC);
    let first = at.date().first_of_month().to_zoned(TimeZone::UTC);
    first.map_or(millis, |first| first.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_begins_at_midnight_utc_of_its_first_day() {
        let at: Timestamp = "2026-11-25T02:14:00Z".parse().unwrap();
        let begin: Timestamp = "2026-11-01T00:00:00Z".parse().unwrap();
        assert_eq!(month_of(at.as_millisecond()), begin.as_millisecond());
        assert_eq!(month_of(begin.as_millisecond()), begin.as_millisecond());
    }
}
