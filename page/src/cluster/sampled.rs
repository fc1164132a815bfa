//! The log and the ledger at the points of a curve, before it is known who looks: read once for all readers.

use std::collections::BTreeMap;

use croft_record::{
    entry::{Entry, EntryKind},
    ledger::{
        amount::Amount,
        book::{HOUR_MILLIS, Line, hour_of},
        node::Account,
    },
};

use super::log::Log;

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

/// The times of the points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The time of the first point.
    pub first: i64,
    /// From one point to the next.
    pub step: i64,
    /// The end, which may be within the last step.
    pub to: i64,
    /// How many there are.
    pub points: usize,
}

impl Axis {
    /// Points from the one at or before `from` up to `to`.
    #[must_use]
    pub fn new(from: i64, to: i64) -> Self {
        let from = from.min(to);
        let step = step_of(to.saturating_sub(from));
        let first = from.div_euclid(step).saturating_mul(step);
        let axis = Self { first, step, to, points: 0 };
        let points = (0..=POINTS).take_while(|number| axis.after(*number) < to).count();
        Self { points, ..axis }
    }

    fn after(&self, steps: i64) -> i64 {
        self.first.saturating_add(steps.saturating_mul(self.step))
    }

    /// The time of a point.
    #[must_use]
    pub fn start(&self, place: usize) -> i64 {
        self.after(i64::try_from(place).unwrap_or(i64::MAX))
    }

    /// The end of a point's step.
    #[must_use]
    pub fn stop(&self, place: usize) -> i64 {
        self.start(place).saturating_add(self.step).min(self.to)
    }

    /// The times of all points.
    #[must_use]
    pub fn times(&self) -> Vec<i64> {
        (0..self.points).map(|place| self.start(place)).collect()
    }

    /// The point at or before a time.
    #[must_use]
    pub fn place(&self, at: i64) -> Option<usize> {
        let place = usize::try_from(at.checked_sub(self.first)?.div_euclid(self.step)).ok()?;
        (place < self.points).then_some(place)
    }

    /// How many of the entries are in each step.
    pub fn count<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<usize> {
        let mut counts = vec![0; self.points];
        for place in entries.filter_map(|entry| self.place(entry.at)) {
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
        counts
    }
}

/// The log and the ledger at the points of an axis.
#[derive(Clone, Debug)]
pub struct Sampled {
    /// The points.
    pub axis: Axis,
    /// Since when costs are known.
    pub begins: Option<i64>,
    /// Since when there are entries, which may be later: the ledger goes back farther.
    pub log_begins: Option<i64>,
    /// False if a closed hour or day lacks costs.
    pub is_complete: bool,
    /// The cost per hour at those points of which the log says it; none if steps are as long as the ledger's hours.
    pub rates: Vec<(i64, BTreeMap<Account, Amount>)>,
    /// The lines of the ledger.
    pub lines: Vec<Line>,
    /// Launches, removals and scheduling runs.
    pub entries: Vec<Entry>,
    /// Pods that waited for a node, the most in each step; `None` before the first scheduling run of the log.
    pub waiting: Vec<Option<usize>>,
}

impl Sampled {
    /// Reads the log, which takes as long as it is.
    #[must_use]
    pub fn read(log: &Log, axis: Axis) -> Self {
        let entries = log.record().entries.iter();
        let is_shown = |entry: &&Entry| entry.at >= axis.first && entry.at < axis.to && is_counted(entry);
        Self {
            begins: log.costs_begin(),
            log_begins: log.record().begins(),
            is_complete: log.ledger().is_complete(hour_of(axis.first), axis.to),
            rates: if axis.step < HOUR_MILLIS { log.rates(&axis.times()) } else { Vec::new() },
            lines: log.lines(hour_of(axis.first), axis.to),
            entries: entries.filter(is_shown).cloned().collect(),
            waiting: waiting(&log.record().entries, &axis),
            axis,
        }
    }

    /// True if the log has entries of a point's step, or would have them.
    #[must_use]
    pub fn has_log(&self, place: usize) -> bool {
        self.log_begins.is_some_and(|begins| begins < self.axis.stop(place))
    }
}

/// True for the entry of an instance that was launched.
#[must_use]
pub fn is_launch(entry: &Entry) -> bool {
    entry.kind == EntryKind::Condition && entry.condition == "Launched=True"
}

fn is_counted(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Gone | EntryKind::Plan) || is_launch(entry)
}

fn step_of(span: i64) -> i64 {
    let fits = |step: &&i64| span / **step < POINTS;
    STEPS.iter().find(fits).or(STEPS.last()).copied().unwrap_or(HOUR_MILLIS)
}

/// The pods that each run found without a node: a run whose figures are the last one's isn't recorded.
fn waiting(entries: &[Entry], axis: &Axis) -> Vec<Option<usize>> {
    let mut most: Vec<Option<usize>> = vec![None; axis.points];
    let mut last_of = most.clone();
    let mut before = None;
    for entry in entries.iter().filter(|entry| entry.at < axis.to) {
        let Some(plan) = &entry.plan else { continue };
        let pods = plan.pods.saturating_add(plan.placed).saturating_add(plan.unschedulable);
        if entry.at < axis.first {
            before = Some(pods);
            continue;
        }
        let Some(place) = axis.place(entry.at) else { continue };
        if let (Some(most), Some(last)) = (most.get_mut(place), last_of.get_mut(place)) {
            *most = (*most).max(Some(pods));
            *last = Some(pods);
        }
    }
    // `None` is below every number, so the larger of both is the one that is known.
    let points = most.into_iter().zip(last_of).map(|(most, last)| {
        let shown = most.max(before);
        before = last.or(before);
        shown
    });
    points.collect()
}

#[cfg(test)]
mod tests {
    use croft_record::entry::PlanFigures;

    use super::*;

    #[test]
    fn a_day_a_week_and_a_month_have_at_most_130_points() {
        let day = 24 * HOUR_MILLIS;
        assert_eq!([day, 7 * day, 31 * day].map(step_of), [15 * 60_000, 2 * HOUR_MILLIS, 6 * HOUR_MILLIS]);
        assert_eq!([0, 60_000, 3 * HOUR_MILLIS].map(step_of), [10_000, 10_000, 5 * 60_000]);
        assert_eq!(step_of(400 * day), 7 * day, "the longest time of a statement");
        let axis = Axis::new(12_000, 35_000);
        assert_eq!((axis.times(), axis.stop(2)), (vec![10_000, 20_000, 30_000], 35_000));
    }

    #[test]
    fn pods_that_waited_are_unknown_before_the_first_run() {
        let run = |at, pods| Entry {
            plan: Some(PlanFigures { pods, ..PlanFigures::default() }),
            ..Entry::new(at, EntryKind::Plan)
        };
        let axis = Axis::new(0, 60_000);
        let entries = [run(15_000, 4), run(18_000, 1), run(35_000, 0)];
        assert_eq!(waiting(&entries, &axis), [None, Some(4), Some(1), Some(1), Some(0), Some(0)]);
        let sampled = Sampled::read(&Log::default(), axis);
        assert!(!sampled.has_log(5), "a log without an entry has no counts");
    }
}
