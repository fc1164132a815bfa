//! Laws of the ledger: amounts add up to the bill exactly, whatever restarts in between.
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
        book::{Book, HOUR_MILLIS},
        closed::Ledger,
        node::{Account, NodeCost, Stage},
        record::{self, LogBook},
    },
    payer::{Payer, Purpose, Share},
    record::Record,
    writer::{Bounds, SLOTS, Writer},
};
use proptest::prelude::*;

fn payer(tenant: &str, workload: &str) -> Payer {
    Payer { tenant: tenant.to_owned(), namespace: format!("{tenant}-ns"), workload: workload.to_owned() }
}

prop_compose! {
    fn share()(tenant in 0..3_u8, workload in 0..4_u8, cpu in 0..5_000_u64, memory in 0..10_000_000_000_u64, daemon in any::<bool>()) -> Share {
        Share {
            payer: payer(&format!("t{tenant}"), &format!("Deployment/w{workload}")),
            purpose: if daemon { Purpose::DaemonSets } else { Purpose::Used },
            cpu_millis: cpu,
            memory_bytes: memory,
        }
    }
}

prop_compose! {
    fn node()(
        price in prop_oneof![Just(0), 1..50_000_000_i64],
        cpu in 0..200_000_u64,
        memory in 0..2_000_000_000_000_u64,
        stage in prop_oneof![Just(Stage::Starting), Just(Stage::Working), Just(Stage::Draining)],
        shares in prop::collection::vec(share(), 0..6),
        spot in any::<bool>(),
    ) -> NodeCost {
        let capacity_type = if spot { "spot" } else { "on-demand" };
        NodeCost {
            pool: "pool".to_owned(),
            template: String::new(),
            tenant: "t0".to_owned(),
            capacity_type: capacity_type.to_owned(),
            price,
            cpu_millis: cpu,
            memory_bytes: memory,
            stage,
            shares,
        }
    }
}

fn total(book: &Book) -> Amount {
    book.lines(i64::MIN, i64::MAX).map(|line| line.amount).sum()
}

/// One thing that happens to a week of instances.
#[derive(Clone, Debug)]
enum Step {
    Change(u8, NodeCost),
    End(u8),
    Settle,
    /// The process crashes: what the book learned since it was written last is learned again later.
    Crash,
    Write,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..12_u8, node()).prop_map(|(id, cost)| Step::Change(id, cost)),
        2 => (0..12_u8).prop_map(Step::End),
        2 => Just(Step::Settle),
        2 => Just(Step::Write),
        1 => Just(Step::Crash),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parts_add_up_and_are_fair(price in 0..i64::MAX, millis in 0..100_000_000_000_u64, weights in prop::collection::vec(0..1_000_000_u128, 1..12)) {
        let whole = Amount::of(price, millis);
        let parts = whole.divide(&weights);
        prop_assert_eq!(parts.iter().copied().sum::<Amount>(), whole);
        prop_assert_eq!(parts.len(), weights.len());
        let sum: u128 = weights.iter().sum();
        if sum > 0 {
            // Within a millionth of a dollar of the exact share.
            for (part, weight) in parts.iter().zip(&weights) {
                let exact = whole.micros() as f64 * (*weight as f64) / sum as f64;
                prop_assert!((part.micros() as f64 - exact).abs() <= exact * 1e-9 + 2.0, "{} {exact}", part.micros());
            }
        }
    }

    #[test]
    fn a_nodes_charge_is_its_price_times_the_time(cost in node(), millis in 0..10_000_000_000_u64) {
        let charged: Amount = cost.charge(millis).into_iter().map(|(_, amount)| amount).sum();
        prop_assert_eq!(charged, Amount::of(cost.price, millis));
    }

    /// A week of up to 150 changes, with settlements, writes and crashes: the sum over every account is the bill.
    #[test]
    fn the_ledger_of_a_week_is_the_bill(steps in prop::collection::vec((1..7_200_000_i64, step()), 1..150)) {
        let mut book = Book::default();
        let mut bill = Amount::ZERO;
        let mut bill_of_hours: BTreeMap<i64, Amount> = BTreeMap::new();
        let mut runs: BTreeMap<u8, (i64, i64)> = BTreeMap::new();
        let mut written = (book.clone(), 0_usize);
        let mut changes: Vec<(u8, i64, Option<NodeCost>)> = Vec::new();
        let mut at = 1_800_000_123_456_i64;
        let mut pay = |from: i64, to: i64, price: i64| {
            bill += Amount::of(price, to.abs_diff(from));
            let mut from = from;
            while from < to {
                let hour = from.div_euclid(HOUR_MILLIS) * HOUR_MILLIS;
                let until = to.min(hour + HOUR_MILLIS);
                *bill_of_hours.entry(hour).or_default() += Amount::of(price, until.abs_diff(from));
                from = until;
            }
        };
        for (wait, step) in steps {
            at += wait;
            let change = match step {
                Step::Change(id, cost) => {
                    if let Some((since, price)) = runs.insert(id, (at, cost.price)) {
                        pay(since, at, price);
                    }
                    Some((id, Some(cost)))
                }
                Step::End(id) => {
                    if let Some((since, price)) = runs.remove(&id) {
                        pay(since, at, price);
                    }
                    Some((id, None))
                }
                Step::Settle => {
                    book.settle(at);
                    None
                }
                Step::Write => {
                    book.settle(at);
                    written = (book.clone(), changes.len());
                    None
                }
                Step::Crash => {
                    book = written.0.clone();
                    for (id, at, cost) in &changes[written.1..] {
                        book.observe(&id.to_string(), *at, cost.clone());
                    }
                    None
                }
            };
            if let Some((id, cost)) = change {
                book.observe(&id.to_string(), at, cost.clone());
                changes.push((id, at, cost));
            }
        }
        let running: Amount =
            runs.values().map(|(_, price)| Amount::of(*price, HOUR_MILLIS.unsigned_abs())).sum();
        prop_assert_eq!(book.rates().values().copied().sum::<Amount>(), running);
        for (since, price) in runs.into_values() {
            pay(since, at, price);
        }
        book.settle(at);
        prop_assert_eq!(total(&book), bill);
        prop_assert_eq!(total(&book).cents(), bill.cents());
        let mut hours: BTreeMap<i64, Amount> = BTreeMap::new();
        for line in book.lines(i64::MIN, i64::MAX) {
            *hours.entry(line.hour).or_default() += line.amount;
        }
        hours.retain(|_, amount| *amount > Amount::ZERO);
        bill_of_hours.retain(|_, amount| *amount > Amount::ZERO);
        prop_assert_eq!(hours, bill_of_hours);
    }
}

#[test]
fn requests_are_paid_half_by_cpu_and_half_by_memory() {
    let share =
        |payer: Payer, purpose, cpu_millis, memory_bytes| Share { payer, purpose, cpu_millis, memory_bytes };
    let cost = NodeCost {
        pool: "pool".to_owned(),
        template: String::new(),
        tenant: "a".to_owned(),
        capacity_type: "on-demand".to_owned(),
        price: 100_000,
        cpu_millis: 2_000,
        memory_bytes: 8_000,
        stage: Stage::Working,
        shares: vec![
            share(payer("a", "Deployment/web"), Purpose::Used, 1_000, 2_000),
            share(payer("", "DaemonSet/agent"), Purpose::DaemonSets, 200, 0),
        ],
    };
    let charged: BTreeMap<Account, u128> =
        cost.charge(3_600_000).into_iter().map(|(account, amount)| (account, amount.micros())).collect();
    let of = |purpose| {
        let found: Vec<u128> = charged
            .iter()
            .filter(|(account, _)| account.purpose == purpose)
            .map(|(_, micros)| *micros)
            .collect();
        found
    };
    // Half of half the price, and a quarter of the other half.
    assert_eq!(of(Purpose::Used), [37_500]);
    assert_eq!(of(Purpose::DaemonSets), [5_000]);
    assert_eq!(of(Purpose::Idle), [57_500]);
    let idle = charged.keys().find(|account| account.purpose == Purpose::Idle).unwrap();
    assert_eq!(
        (idle.payer.tenant.as_str(), idle.payer.namespace.as_str()),
        ("a", ""),
        "the pool's tenant pays for it"
    );
}

#[test]
fn an_hour_is_closed_when_it_is_over_and_forgotten_when_it_is_old() {
    let cost = NodeCost {
        pool: "pool".to_owned(),
        template: String::new(),
        tenant: String::new(),
        capacity_type: "spot".to_owned(),
        price: 3_600_000,
        cpu_millis: 1,
        memory_bytes: 1,
        stage: Stage::Draining,
        shares: Vec::new(),
    };
    let mut book = Book::default();
    book.observe("i-1", HOUR_MILLIS - 1_000, Some(cost));
    book.observe("i-1", 2 * HOUR_MILLIS + 1_000, None);
    // A tenth of a cent a second.
    let lines: Vec<(i64, u128)> =
        book.lines(0, i64::MAX).map(|line| (line.hour, line.amount.cents())).collect();
    assert_eq!(lines, [(0, 0), (HOUR_MILLIS, 360), (2 * HOUR_MILLIS, 0)]);
    assert_eq!(book.lines(HOUR_MILLIS, HOUR_MILLIS).count(), 0);
    book.forget(2 * HOUR_MILLIS);
    assert_eq!(book.lines(0, i64::MAX).count(), 1);
    assert_eq!(book.running().count(), 0);
}

/// The life of an instance: minutes from its launch to its initialization, to a state with requests, to its deletion and to its end.
#[derive(Clone, Debug)]
struct Life {
    launch: i64,
    steps: [i64; 4],
    price: i64,
    share: Share,
}

prop_compose! {
    fn life()(launch in 0..600_000_000_i64, steps in prop::array::uniform4(0..40_000_000_i64), price in 1..20_000_000_i64, share in share()) -> Life {
        Life { launch, steps, price, share }
    }
}

/// The entries of a life, and its bill.
fn lived(number: usize, life: &Life) -> (Vec<Entry>, Amount) {
    let Life { launch, steps, price, share } = life;
    let mut at = *launch;
    let entry = |at: i64, kind, condition: &str| Entry {
        object: ObjectRef::cluster("NodeClaim", &format!("claim-{number}")),
        pool: format!("pool-{}", number % 3),
        tenants: vec![format!("t{}", number % 2)],
        condition: condition.to_owned(),
        price: Some(*price),
        ..Entry::new(at, kind)
    };
    let mut entries = vec![
        Entry { price: None, ..entry(at, EntryKind::Create, "") },
        Entry {
            instance: Some(InstanceFacts { capacity_type: "spot".to_owned(), ..InstanceFacts::default() }),
            ..entry(at, EntryKind::Condition, "Launched=True")
        },
    ];
    let usage = Usage { cpu_millis: 4_000, memory_bytes: 16_000_000_000, shares: vec![share.clone()] };
    for (step, (kind, condition)) in steps.iter().zip([
        (EntryKind::Condition, "Initialized=True"),
        (EntryKind::State, "Consolidatable=False"),
        (EntryKind::Deleting, ""),
        (EntryKind::Gone, ""),
    ]) {
        at += step;
        let usage = (kind == EntryKind::State).then(|| usage.clone());
        let price = entry(at, kind, condition)
            .price
            .filter(|_| matches!(kind, EntryKind::Condition | EntryKind::State));
        entries.push(Entry { usage, price, ..entry(at, kind, condition) });
    }
    (entries, Amount::of(*price, at.abs_diff(*launch)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A week of instances, as entries that several leaders write one after another.
    #[test]
    fn the_ledger_of_a_log_is_the_bill(lives in prop::collection::vec(life(), 1..40), leaders in 1..20_usize) {
        let mut entries: Vec<Entry> = Vec::new();
        let mut bill = Amount::ZERO;
        for (number, life) in lives.iter().enumerate() {
            let (lived, paid) = lived(number, life);
            entries.extend(lived);
            bill += paid;
        }
        entries.sort_by_key(|entry| entry.at);
        let mut slots: Vec<Vec<u8>> = vec![Vec::new(); SLOTS];
        let each = entries.len().div_ceil(leaders);
        for batch in entries.chunks_mut(each) {
            let written = slots.iter().map(Vec::as_slice).filter(|bytes| !bytes.is_empty());
            let (mut writer, _) = Writer::resume(written, Bounds::default());
            for write in writer.append(batch) {
                slots[write.slot].clone_from(&write.bytes);
            }
        }
        let record = Record::read(slots.iter().map(|bytes| ("slot", bytes.as_slice())));
        let book = record::book(&record, i64::MAX / 2);
        prop_assert_eq!(total(&book), bill);
        prop_assert_eq!(book.running().count(), 0);
        // Each purpose of a life is paid by the payer that it concerns.
        for line in book.lines(i64::MIN, i64::MAX) {
            prop_assert_eq!(&line.account.capacity_type, "spot");
            let of_pods = matches!(line.account.purpose, Purpose::Used | Purpose::DaemonSets);
            prop_assert_eq!(of_pods, !line.account.payer.workload.is_empty());
        }
    }
}

/// An instance's entries with EC2's own times, in seconds, beside those of the entries.
fn by_ec2(claim: &str, instance: &str, capacity_type: &str, times: [(i64, i64); 2]) -> Vec<Entry> {
    let [(launched, known), (ended, seen)] = times.map(|(at, entry)| (at * 1_000, entry * 1_000));
    let entry = |at: i64, kind, ended| Entry {
        object: ObjectRef::cluster("NodeClaim", claim),
        pool: "pool".to_owned(),
        price: Some(if capacity_type == "reserved" { 0 } else { 3_600_000 }),
        condition: "Launched=True".to_owned(),
        instance: Some(InstanceFacts {
            id: instance.to_owned(),
            capacity_type: capacity_type.to_owned(),
            launched: Some(launched),
            ended,
            list_price: (capacity_type == "reserved").then_some(3_600_000),
            ..InstanceFacts::default()
        }),
        ..Entry::new(at, kind)
    };
    let gone = Entry { instance: None, ..entry(seen + 40_000, EntryKind::Gone, None) };
    vec![entry(known, EntryKind::Condition, None), entry(seen, EntryKind::Ended, Some(ended)), gone]
}

/// Milli-dollars: the price is one in a second.
fn paid(entries: Vec<Entry>) -> u128 {
    let mut record = Record { entries, damaged: Vec::new() };
    record.entries.sort_by_key(|entry| entry.at);
    for (entry, sequence) in record.entries.iter_mut().zip(1..) {
        entry.sequence = sequence;
    }
    total(&record::book(&record, i64::MAX / 2)).micros() / 1_000
}

#[test]
fn an_instance_is_paid_for_by_ec2s_clock_however_late_the_entries_are() {
    assert_eq!(paid(by_ec2("a", "i-1", "on-demand", [(100, 130), (400, 425)])), 300);
    assert_eq!(paid(by_ec2("a", "i-1", "on-demand", [(100, 130), (120, 140)])), 60, "a minute at least");
    assert_eq!(paid(by_ec2("a", "i-1", "reserved", [(100, 130), (400, 425)])), 300, "the list price");
}

#[test]
fn an_instance_is_paid_for_by_the_template_that_it_was_launched_by() {
    let mut entries = by_ec2("a", "i-1", "spot", [(100, 130), (400, 425)]);
    for entry in &mut entries {
        entry.instance =
            entry.instance.take().map(|facts| InstanceFacts { template: "cheap".to_owned(), ..facts });
    }
    let record = Record { entries, damaged: Vec::new() };
    let book = record::book(&record, i64::MAX / 2);
    let lines: Vec<(String, String)> =
        book.lines(0, i64::MAX).map(|line| (line.account.pool, line.account.template)).collect();
    assert!(
        !lines.is_empty() && lines.iter().all(|line| *line == ("pool".to_owned(), "cheap".to_owned())),
        "{lines:?}"
    );
    // A log of before templates has none.
    let text = serde_json::to_string(&InstanceFacts::default()).unwrap();
    assert!(
        !text.contains("tpl") && serde_json::from_str::<InstanceFacts>(&text).unwrap().template.is_empty()
    );
}

#[test]
fn an_instance_that_gets_another_claim_is_paid_for_once() {
    // The first claim is lost with a restored backup; its instance is adopted, and ends later.
    let mut entries = by_ec2("a", "i-1", "on-demand", [(100, 130), (9_000, 9_000)]);
    entries.truncate(1);
    let object = ObjectRef::cluster("NodeClaim", "a");
    entries.push(Entry { object, ..Entry::new(500_000, EntryKind::Gone) });
    entries.extend(by_ec2("b", "i-1", "on-demand", [(100, 700), (900, 900)]));
    assert_eq!(paid(entries), 800);
}

#[test]
fn a_launch_that_is_known_after_its_hour_was_closed_is_paid_for_from_then_on() {
    let hour = HOUR_MILLIS / 1_000;
    let [launch, ended, _] =
        by_ec2("a", "i-1", "on-demand", [(hour - 30, hour + 90), (hour + 200, hour + 201)])
            .try_into()
            .unwrap();
    let (mut book, mut ledger) = (LogBook::default(), Ledger::default());
    book.observe(&Entry { sequence: 1, ..Entry::new(1, EntryKind::Lead) });
    ledger.close(&mut book, HOUR_MILLIS);
    for (entry, sequence) in [launch, ended].into_iter().zip(2..) {
        book.observe(&Entry { sequence, ..entry });
    }
    ledger.close(&mut book, 2 * HOUR_MILLIS);
    let closed: Amount = ledger.lines(0, 2 * HOUR_MILLIS).map(|line| line.amount).sum();
    assert_eq!(
        closed.micros(),
        200_000,
        "closed hours stay, and nothing is written into one that isn't read again"
    );
}
