//! The curves: the amount that was paid per hour, how many pods waited, which nodes came and went, and what the scheduling runs cost.

use std::collections::BTreeMap;

use croft_record::{
    entry::{Entry, EntryKind},
    ledger::{
        amount::Amount,
        book::{HOUR_MILLIS, Line},
    },
};
use serde::Serialize;

use super::{bill, entries};
use crate::{
    access::Scope,
    cluster::sampled::{Axis, Sampled, is_launch},
    model::facts::Model,
};

/// The amount that was paid per hour for the nodes of a pool by a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    /// The tenant; empty for what no tenant pays for alone.
    pub tenant: String,
    /// The pool.
    pub pool: String,
    /// Millionths of a dollar per hour at each time.
    pub rates: Vec<u64>,
}

/// A scheduling run that requested instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its time.
    pub at: i64,
    /// Instances that it requested.
    pub instances: usize,
    /// The price of these instances per hour.
    pub cost: i64,
    /// No plan for their pods could be below this price.
    pub bound: i64,
}

/// The curves of a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Curves {
    /// The time of the first point: later than asked for if the record doesn't go back so far.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// From one point to the next.
    pub step: i64,
    /// Since when costs are known.
    pub begins: Option<i64>,
    /// False if a closed hour or day lacks costs.
    pub is_complete: bool,
    /// The times of the points.
    pub at: Vec<i64>,
    /// $/h by tenant and pool, without what commitments pay for.
    pub series: Vec<Series>,
    /// Pods that waited for a node, the most from each point to the next, where it is known; none for a reader who doesn't see
    /// scheduling runs.
    pub waiting: Option<Vec<Option<usize>>>,
    /// Nodes that were launched from each point to the next; `None` from before the log, which doesn't go back as far as the ledger.
    pub launched: Vec<Option<usize>>,
    /// Nodes that were removed from each point to the next, in the same way.
    pub removed: Vec<Option<usize>>,
    /// Scheduling runs that requested instances; none for a reader who doesn't see them.
    pub runs: Option<Vec<Run>>,
}

/// The curves of a time, as `scope` sees them.
#[must_use]
pub fn view(model: &Model, sampled: &Sampled, scope: &Scope) -> Curves {
    let axis = &sampled.axis;
    let visible: Vec<Entry> =
        sampled.entries.iter().filter_map(|entry| entries::visible(model, scope, entry)).collect();
    let count = |is_wanted: fn(&Entry) -> bool| -> Vec<Option<usize>> {
        let counts = axis.count(visible.iter().filter(|entry| is_wanted(entry)));
        counts.into_iter().enumerate().map(|(place, count)| sampled.has_log(place).then_some(count)).collect()
    };
    let runs = scope.is_operator().then(|| visible.iter().filter_map(run).collect());
    Curves {
        from: axis.first,
        to: axis.to,
        step: axis.step,
        begins: sampled.begins,
        is_complete: sampled.is_complete,
        at: axis.times(),
        series: series(model, sampled, scope),
        waiting: scope.is_operator().then(|| sampled.waiting.clone()),
        launched: count(is_launch),
        removed: count(|entry| entry.kind == EntryKind::Gone),
        runs,
    }
}

fn run(entry: &Entry) -> Option<Run> {
    let plan = entry.plan.as_ref().filter(|plan| plan.instances > 0)?;
    Some(Run { at: entry.at, instances: plan.instances, cost: plan.cost, bound: plan.bound })
}

/// Rates by tenant and pool. Steps of less than an hour show what ran at each point, where the log says that; others the mean of their
/// hours, as the ledger has them.
fn series(model: &Model, sampled: &Sampled, scope: &Scope) -> Vec<Series> {
    let axis = &sampled.axis;
    let mut all: BTreeMap<(String, String), Vec<Amount>> = BTreeMap::new();
    let mut add = |line: &Line, place: usize, amount: Amount| {
        if line.account.is_committed() || !bill::sees_line(model, scope, line) {
            return;
        }
        let key = (line.account.payer.tenant.clone(), line.account.pool.clone());
        let rates = all.entry(key).or_insert_with(|| vec![Amount::ZERO; axis.points]);
        if let Some(rate) = rates.get_mut(place) {
            *rate += amount;
        }
    };
    let known_from = sampled.rates.first().map_or(i64::MAX, |(at, _)| *at);
    for (time, accounts) in &sampled.rates {
        let Some(place) = axis.place(*time) else { continue };
        for (account, amount) in accounts {
            add(&Line { hour: *time, hours: 1, account: account.clone(), amount: *amount }, place, *amount);
        }
    }
    let begins = sampled.begins.unwrap_or(i64::MIN);
    for line in &sampled.lines {
        for (place, amount) in shares_of(line, axis, begins, known_from) {
            add(line, place, amount);
        }
    }
    let micros = |amount: Amount| u64::try_from(amount.micros()).unwrap_or(u64::MAX);
    let series = all.into_iter().map(|((tenant, pool), rates)| Series {
        tenant,
        pool,
        rates: rates.into_iter().map(micros).collect(),
    });
    series.collect()
}

/// The amounts that a line adds to the rate of each point that it overlaps, of those before `until`. Nothing is known from before
/// `begins`: a step in which costs begin has the rate of its rest.
fn shares_of(line: &Line, axis: &Axis, begins: i64, until: i64) -> Vec<(usize, Amount)> {
    let start = line.hour.max(begins);
    let end = line.hour.saturating_add(i64::from(line.hours).saturating_mul(HOUR_MILLIS)).min(axis.to);
    let share = |place: usize| {
        let (begin, stop) = (axis.start(place).max(begins), axis.stop(place));
        let overlap = stop.min(end).saturating_sub(begin.max(start));
        if axis.start(place) >= until || overlap <= 0 {
            return None;
        }
        // The amount per millisecond of the line, in the part of the point that the line covers, per hour.
        let whole = u128::from(end.abs_diff(start)).saturating_mul(u128::from(stop.abs_diff(begin)));
        let part = u128::from(overlap.unsigned_abs()).saturating_mul(u128::from(HOUR_MILLIS.unsigned_abs()));
        Some((place, line.amount.scaled(part, whole)))
    };
    let from = axis.place(line.hour).unwrap_or(0);
    (from..axis.points).map(share).skip_while(Option::is_none).map_while(|share| share).collect()
}

#[cfg(test)]
mod tests {
    use croft_record::{
        ledger::node::Account,
        payer::{Payer, Purpose},
    };

    use super::*;

    #[test]
    fn a_line_of_a_day_or_of_a_part_of_an_hour_has_its_rate_at_each_point() {
        let account = Account {
            payer: Payer::default(),
            pool: "a".to_owned(),
            template: String::new(),
            capacity_type: "spot".to_owned(),
            purpose: Purpose::Used,
        };
        let rates = |line: &Line, axis: &Axis, begins: i64| -> Vec<(usize, u128)> {
            let shares = shares_of(line, axis, begins, i64::MAX);
            shares.into_iter().map(|(place, amount)| (place, amount.micros())).collect()
        };
        // A day at a dollar per hour, of which points of six hours show two.
        let amount = Amount::of(1_000_000, 24 * HOUR_MILLIS.unsigned_abs());
        let day = Line { hour: 0, hours: 24, account: account.clone(), amount };
        let axis = Axis { first: 12 * HOUR_MILLIS, step: 6 * HOUR_MILLIS, to: 36 * HOUR_MILLIS, points: 4 };
        assert_eq!(rates(&day, &axis, i64::MIN), [(0, 1_000_000), (1, 1_000_000)]);
        // The first quarter of an hour that isn't over.
        let amount = Amount::of(2_000_000, HOUR_MILLIS.unsigned_abs() / 4);
        let hour = Line { hour: HOUR_MILLIS, hours: 1, account, amount };
        let axis = Axis { first: 0, step: HOUR_MILLIS, to: HOUR_MILLIS + HOUR_MILLIS / 4, points: 2 };
        assert_eq!(rates(&hour, &axis, i64::MIN), [(1, 2_000_000)]);
        // Costs begin with the last quarter of the hour, which is the last of its step.
        let axis = Axis { first: 0, step: 2 * HOUR_MILLIS, to: 4 * HOUR_MILLIS, points: 2 };
        assert_eq!(rates(&hour, &axis, HOUR_MILLIS * 7 / 4), [(0, 2_000_000)]);
    }
}
