//! Closes the hours of the ledger, once each entry of an hour is written. No I/O.

use std::{collections::BTreeMap, time::Duration};

use croft_record::{
    entry::Entry,
    ledger::{
        amount::Amount,
        book::{HOUR_MILLIS, hour_of},
        closed::{LEDGER_SLOTS, Ledger},
        record::LogBook,
    },
    writer::{SLOTS, SegmentWrite},
};

use crate::{pool_figures::PoolLabels, time::Now};

/// An hour is closed this long after its end, and by a process that has led for as long. What happened in it is recorded by then, also after a
/// change of leaders: the next one lists the cloud's instances within seconds, entries wait for five seconds, and a write takes three.
const CLOSE_AFTER: Duration = Duration::from_secs(60);

/// The costs of the hours that this process closed, for the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClosedCosts {
    /// The costs, by tenant, pool and purpose. `committed` is the list price of what a commitment pays for.
    pub by_purpose: BTreeMap<(PoolLabels, &'static str), Amount>,
    /// The end of the last closed hour, in seconds since 1970; 0 before the first.
    pub until: i64,
}

/// Keeps the ledger of one process.
#[derive(Debug, Default)]
pub(super) struct LedgerKeeper {
    ledger: Ledger,
    /// The costs since the last closed hour, as far as entries are written.
    book: LogBook,
    costs: ClosedCosts,
    /// The end of the last hour in `costs`: one whose write failed is closed again, and counted once.
    counted: i64,
    /// When the store was read, on the monotonic clock.
    resumed: Duration,
}

impl LedgerKeeper {
    pub(super) const fn costs(&self) -> &ClosedCosts {
        &self.costs
    }

    /// Goes on from what the store holds.
    pub(super) fn resume(&mut self, ledger: Ledger, book: LogBook, now: Now) {
        self.resumed = now.mono;
        self.costs.until = ledger.closed_until().unwrap_or(0) / 1_000;
        self.ledger = ledger;
        self.book = book;
    }

    /// Takes in entries that were written.
    pub(super) fn observe_written(&mut self, entries: &[Entry]) {
        entries.iter().for_each(|entry| self.book.observe(entry));
    }

    /// Closes the hours that are over, if the store has every slot of the ledger. `is_written` says whether each entry before a
    /// time is written. Returns the slots to write.
    pub(super) fn close(
        &mut self,
        versions: &BTreeMap<usize, String>,
        now: Now,
        is_written: impl Fn(i64) -> bool,
    ) -> Vec<SegmentWrite> {
        let is_due = |end: &i64| millis(now) >= closes_at(*end) && now.mono >= self.ready();
        let Some(until) = self.next_end(versions).filter(is_due) else {
            return Vec::new();
        };
        // At once up to the last hour that is over.
        let last = hour_of(millis(now).saturating_sub(CLOSE_AFTER.as_millis() as i64)).max(until);
        if !is_written(last) {
            return Vec::new();
        }
        let (hours, writes) = self.ledger.close(&mut self.book, last);
        for hour in hours {
            self.count(hour);
        }
        writes
    }

    /// When the next hour is closed, on the monotonic clock.
    pub(super) fn next_close(&self, versions: &BTreeMap<usize, String>, now: Now) -> Option<Duration> {
        let wait = closes_at(self.next_end(versions)?).saturating_sub(millis(now));
        let due = now.mono.saturating_add(Duration::from_millis(u64::try_from(wait).unwrap_or(0)));
        Some(due.max(self.ready()))
    }

    /// From when on this process closes hours.
    const fn ready(&self) -> Duration {
        self.resumed.saturating_add(CLOSE_AFTER)
    }

    /// The end of the first hour that isn't closed.
    fn next_end(&self, versions: &BTreeMap<usize, String>) -> Option<i64> {
        let has_slots = (SLOTS..SLOTS + LEDGER_SLOTS).all(|slot| versions.contains_key(&slot));
        let begins = hour_of(self.book.begins().filter(|_| has_slots)?);
        let first = self.ledger.closed_until().map_or(begins, |until| until.max(begins));
        Some(first.saturating_add(HOUR_MILLIS))
    }

    fn count(&mut self, hour: i64) {
        let end = hour.saturating_add(HOUR_MILLIS);
        self.costs.until = self.costs.until.max(end / 1_000);
        if end <= self.counted {
            return;
        }
        self.counted = end;
        for line in self.ledger.lines(hour, end) {
            let account = line.account;
            let purpose = if account.is_committed() { "committed" } else { account.purpose.as_str() };
            let labels = PoolLabels { tenant: account.payer.tenant, pool: account.pool };
            *self.costs.by_purpose.entry((labels, purpose)).or_default() += line.amount;
        }
    }
}

fn millis(now: Now) -> i64 {
    now.wall.as_millisecond()
}

const fn closes_at(end: i64) -> i64 {
    end.saturating_add(CLOSE_AFTER.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use croft_record::{
        entry::{EntryKind, InstanceFacts, ObjectRef},
        record::Record,
    };

    use super::*;

    const START: i64 = 1_800_000_000_000;

    fn at(hours: i64, seconds: i64) -> Now {
        let millis = hours * HOUR_MILLIS + seconds * 1_000;
        let wall = jiff::Timestamp::from_millisecond(START + millis).unwrap();
        Now { wall, mono: Duration::from_millis(millis.unsigned_abs()) }
    }

    fn versions() -> BTreeMap<usize, String> {
        (0..SLOTS + LEDGER_SLOTS).map(|slot| (slot, "1".to_owned())).collect()
    }

    fn launch() -> Entry {
        Entry {
            sequence: 1,
            object: ObjectRef::cluster("NodeClaim", "a"),
            pool: "pool-a".to_owned(),
            tenants: vec!["tenant-a".to_owned()],
            condition: "Launched=True".to_owned(),
            price: Some(100_000),
            instance: Some(InstanceFacts::default()),
            ..Entry::new(START, EntryKind::Condition)
        }
    }

    fn cost(keeper: &LedgerKeeper) -> u128 {
        keeper.costs().by_purpose.values().copied().sum::<Amount>().micros()
    }

    #[test]
    fn an_hour_is_closed_once_its_entries_are_written_and_a_minute_has_passed() {
        let mut keeper = LedgerKeeper::default();
        assert_eq!(keeper.next_close(&versions(), at(0, 0)), None, "no entry yet");
        keeper.observe_written(&[launch()]);
        assert_eq!(keeper.next_close(&versions(), at(0, 10)), Some(at(1, 60).mono));
        assert!(keeper.close(&versions(), at(1, 59), |_| true).is_empty());
        assert!(keeper.close(&versions(), at(1, 60), |end| end > START + HOUR_MILLIS).is_empty());
        assert_eq!(keeper.close(&versions(), at(1, 61), |end| end == START + HOUR_MILLIS).len(), 1);
        assert_eq!((cost(&keeper), keeper.costs().until), (100_000, START / 1_000 + 3_600));
        let (labels, purpose) = keeper.costs().by_purpose.keys().next().unwrap();
        assert_eq!((labels.tenant.as_str(), labels.pool.as_str()), ("tenant-a", "pool-a"));
        assert_eq!(*purpose, "starting");
        assert_eq!(keeper.next_close(&versions(), at(1, 61)), Some(at(2, 60).mono));
    }

    #[test]
    fn hours_without_a_leader_are_closed_at_once_and_a_failed_write_is_counted_once() {
        let mut keeper = LedgerKeeper::default();
        keeper.observe_written(&[launch()]);
        assert!(!keeper.close(&versions(), at(5, 70), |_| true).is_empty());
        assert_eq!(cost(&keeper), 500_000);
        // The write failed: the store is read again, and has none of it.
        let log = Record { entries: vec![launch()], damaged: Vec::new() };
        let empty = Ledger::default();
        keeper.resume(empty.clone(), LogBook::replay(&log, &empty, i64::MAX), at(6, 10));
        assert_eq!(keeper.next_close(&versions(), at(6, 10)), Some(at(6, 70).mono));
        assert!(keeper.close(&versions(), at(6, 69), |_| true).is_empty(), "it has just begun to lead");
        assert!(!keeper.close(&versions(), at(6, 70), |_| true).is_empty());
        assert_eq!(cost(&keeper), 600_000, "five hours were counted before");
    }

    #[test]
    fn nothing_is_closed_while_the_manifests_of_the_slots_are_missing() {
        let mut keeper = LedgerKeeper::default();
        keeper.observe_written(&[launch()]);
        let of_log: BTreeMap<usize, String> = (0..SLOTS).map(|slot| (slot, "1".to_owned())).collect();
        assert!(keeper.close(&of_log, at(5, 70), |_| true).is_empty());
        assert_eq!(keeper.next_close(&of_log, at(5, 70)), None);
    }
}
