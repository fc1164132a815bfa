//! The curves: the amount that was paid per hour, how many pods waited, which nodes came and went, and what the scheduling runs cost.

use std::collections::BTreeMap;

use croft_record::{
    entry::{Entry, EntryKind},
    ledger::{
        amount::Amount,
        book::{HOUR_MILLIS, Line, hour_of},
    },
};
use serde::Serialize;

use super::{bill, entries};
use crate::{access::Scope, cluster::log::Log, model::facts::Model};

/// Points of a curve at most.
const POINTS: i64 = 130;
/// Times between two points, in milliseconds: the first that needs no more points is taken.
const STEPS: [i64; 11] = [
    10_000,
    30_000,
    60_000,
    5 * 60_000,
    15 * 60_000,
    30 * 60_000,
    HOUR_MILLIS,
    2 * HOUR_MILLIS,
    6 * HOUR_MILLIS,
    24 * HOUR_MILLIS,
    7 * 24 * HOUR_MILLIS,
];

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
    /// Pods that waited for a node, the most from each point to the next; none for a reader who doesn't see scheduling runs.
    pub waiting: Option<Vec<usize>>,
    /// Nodes that were launched from each point to the next.
    pub launched: Vec<usize>,
    /// Nodes that were removed from each point to the next.
    pub removed: Vec<usize>,
    /// Scheduling runs that requested instances; none for a reader who doesn't see them.
    pub runs: Option<Vec<Run>>,
}

/// The curves from `from` to `to`, as `scope` sees them.
#[must_use]
pub fn view(model: &Model, log: &Log, scope: &Scope, from: i64, to: i64) -> Curves {
    let begins = log.costs_begin();
    let from = from.max(begins.unwrap_or(from)).min(to);
    let step = step_of(to.saturating_sub(from));
    let first = from.div_euclid(step).saturating_mul(step);
    let at: Vec<i64> = (0..=POINTS)
        .map(|number| first.saturating_add(number.saturating_mul(step)))
        .take_while(|time| *time < to)
        .collect();
    let axis = Axis { first, step, points: at.len() };
    let visible: Vec<Entry> = log
        .record()
        .entries
        .iter()
        .filter(|entry| entry.at >= first && entry.at < to && is_counted(entry))
        .filter_map(|entry| entries::visible(model, scope, entry))
        .collect();
    let count = |is_wanted: fn(&Entry) -> bool| axis.count(visible.iter().filter(|entry| is_wanted(entry)));
    let runs = scope.is_operator().then(|| visible.iter().filter_map(run).collect());
    Curves {
        from: first,
        to,
        step,
        begins,
        is_complete: log.ledger().is_complete(hour_of(first), to),
        series: series(model, log, scope, &axis, &at, to),
        waiting: scope.is_operator().then(|| waiting(log, &axis, to)),
        launched: count(is_launch),
        removed: count(|entry| entry.kind == EntryKind::Gone),
        runs,
        at,
    }
}

fn step_of(span: i64) -> i64 {
    let fits = |step: &&i64| span / **step < POINTS;
    STEPS.iter().find(fits).or(STEPS.last()).copied().unwrap_or(HOUR_MILLIS)
}

fn is_launch(entry: &Entry) -> bool {
    entry.kind == EntryKind::Condition && entry.condition == "Launched=True"
}

fn is_counted(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Gone | EntryKind::Plan) || is_launch(entry)
}

fn run(entry: &Entry) -> Option<Run> {
    let plan = entry.plan.as_ref().filter(|plan| plan.instances > 0)?;
    Some(Run { at: entry.at, instances: plan.instances, cost: plan.cost, bound: plan.bound })
}

/// The times of the points.
struct Axis {
    first: i64,
    step: i64,
    points: usize,
}

impl Axis {
    /// The point at or before a time.
    fn place(&self, at: i64) -> Option<usize> {
        let place = usize::try_from(at.checked_sub(self.first)?.div_euclid(self.step)).ok()?;
        (place < self.points).then_some(place)
    }

    fn count<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<usize> {
        let mut counts = vec![0; self.points];
        for place in entries.filter_map(|entry| self.place(entry.at)) {
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
        counts
    }
}

/// The pods that each run found without a node: a run whose figures are the last one's isn't recorded.
fn waiting(log: &Log, axis: &Axis, to: i64) -> Vec<usize> {
    let mut most = vec![None; axis.points];
    let (mut before, mut last_of) = (0, vec![None; axis.points]);
    for entry in log.record().entries.iter().filter(|entry| entry.at < to) {
        let Some(plan) = &entry.plan else { continue };
        let pods = plan.pods.saturating_add(plan.placed).saturating_add(plan.unschedulable);
        if entry.at < axis.first {
            before = pods;
            continue;
        }
        let Some(place) = axis.place(entry.at) else { continue };
        if let (Some(most), Some(last)) = (most.get_mut(place), last_of.get_mut(place)) {
            *most = (*most).max(Some(pods));
            *last = Some(pods);
        }
    }
    let points = most.into_iter().zip(last_of).map(|(most, last)| {
        let shown = most.map_or(before, |most| most.max(before));
        before = last.unwrap_or(before);
        shown
    });
    points.collect()
}

/// Rates by tenant and pool. Steps of less than an hour show what ran at each point, where the log says that; others the mean of their
/// hours, as the ledger has them.
fn series(model: &Model, log: &Log, scope: &Scope, axis: &Axis, at: &[i64], to: i64) -> Vec<Series> {
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
    let sampled = if axis.step < HOUR_MILLIS { log.rates(at) } else { Vec::new() };
    let known_from = sampled.first().map_or(i64::MAX, |(at, _)| *at);
    for (time, accounts) in sampled {
        let Some(place) = axis.place(time) else { continue };
        for (account, amount) in accounts {
            add(&Line { hour: time, hours: 1, account, amount }, place, amount);
        }
    }
    for line in log.lines(hour_of(axis.first), to) {
        for (place, amount) in shares_of(&line, axis, known_from, to) {
            add(&line, place, amount);
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

/// The amounts that a line adds to the rate of each point that it overlaps, of those before `until`.
fn shares_of(line: &Line, axis: &Axis, until: i64, to: i64) -> Vec<(usize, Amount)> {
    let end = line.hour.saturating_add(i64::from(line.hours).saturating_mul(HOUR_MILLIS)).min(to);
    let share = |place: usize| {
        let begin = axis.first.saturating_add(axis.step.saturating_mul(i64::try_from(place).unwrap_or(0)));
        let stop = begin.saturating_add(axis.step).min(to);
        let overlap = stop.min(end).saturating_sub(begin.max(line.hour));
        if begin >= until || overlap <= 0 {
            return None;
        }
        // The amount per millisecond of the line, in the part of the point that the line covers, per hour.
        let whole = u128::from(end.abs_diff(line.hour)).saturating_mul(u128::from(stop.abs_diff(begin)));
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
    fn a_day_a_week_and_a_month_have_at_most_130_points() {
        let day = 24 * HOUR_MILLIS;
        assert_eq!([day, 7 * day, 31 * day].map(step_of), [15 * 60_000, 2 * HOUR_MILLIS, 6 * HOUR_MILLIS]);
        assert_eq!([0, 60_000, 3 * HOUR_MILLIS].map(step_of), [10_000, 10_000, 5 * 60_000]);
        assert_eq!(step_of(400 * day), 7 * day, "the longest time of a statement");
    }

    #[test]
    fn a_line_of_a_day_or_of_a_part_of_an_hour_has_its_rate_at_each_point() {
        let account = Account {
            payer: Payer::default(),
            pool: "a".to_owned(),
            capacity_type: "spot".to_owned(),
            purpose: Purpose::Used,
        };
        let rates = |line: &Line, axis: &Axis, to: i64| -> Vec<(usize, u128)> {
            let shares = shares_of(line, axis, i64::MAX, to);
            shares.into_iter().map(|(place, amount)| (place, amount.micros())).collect()
        };
        // A day at a dollar per hour, of which points of six hours show two.
        let amount = Amount::of(1_000_000, 24 * HOUR_MILLIS.unsigned_abs());
        let day = Line { hour: 0, hours: 24, account: account.clone(), amount };
        let axis = Axis { first: 12 * HOUR_MILLIS, step: 6 * HOUR_MILLIS, points: 4 };
        assert_eq!(rates(&day, &axis, 36 * HOUR_MILLIS), [(0, 1_000_000), (1, 1_000_000)]);
        // The first quarter of an hour that isn't over.
        let amount = Amount::of(2_000_000, HOUR_MILLIS.unsigned_abs() / 4);
        let hour = Line { hour: HOUR_MILLIS, hours: 1, account, amount };
        let axis = Axis { first: 0, step: HOUR_MILLIS, points: 2 };
        assert_eq!(rates(&hour, &axis, HOUR_MILLIS + HOUR_MILLIS / 4), [(1, 2_000_000)]);
    }
}
