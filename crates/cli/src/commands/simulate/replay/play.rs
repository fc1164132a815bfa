//! Goes through the snapshots on both sides.

use std::sync::Arc;

use croft_manifest::{Input, InputError};
use croft_scheduler::{InstanceType, Options};
use jiff::Timestamp;

use super::report::{Comparison, Figures};
use crate::{
    commands::{
        plan::impact::{Edit, Edited, Removal, edit, without_leaving},
        simulate::comparison::set_prices,
    },
    record::Period,
    simulation::{Replay, Totals, register_coming, time_of},
};

/// A time, and what changes.
pub(in crate::commands::simulate) struct Question<'a> {
    /// The time.
    pub(in crate::commands::simulate) period: Period,
    /// Objects to put over those of each snapshot.
    pub(in crate::commands::simulate) edit: &'a Input,
    /// Objects to remove.
    pub(in crate::commands::simulate) removals: &'a [Removal],
    /// Instance types and prices.
    pub(in crate::commands::simulate) types: Arc<[InstanceType]>,
    /// The types after the changes; `None` if they stay.
    pub(in crate::commands::simulate) types_after: Option<Arc<[InstanceType]>>,
    /// Options of both sides.
    pub(in crate::commands::simulate) options: Options,
}

/// The replay so far.
pub(in crate::commands::simulate) struct Player<'a> {
    question: Question<'a>,
    sides: Option<Sides>,
}

struct Sides {
    begun: Timestamp,
    snapshots: usize,
    /// The cluster at the last snapshot.
    recorded: Input,
    totals: Totals,
    changes: Vec<Edited>,
    warnings: Vec<String>,
    before: Replay,
    after: Replay,
}

impl<'a> Player<'a> {
    pub(in crate::commands::simulate) const fn new(question: Question<'a>) -> Self {
        Self { question, sides: None }
    }

    /// Takes in the next snapshot.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field, and objects that can't be removed.
    pub(in crate::commands::simulate) fn observe(&mut self, mut recorded: Input) -> Result<(), InputError> {
        let Question { period, edit: objects, removals, types, types_after, options } = &self.question;
        let begin = Timestamp::from_millisecond(period.from).unwrap_or_default();
        let at = time_of(&recorded).max(begin);
        recorded.recorded_at = Some(at);
        register_coming(&mut recorded, types);
        let base = without_leaving(&recorded)?;
        let Some(sides) = &mut self.sides else {
            let Edit { mut impact, then: _, mut after } = edit(&base, objects, removals)?;
            if let Some(types) = types_after {
                set_prices(&mut after, types);
            }
            let types_after = types_after.as_ref().unwrap_or(types);
            let before = Replay::begin(base, Arc::clone(types), options.clone())?;
            let after = Replay::begin(after, Arc::clone(types_after), options.clone())?;
            let mut warnings = impact.take_warnings();
            for warning in before.warnings().iter().chain(after.warnings()) {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            self.sides = Some(Sides {
                begun: at,
                snapshots: 1,
                totals: Totals::begin(&recorded),
                recorded,
                changes: impact.objects,
                warnings,
                before,
                after,
            });
            return Ok(());
        };
        // An object that was deleted while this was recorded has nothing left to remove.
        let removals: Vec<Removal> = removals.iter().filter(|one| one.is_in(&base)).cloned().collect();
        let Edit { after, .. } = edit(&base, objects, &removals)?;
        sides.pass(at, types);
        sides.totals.observe(&recorded);
        sides.recorded = recorded;
        sides.snapshots = sides.snapshots.saturating_add(1);
        sides.before.advance(base)?;
        sides.after.advance(after)
    }

    /// The comparison of the time up to its end. None without a snapshot.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub(in crate::commands::simulate) fn finish(self) -> Result<Option<Comparison>, InputError> {
        let Question { period, types, .. } = &self.question;
        let Some(mut sides) = self.sides else { return Ok(None) };
        let end = Timestamp::from_millisecond(period.to).unwrap_or_default();
        sides.pass(end, types);
        sides.before.run_until(end)?;
        sides.after.run_until(end)?;
        let Sides { begun, snapshots, totals, changes, warnings, before, after, .. } = sides;
        let (before, after) = (Figures::of(&before), Figures::of(&after));
        Ok(Some(Comparison::new((begun, end, snapshots), changes, (&totals).into(), before, after, warnings)))
    }
}

impl Sides {
    /// Adds the price of the recorded nodes until `until`.
    fn pass(&mut self, until: Timestamp, types: &Arc<[InstanceType]>) {
        let lasted = until.duration_since(time_of(&self.recorded));
        self.totals.add(&self.recorded, types, lasted);
    }
}
