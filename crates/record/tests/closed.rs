//! Laws of the closed hours and days: what is closed is what the log says, and stays when the log no longer has it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;

use croft_record::{
    entry::{Entry, EntryKind, InstanceFacts, ObjectRef, Usage},
    ledger::{
        amount::Amount,
        book::{HOUR_MILLIS, Line, hour_of},
        closed::{LEDGER_SLOTS, Ledger, SLOT_BYTES},
        record::{LogBook, book, statement},
    },
    payer::{Payer, Purpose, Share},
    record::Record,
    writer::{SLOTS, SegmentWrite},
};
use proptest::prelude::*;

const START: i64 = 1_800_000_000_000;
const DAY: i64 = 24 * HOUR_MILLIS;
const GIB: u64 = 1 << 30;

fn share(tenant: usize, workload: usize, cpu_millis: u64) -> Share {
    let payer = Payer {
        tenant: format!("tenant-{tenant}"),
        namespace: format!("tenant-{tenant}-apps"),
        workload: format!("Deployment/service-{workload}"),
    };
    Share { payer, purpose: Purpose::Used, cpu_millis, memory_bytes: cpu_millis * 3_000_000 }
}

fn entry(claim: usize, at: i64, kind: EntryKind) -> Entry {
    Entry {
        object: ObjectRef::cluster("NodeClaim", &format!("claim-{claim}")),
        pool: format!("pool-{}", claim % 5),
        tenants: vec![format!("tenant-{}", claim % 5)],
        ..Entry::new(at, kind)
    }
}

fn launched(claim: usize, at: i64, price: i64) -> Entry {
    let instance = InstanceFacts { capacity_type: "on-demand".to_owned(), ..InstanceFacts::default() };
    Entry {
        condition: "Launched=True".to_owned(),
        price: Some(price),
        instance: Some(instance),
        ..entry(claim, at, EntryKind::Condition)
    }
}

fn state(claim: usize, at: i64, price: i64, shares: Vec<Share>) -> Entry {
    let usage = Usage { cpu_millis: 16_000, memory_bytes: 64 * GIB, shares };
    Entry { price: Some(price), usage: Some(usage), ..entry(claim, at, EntryKind::State) }
}

/// The ledger's slots, as a store keeps them.
#[derive(Clone, Default)]
struct Slots(BTreeMap<usize, Vec<u8>>);

impl Slots {
    fn write(&mut self, writes: Vec<SegmentWrite>) {
        for SegmentWrite { slot, bytes } in writes {
            assert!((SLOTS..SLOTS + LEDGER_SLOTS).contains(&slot) && bytes.len() <= SLOT_BYTES, "{slot}");
            self.0.insert(slot, bytes);
        }
    }

    fn read(&self) -> Ledger {
        let ledger = Ledger::read(self.0.iter().map(|(slot, bytes)| (*slot, bytes.as_slice())));
        assert!(!ledger.is_damaged());
        ledger
    }
}

fn total(lines: &[Line]) -> Amount {
    lines.iter().map(|line| line.amount).sum()
}

fn record(mut entries: Vec<Entry>) -> Record {
    entries.sort_by_key(|entry| entry.at);
    for (entry, sequence) in entries.iter_mut().zip(1..) {
        entry.sequence = sequence;
    }
    Record { entries, damaged: Vec::new() }
}

prop_compose! {
    fn life()(
        launch in 0..3 * DAY,
        lasts in 1..2 * DAY,
        price in 1..20_000_000_i64,
        states in prop::collection::vec((0..2 * DAY, prop::collection::vec((0..5_usize, 0..3_usize, 0..9_000_u64), 0..4)), 0..6),
    ) -> (i64, i64, i64, Vec<(i64, Vec<Share>)>) {
        let shares = |shares: Vec<(usize, usize, u64)>| shares.into_iter().map(|(t, w, cpu)| share(t, w, cpu)).collect();
        (launch, lasts, price, states.into_iter().map(|(after, of)| (after, shares(of))).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Days of instances, closed by leaders that restart anywhere and read slots and log again: each closed hour is what the whole log
    /// says, to the last unit; the hours since are the log's; and once the log is gone, what was closed is still there.
    #[test]
    fn closed_hours_are_the_logs_whatever_restarts(
        lives in prop::collection::vec(life(), 1..12),
        closings in prop::collection::vec((1..20 * HOUR_MILLIS, any::<bool>()), 1..12),
    ) {
        let mut entries = Vec::new();
        for (claim, (launch, lasts, price, states)) in lives.into_iter().enumerate() {
            let at = START + launch;
            entries.push(launched(claim, at, price));
            entries.extend(states.into_iter().filter(|(after, _)| *after < lasts).map(|(after, shares)| state(claim, at + after, price, shares)));
            entries.push(entry(claim, at + lasts, EntryKind::Gone));
        }
        let whole = record(entries);
        let mut slots = Slots::default();
        let (mut ledger, mut open, mut written) = (Ledger::default(), LogBook::default(), 0);
        let mut at = START;
        for (wait, restarts) in closings {
            at += wait;
            if restarts {
                ledger = slots.read();
                let log = Record { entries: whole.entries[..written].to_vec(), damaged: Vec::new() };
                open = LogBook::replay(&log, &ledger, i64::MAX);
            }
            while let Some(entry) = whole.entries.get(written).filter(|entry| entry.at < at) {
                open.observe(entry);
                written += 1;
            }
            let (_, writes) = ledger.close(&mut open, hour_of(at));
            slots.write(writes);
        }
        let closed = slots.read();
        let log = Record { entries: whole.entries[..written].to_vec(), damaged: Vec::new() };
        let bill: Amount = book(&log, at).lines(i64::MIN, i64::MAX).map(|line| line.amount).sum();
        let kept = statement(&log, &closed, i64::MIN, at);
        let before = closed.lines(i64::MIN, i64::MAX).chain(closed.lines_of_days(i64::MIN, i64::MAX));
        let before: Vec<Line> = before.collect();
        prop_assert_eq!(total(&kept), bill);
        if closed.closed_until().is_some() {
            let gone = statement(&Record::default(), &closed, i64::MIN, at);
            prop_assert_eq!(total(&gone), total(&before));
            let since = closed.closed_until().unwrap();
            prop_assert_eq!(total(&gone) + total(&statement(&log, &closed, since, at)), bill);
        }
    }
}

/// A cluster of one hour-long state per node, from `from` on.
fn cluster(nodes: usize, from: i64, hours: i64, workloads: usize) -> Vec<Entry> {
    let mut entries = Vec::new();
    for claim in 0..nodes {
        entries.push(launched(claim, from, 192_000));
        for hour in 0..hours {
            let of =
                |n: usize| share((claim * 7 + n) % 200, n % workloads, 400 + (claim + n) as u64 * 13 % 900);
            let at = from + hour * HOUR_MILLIS + claim as i64 * 1_000 + 60_000;
            entries.push(state(claim, at, 192_000, (0..10).map(of).collect()));
        }
    }
    entries.sort_by_key(|entry| entry.at);
    entries
}

#[test]
fn an_hour_is_incomplete_if_the_log_began_later() {
    let from = hour_of(START);
    let mut log = record(cluster(1, from, 5, 1));
    log.entries.iter_mut().for_each(|entry| entry.sequence += 100);
    let mut open = LogBook::replay(&log, &Ledger::default(), i64::MAX);
    let mut ledger = Ledger::default();
    let (hours, _) = ledger.close(&mut open, from + 3 * HOUR_MILLIS);
    assert_eq!(hours, [from, from + HOUR_MILLIS, from + 2 * HOUR_MILLIS]);
    assert!(!ledger.is_complete(from, from + 1));
    assert!(
        ledger.is_complete(from + HOUR_MILLIS, from + 3 * HOUR_MILLIS),
        "each node has an entry once an hour"
    );
}

/// 200 tenants with 2,000 workloads on 250 nodes for four days: each slot is within its bound, and the days say what the hours did.
#[test]
fn days_of_200_tenants_fit_into_the_slots() {
    let from = START.div_euclid(DAY) * DAY;
    let log = record(cluster(250, from, 4 * 24, 10));
    let (mut ledger, mut open, mut slots) = (Ledger::default(), LogBook::default(), Slots::default());
    let mut bill = Amount::ZERO;
    let mut entries = log.entries.iter().peekable();
    for hour in 1..=4 * 24 {
        let end = from + hour * HOUR_MILLIS;
        while let Some(entry) = entries.next_if(|entry| entry.at < end) {
            open.observe(entry);
        }
        slots.write(ledger.close(&mut open, end).1);
        bill += Amount::of(192_000, 250 * HOUR_MILLIS.unsigned_abs());
    }
    let read = slots.read();
    assert_eq!(read, ledger);
    assert_eq!(read.begins(), Some(from));
    let until = from + 4 * DAY;
    assert_eq!(read.closed_until(), Some(until));
    let lines = statement(&Record::default(), &read, from, until);
    assert_eq!(total(&lines), bill, "the first day is in the days alone");
    assert!(lines.iter().filter(|line| line.hour < from + DAY).all(|line| line.hour == from));
    let bytes: usize = slots.0.values().map(Vec::len).sum();
    assert!(bytes <= LEDGER_SLOTS * SLOT_BYTES, "{bytes}");
}

#[test]
fn a_damaged_slot_says_so_and_keeps_what_precedes_the_damage() {
    let from = hour_of(START);
    let log = record(cluster(20, from, 3, 3));
    let mut open = LogBook::replay(&log, &Ledger::default(), i64::MAX);
    let (_, writes) = Ledger::default().close(&mut open, from + 2 * HOUR_MILLIS);
    let [SegmentWrite { slot, bytes }] = writes.as_slice() else { panic!("{}", writes.len()) };
    let cut = Ledger::read([(*slot, &bytes[..bytes.len() - 20])]);
    assert!(cut.is_damaged() && cut.has(from) && !cut.is_complete(from, from + HOUR_MILLIS));
    assert!(Ledger::read([(*slot, b"other".as_slice())]).is_damaged());
    assert!(!Ledger::read([(*slot, b"".as_slice()), (0, b"a segment of the log".as_slice())]).is_damaged());
}

/// Days with more accounts than a slot may have: workloads are merged, and no amount is lost.
#[test]
fn accounts_are_merged_where_a_slot_would_be_too_large() {
    let from = START.div_euclid(DAY) * DAY;
    let many = |n: usize| share(n % 300, n, 10 + n as u64 % 7);
    let entries = (0..60).flat_map(|claim| {
        let at = from + claim as i64;
        let shares = (0..100).map(|n| many(claim * 100 + n)).collect();
        [launched(claim, at, 192_000), state(claim, at, 192_000, shares)]
    });
    let log = record(entries.collect());
    let mut open = LogBook::replay(&log, &Ledger::default(), i64::MAX);
    let (mut ledger, mut slots) = (Ledger::default(), Slots::default());
    slots.write(ledger.close(&mut open, from + DAY).1);
    let read = slots.read();
    assert_eq!(read, ledger);
    let lines: Vec<Line> = read.lines(from, from + DAY).collect();
    let bill: u64 = (0..60).map(|claim| 192_000 * (DAY as u64 - claim)).sum();
    assert_eq!(total(&lines), Amount::of(1, bill));
    assert!(
        lines.len() <= 100_000 && lines.iter().all(|line| line.account.payer.workload.is_empty()),
        "{}",
        lines.len()
    );
    assert!(lines.iter().any(|line| line.account.payer.namespace == "tenant-7-apps"));
}
