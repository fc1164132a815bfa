//! Goes through the snapshots on both sides.

use std::sync::Arc;

use croft_inspect::{
    admission::Admission,
    simulation::{Replay, Totals, keep_demand, register_coming, time_of},
};
use croft_manifest::{Input, InputError, KindGroup, each_kind};
use croft_scheduler::{InstanceType, Options};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::report::{Comparison, Figures, Span};
use crate::{
    commands::{
        plan::impact::{Edit, Edited, Removal, created_under, edit, without_leaving},
        simulate::comparison::set_prices,
    },
    record::{Period, SNAPSHOT_IS_OLD},
    table::counted,
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
    /// Times without a snapshot that are too long to be one of a busy cluster.
    gaps: Vec<(Timestamp, Timestamp)>,
    /// The cluster at the last snapshot.
    recorded: Input,
    /// The objects to put over the next snapshot: not those of the first that were deleted since.
    edit: Input,
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
        keep_demand(&mut recorded);
        register_coming(&mut recorded, types);
        let base = without_leaving(&recorded)?;
        let Some(sides) = &mut self.sides else {
            let Edit { mut impact, then: _, mut after } = edit(&base, objects, removals)?;
            if let Some(types) = types_after {
                set_prices(&mut after, types);
            }
            let types_after = types_after.as_ref().unwrap_or(types);
            let after = Replay::begin(&base, after, Arc::clone(types_after), options.clone())?;
            let before = Replay::begin(&base.clone(), base, Arc::clone(types), options.clone())?;
            let mut warnings = impact.take_warnings();
            if at > begin {
                warnings.push(format!("the first snapshot is of {at}: the replay begins there"));
            }
            for warning in before.warnings().iter().chain(after.warnings()) {
                if !warnings.contains(warning) {
                    warnings.push(warning.clone());
                }
            }
            self.sides = Some(Sides {
                begun: at,
                snapshots: 1,
                gaps: Vec::new(),
                totals: Totals::begin(&recorded),
                edit: (*objects).clone(),
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
        leave_out_deleted(&mut sides.edit, &sides.recorded, &base);
        let Edit { after, .. } = edit(&base, &sides.edit, &removals)?;
        let admission = Admission::new(&after)?;
        sides.pass(at, types);
        sides.totals.observe(&recorded);
        sides.recorded = recorded;
        sides.snapshots = sides.snapshots.saturating_add(1);
        sides.before.advance(base, &Some)?;
        sides.after.advance(after, &|pod| created_under(pod, &admission))
    }

    /// The comparison of the time up to its end.
    ///
    /// # Errors
    /// Values that the scheduler refuses, by object and field.
    pub(in crate::commands::simulate) fn finish(self) -> Result<Comparison, InputError> {
        let Question { period, types, .. } = &self.question;
        let none = || InputError::Other("there is no snapshot of that time: croft check says why".to_owned());
        let mut sides = self.sides.ok_or_else(none)?;
        let end = Timestamp::from_millisecond(period.to).unwrap_or_default();
        sides.pass(end, types);
        sides.before.run_until(end)?;
        sides.after.run_until(end)?;
        let Sides { begun, snapshots, totals, changes, mut warnings, before, after, gaps, .. } = sides;
        warnings.extend(warning_of(&gaps));
        let (before, after) = (Figures::of(&before), Figures::of(&after));
        let span = Span { from: begun, to: end, snapshots };
        Ok(Comparison::new(span, changes, (&totals).into(), before, after, warnings))
    }
}

/// The sums lack pods that came and went while no snapshot was made.
fn warning_of(gaps: &[(Timestamp, Timestamp)]) -> Option<String> {
    let (from, to) = gaps.iter().max_by_key(|(from, to)| to.duration_since(*from))?;
    let longest = format!("the longest from {from} to {to}");
    Some(format!(
        "{} of more than {} minutes without a snapshot, {longest}: nothing changed then, or the controller made none",
        counted(gaps.len(), "time"),
        SNAPSHOT_IS_OLD.as_mins(),
    ))
}

/// Leaves objects out of `edit` that were in the snapshot before and aren't in `now`: someone has deleted them.
fn leave_out_deleted(edit: &mut Input, before: &Input, now: &Input) {
    macro_rules! leave_out {
        ($($field:ident: $group:ident),*) => { $(if KindGroup::$group == KindGroup::Settings {
            edit.$field.retain(|object| {
                let name = object.name_any();
                before.$field.get("", &name).is_none() || now.$field.get("", &name).is_some()
            });
        })* };
    }
    each_kind!(leave_out);
}

impl Sides {
    /// Adds the price of the recorded nodes until `until`.
    fn pass(&mut self, until: Timestamp, types: &Arc<[InstanceType]>) {
        let since = time_of(&self.recorded);
        let lasted = until.duration_since(since);
        self.totals.add(&self.recorded, types, lasted);
        if lasted > SNAPSHOT_IS_OLD {
            self.gaps.push((since, until));
        }
    }
}
