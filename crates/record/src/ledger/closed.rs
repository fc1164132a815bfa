//! Hours and days that are over: closed once, and never counted again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    amount::Amount,
    book::{HOUR_MILLIS, Line, hour_of},
    node::Account,
    record::LogBook,
    sheet::{self, Period, Sheet},
};
use crate::writer::{SLOTS, SegmentWrite};

/// Slots of the ledger, which follow those of the log: each of the last days has one for its hours, and all days have the last one.
pub const LEDGER_SLOTS: usize = HOURS_SLOTS + 1;
/// The largest content of a slot, in bytes.
pub const SLOT_BYTES: usize = 512 * 1024;
/// Days whose hours are kept.
const HOURS_SLOTS: usize = 3;
/// Closed days that are kept, if there is room: 13 months.
const MOST_DAYS: usize = 396;
/// Milliseconds of a day.
pub(crate) const DAY_MILLIS: i64 = 24 * HOUR_MILLIS;

/// The beginning of a time's day.
pub(crate) const fn day_of(at: i64) -> i64 {
    at.div_euclid(DAY_MILLIS).saturating_mul(DAY_MILLIS)
}

/// True for the slots with the hours of a day.
pub(crate) const fn is_hours_slot(slot: usize) -> bool {
    slot >= SLOTS && slot < SLOTS + HOURS_SLOTS
}

/// The first hour of what such a slot holds.
pub(crate) fn first_hour(bytes: &[u8]) -> Option<i64> {
    sheet::first(bytes)
}

/// Closed hours of the last days, and closed days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    hours: Sheet,
    days: Sheet,
    damaged: bool,
}

impl Ledger {
    /// Reads slots, each with its number. Slots of the log and of snapshots are skipped.
    pub fn read<'a>(slots: impl IntoIterator<Item = (usize, &'a [u8])>) -> Self {
        let mut ledger = Self::default();
        let of_ledger = |(slot, bytes): (usize, &'a [u8])| {
            Some((slot.checked_sub(SLOTS).filter(|slot| *slot < LEDGER_SLOTS)?, bytes))
        };
        for (slot, bytes) in slots.into_iter().filter_map(of_ledger).filter(|(_, bytes)| !bytes.is_empty()) {
            let (sheet, is_intact) = sheet::decode(bytes);
            if !is_intact {
                ledger.damaged = true;
            }
            let kept = if slot < HOURS_SLOTS { &mut ledger.hours } else { &mut ledger.days };
            kept.extend(sheet);
        }
        ledger
    }

    /// Takes in the closed hours of an earlier day, as its slot held them. Hours that are known stay as they are. As a day, only their sum is
    /// kept.
    pub fn observe_hours(&mut self, bytes: &[u8], as_day: bool) {
        let (mut sheet, is_intact) = sheet::decode(bytes);
        if !is_intact {
            self.damaged = true;
        }
        let Some(day) = sheet.first_key_value().map(|(hour, _)| day_of(*hour)) else { return };
        let is_known = self.hours.range(day..day.saturating_add(DAY_MILLIS)).next().is_some();
        if as_day && !is_known {
            self.days.insert(day, sum_day(&sheet, day));
            return;
        }
        sheet.append(&mut self.hours);
        self.hours = sheet;
    }

    /// True if a slot is damaged: periods of it are missing or incomplete.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// The end of the last closed hour.
    #[must_use]
    pub fn closed_until(&self) -> Option<i64> {
        let hour = self.hours.last_key_value().map(|(hour, _)| hour.saturating_add(HOUR_MILLIS));
        let day = self.days.last_key_value().map(|(day, _)| day.saturating_add(DAY_MILLIS));
        hour.max(day)
    }

    /// The beginning of the first closed hour or day.
    #[must_use]
    pub fn begins(&self) -> Option<i64> {
        let first = |sheet: &Sheet| sheet.first_key_value().map(|(at, _)| *at);
        [first(&self.hours), first(&self.days)].into_iter().flatten().min()
    }

    /// The last entry that each closed hour took into account, and the end of the hour.
    pub(super) fn marks(&self) -> impl Iterator<Item = (u64, i64)> {
        self.hours.iter().map(|(hour, period)| (period.through, hour.saturating_add(HOUR_MILLIS)))
    }

    /// True if the hour is closed, and its lines are there.
    #[must_use]
    pub fn has(&self, hour: i64) -> bool {
        self.hours.contains_key(&hour)
    }

    /// True if the day of the hour is closed, and its hours are no longer there.
    #[must_use]
    pub fn has_day_only(&self, hour: i64) -> bool {
        let day = day_of(hour);
        self.days.contains_key(&day) && self.hours.range(day..day.saturating_add(DAY_MILLIS)).next().is_none()
    }

    /// True if the log had all that was paid in each closed hour and day from `from` on and before `to`.
    #[must_use]
    pub fn is_complete(&self, from: i64, to: i64) -> bool {
        let hours = self.hours.range(from..to.max(from));
        let days = self.days.range(from..to.max(from)).filter(|(day, _)| self.has_day_only(**day));
        hours.chain(days).all(|(_, period)| period.is_complete)
    }

    /// The lines of closed hours that begin from `from` on and before `to`.
    pub fn lines(&self, from: i64, to: i64) -> impl Iterator<Item = Line> {
        self.hours.range(from..to.max(from)).flat_map(|(hour, period)| lines_of(*hour, 1, period))
    }

    /// A line for each account of each closed day whose hours are no longer there, and which begins from `from` on and ends by `to`.
    pub fn lines_of_days(&self, from: i64, to: i64) -> impl Iterator<Item = Line> {
        let whole = move |day: i64| day.saturating_add(DAY_MILLIS) <= to && self.has_day_only(day);
        self.days
            .range(from..to.max(from))
            .filter(move |(day, _)| whole(**day))
            .flat_map(|(day, period)| lines_of(*day, 24, period))
    }

    /// Closes every hour that ended by `at` and isn't closed, and the days that are over with them; the book forgets them. Returns the
    /// hours that were closed, and the slots to write.
    pub fn close(&mut self, book: &mut LogBook, at: i64) -> (Vec<i64>, Vec<SegmentWrite>) {
        let Some(begins) = book.begins() else { return (Vec::new(), Vec::new()) };
        let first = self.closed_until().unwrap_or(hour_of(begins)).max(hour_of(begins));
        let mut closed = Vec::new();
        let mut known: BTreeSet<_> = self
            .hours
            .last_key_value()
            .into_iter()
            .flat_map(|(_, last)| last.accounts.keys().cloned())
            .collect();
        let mut hour = first;
        while hour.saturating_add(HOUR_MILLIS) <= at {
            let end = hour.saturating_add(HOUR_MILLIS);
            book.settle(end);
            let lines = book.book().lines(hour, end);
            let accounts: BTreeMap<_, _> =
                lines.map(|line| (sheet::share(&mut known, line.account), line.amount)).collect();
            let period = Period { through: book.through(), is_complete: book.covers(hour), accounts };
            self.hours.insert(hour, period);
            closed.push(hour);
            hour = end;
        }
        if closed.is_empty() {
            return (closed, Vec::new());
        }
        book.forget(hour);
        let writes = self.write(&closed, hour);
        (closed, writes)
    }

    /// Closes the days that are over, drops what is older than the slots hold, and encodes the slots that differ.
    fn write(&mut self, closed: &[i64], until: i64) -> Vec<SegmentWrite> {
        let changed: BTreeSet<i64> = closed.iter().map(|hour| day_of(*hour)).collect();
        let is_over = |day: &i64| day.saturating_add(DAY_MILLIS) <= until && !self.days.contains_key(day);
        let over: BTreeSet<i64> = self.hours.keys().map(|hour| day_of(*hour)).filter(is_over).collect();
        for day in &over {
            let period = sum_day(&self.hours, *day);
            self.days.insert(*day, period);
        }
        while self.days.len() > MOST_DAYS {
            self.days.pop_first();
        }
        let last_day = day_of(until.saturating_sub(1));
        let kept = last_day.saturating_sub(DAY_MILLIS.saturating_mul(HOURS_SLOTS as i64 - 1));
        self.hours = self.hours.split_off(&kept);
        let mut writes: Vec<SegmentWrite> =
            changed.into_iter().filter(|day| *day >= kept).map(|day| self.write_hours(day)).collect();
        if !over.is_empty() {
            let bytes = sheet::encode_within(&mut self.days, SLOT_BYTES);
            writes.push(SegmentWrite { slot: SLOTS + HOURS_SLOTS, bytes });
        }
        writes
    }

    /// The slot of a day's hours.
    fn write_hours(&mut self, day: i64) -> SegmentWrite {
        let mut after = self.hours.split_off(&day);
        let later = after.split_off(&day.saturating_add(DAY_MILLIS));
        let bytes = sheet::encode_within(&mut after, SLOT_BYTES);
        self.hours.extend(after);
        self.hours.extend(later);
        let slot = usize::try_from(day.div_euclid(DAY_MILLIS).rem_euclid(HOURS_SLOTS as i64)).unwrap_or(0);
        SegmentWrite { slot: SLOTS + slot, bytes }
    }
}

/// The sum of a day's hours.
fn sum_day(hours: &Sheet, day: i64) -> Period {
    let mut sum = Period { is_complete: true, ..Period::default() };
    let mut count = 0;
    for period in hours.range(day..day.saturating_add(DAY_MILLIS)).map(|(_, period)| period) {
        count += 1;
        sum.through = sum.through.max(period.through);
        sum.is_complete &= period.is_complete;
        for (account, amount) in &period.accounts {
            *sum.accounts.entry(Arc::clone(account)).or_default() += *amount;
        }
    }
    sum.is_complete &= count == 24;
    sum
}

/// The lines of a period of so many hours, which begins with `hour`.
fn lines_of(hour: i64, hours: u32, period: &Period) -> impl Iterator<Item = Line> {
    let line = move |(account, amount): (&Arc<Account>, &Amount)| Line {
        hour,
        hours,
        account: Account::clone(account),
        amount: *amount,
    };
    period.accounts.iter().map(line)
}
