//! Laws of the log: what is appended is read again, in order; its size is bounded; a crash between two writes, a leader change
//! or a damaged segment loses no entry that was written before.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use croft_record::{
    entry::{Entry, EntryKind, MESSAGE_CHARS, ObjectRef, PODS_PER_ENTRY, PlanFigures},
    query::{self, Phase},
    record::Record,
    writer::{Bounds, SLOTS, Writer},
};
use proptest::prelude::*;

/// Small, so that a test fills the ring in a moment.
const BOUNDS: Bounds = Bounds { segment_bytes: 64 * 1024, member_text_bytes: 8 * 1024 };

/// The slots of a store.
#[derive(Clone, Default)]
struct Ring(Vec<Vec<u8>>);

impl Ring {
    fn new() -> Self {
        Self(vec![Vec::new(); SLOTS])
    }

    /// Appends through `writer`, and stops after `writes` of its writes, as a crash does. True if all were written.
    fn append(&mut self, writer: &mut Writer, entries: &mut [Entry], writes: usize) -> bool {
        let asked = writer.append(entries);
        for write in asked.iter().take(writes) {
            assert!(write.bytes.len() <= BOUNDS.segment_bytes, "{}", write.bytes.len());
            self.0[write.slot].clone_from(&write.bytes);
        }
        asked.len() <= writes
    }

    fn resume(&self) -> (Writer, u64) {
        Writer::resume(self.0.iter().map(Vec::as_slice).filter(|bytes| !bytes.is_empty()), BOUNDS)
    }

    fn read(&self) -> Record {
        Record::read(self.0.iter().map(|bytes| ("slot", bytes.as_slice())))
    }
}

fn noise(seed: u64, length: usize) -> String {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        char::from_u32(u32::try_from(0x4E00 + *state % 20_000).unwrap()).unwrap()
    };
    (0..length).map(|_| next(&mut state)).collect()
}

prop_compose! {
    fn entry()(
        at in 0..1_000_000_i64,
        seed in any::<u64>(),
        length in prop_oneof![8 => 0..80_usize, 1 => 0..3_000_usize],
        pods in prop_oneof![8 => 0..3_usize, 1 => 0..400_usize],
        price in prop::option::of(any::<i64>()),
        planned in any::<bool>(),
    ) -> Entry {
        Entry {
            object: ObjectRef::namespaced("Pod", "ns", &format!("p{seed}")),
            pods: (0..pods).map(|pod| format!("ns/{pod}-{}", noise(seed, 20))).collect(),
            message: noise(seed, length),
            price,
            plan: planned.then(|| PlanFigures { inputs: seed.to_string(), steps: seed, ..PlanFigures::default() }),
            ..Entry::new(at, EntryKind::Event)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn entries_are_read_as_they_were_appended(batches in prop::collection::vec(prop::collection::vec(entry(), 0..20), 1..8)) {
        let mut ring = Ring::new();
        let (mut writer, _) = ring.resume();
        let mut all = Vec::new();
        for mut batch in batches {
            ring.append(&mut writer, &mut batch, usize::MAX);
            all.extend(batch.into_iter().map(Entry::bounded));
        }
        let read = ring.read();
        prop_assert_eq!(&read.damaged, &Vec::<String>::new());
        prop_assert!(all.iter().zip(1..).all(|(entry, number)| entry.sequence == number));
        prop_assert_eq!(&read.entries, &all);
        prop_assert_eq!(Record::read([("file", read.to_bytes().as_slice())]).entries, all);
    }

    /// Crashes after any write, and other leaders that continue.
    #[test]
    fn nothing_that_was_written_is_lost_in_a_crash(
        batches in prop::collection::vec((prop::collection::vec(entry(), 1..30), 0..3_usize, any::<bool>()), 1..16),
    ) {
        let mut ring = Ring::new();
        let (mut writer, _) = ring.resume();
        let mut durable: Vec<Entry> = Vec::new();
        for (mut batch, writes, crash) in batches {
            let whole = ring.append(&mut writer, &mut batch, if crash { writes } else { usize::MAX });
            if whole {
                durable.extend(batch.into_iter().map(Entry::bounded));
            } else {
                let (next, last) = ring.resume();
                writer = next;
                // The next leader reads what arrived of the last batch.
                durable.extend(batch.into_iter().filter(|entry| entry.sequence <= last).map(Entry::bounded));
            }
            let read = ring.read().entries;
            prop_assert_eq!(&read[read.len().saturating_sub(50)..], &durable[durable.len().saturating_sub(50)..]);
        }
        prop_assert_eq!(ring.read().entries, durable);
    }

    #[test]
    fn damage_hides_only_what_follows_it(mut batch in prop::collection::vec(entry(), 20..80), cut in 0.0..1.0_f64, flip in any::<u8>()) {
        let mut ring = Ring::new();
        let (mut writer, _) = ring.resume();
        ring.append(&mut writer, &mut batch[..10], usize::MAX);
        ring.append(&mut writer, &mut batch[10..], usize::MAX);
        let whole = ring.read().entries;
        let slot = ring.0.iter().position(|bytes| !bytes.is_empty()).unwrap();
        let at = (cut * (ring.0[slot].len() - 1) as f64) as usize;
        ring.0[slot].truncate(at + 1);
        ring.0[slot][at] ^= flip;
        let read = ring.read();
        prop_assert!(read.entries.len() <= whole.len());
        prop_assert!(read.entries.iter().all(|entry| whole.contains(entry)));
        // A writer goes on, and what it writes is read.
        let (mut writer, last) = ring.resume();
        let mut more = vec![Entry::new(1, EntryKind::Lead)];
        ring.append(&mut writer, &mut more, usize::MAX);
        prop_assert!(more[0].sequence > last);
        prop_assert!(ring.read().entries.contains(&more[0]));
    }
}

#[test]
fn the_oldest_segments_are_overwritten_and_the_size_stays_bounded() {
    let mut ring = Ring::new();
    let mut appended = 0_u64;
    for round in 0..90_u64 {
        // Every round is another leader's.
        let (mut writer, last) = ring.resume();
        assert_eq!(last, appended, "the last entry is always there");
        let mut batch: Vec<Entry> = (0..30)
            .map(|n| Entry {
                message: noise(round * 1_000 + n, 600),
                ..Entry::new(i64::try_from(round).unwrap(), EntryKind::Event)
            })
            .collect();
        appended += batch.len() as u64;
        ring.append(&mut writer, &mut batch, usize::MAX);
        assert!(ring.0.iter().map(Vec::len).sum::<usize>() <= SLOTS * BOUNDS.segment_bytes);
    }
    let read = ring.read();
    let numbers: Vec<u64> = read.entries.iter().map(|entry| entry.sequence).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "no gap");
    assert_eq!(numbers.last(), Some(&appended));
    assert!(numbers[0] > 1, "the first were overwritten");
    assert!(read.begins() > Some(0));
}

#[test]
fn an_entry_is_cut_to_its_bounds() {
    let entry = Entry {
        message: "é".repeat(MESSAGE_CHARS + 5),
        pods: vec!["a/b".to_owned(); PODS_PER_ENTRY + 5],
        ..Entry::new(0, EntryKind::Pending)
    }
    .bounded();
    assert_eq!((entry.message.chars().count(), entry.pods.len()), (MESSAGE_CHARS, PODS_PER_ENTRY));
}

#[test]
fn kinds_and_fields_of_a_later_version_are_skipped() {
    let text = r#"{"n":1,"t":2,"k":"divination","o":"Pod/a/b","x":[1]}"#;
    let entry: Entry = serde_json::from_str(text).unwrap();
    assert_eq!((entry.kind, entry.object), (EntryKind::Unknown, ObjectRef::namespaced("Pod", "a", "b")));
}

fn life() -> Record {
    let claim = |at, kind| Entry {
        object: ObjectRef::cluster("NodeClaim", "claim"),
        node: if at > 10 { "node".to_owned() } else { String::new() },
        pool: "pool".to_owned(),
        tenants: vec!["tenant".to_owned()],
        ..Entry::new(at, kind)
    };
    let condition = |at, text: &str, reason: &str| Entry {
        condition: text.to_owned(),
        reason: reason.to_owned(),
        ..claim(at, EntryKind::Condition)
    };
    let pods = vec!["ns/web".to_owned()];
    let entries = vec![
        Entry { pods: pods.clone(), tenants: vec!["tenant".to_owned()], ..Entry::new(5, EntryKind::Pending) },
        Entry { pods: pods.clone(), ..claim(10, EntryKind::Create) },
        Entry { price: Some(96_000), ..condition(20, "Launched=True", "Launched") },
        condition(30, "Registered=True", "Registered"),
        condition(40, "Initialized=True", "Initialized"),
        Entry {
            claim: "claim".to_owned(),
            object: ObjectRef::namespaced("Pod", "ns", "web"),
            ..Entry::new(45, EntryKind::Bound)
        },
        Entry { pods, ..claim(50, EntryKind::State) },
        condition(60, "Consolidatable=False", "BelowMinSavings"),
        Entry { reason: "Empty".to_owned(), message: "no pod".to_owned(), ..claim(70, EntryKind::Event) },
        claim(71, EntryKind::Deleting),
        claim(80, EntryKind::Gone),
        Entry {
            object: ObjectRef::cluster("NodeClaim", "other"),
            node: "node".to_owned(),
            ..Entry::new(90, EntryKind::Create)
        },
    ];
    Record {
        entries: entries.into_iter().zip(1..).map(|(entry, sequence)| Entry { sequence, ..entry }).collect(),
        damaged: vec![],
    }
}

#[test]
fn a_node_is_shown_as_it_was_at_a_time() {
    let record = life();
    let phases: Vec<(i64, Phase)> = [1, 10, 20, 35, 41, 65, 71, 80]
        .map(|at| (at, query::node_at(&record, "node", at).unwrap().phase))
        .into();
    let expected = [
        (1, Phase::Unknown),
        (10, Phase::Launching),
        (20, Phase::Launched),
        (35, Phase::Registered),
        (41, Phase::Ready),
        (65, Phase::Ready),
        (71, Phase::Removing),
        (80, Phase::Gone),
    ];
    assert_eq!(phases, expected);
    let kept = query::node_at(&record, "node", 65).unwrap();
    assert_eq!(
        (kept.claim, kept.pool, kept.price, kept.pods),
        ("claim", Some("pool"), Some(96_000), &["ns/web".to_owned()][..])
    );
    assert_eq!(kept.conditions["Consolidatable"].reason, "BelowMinSavings");
    assert_eq!(
        kept.after.iter().map(|entry| entry.kind).collect::<Vec<_>>(),
        [EntryKind::Event, EntryKind::Deleting, EntryKind::Gone]
    );
    assert_eq!(query::node_at(&record, "node", 95).unwrap().claim, "other", "the name came again");
    assert!(query::node_at(&record, "nothing", 50).is_none());
}

#[test]
fn a_pod_is_shown_with_the_claim_that_it_waited_for() {
    let record = life();
    let pod = query::pod_at(&record, "ns", "web", 25).unwrap();
    let kinds = |entries: &[&Entry]| entries.iter().map(|entry| entry.kind).collect::<Vec<_>>();
    assert_eq!(kinds(&pod.before), [EntryKind::Pending, EntryKind::Create, EntryKind::Condition]);
    let later = [EntryKind::Condition, EntryKind::Condition, EntryKind::Bound, EntryKind::State];
    assert_eq!(kinds(&pod.after), later);
    assert!(query::pod_at(&record, "other", "web", 25).is_none());
}

#[test]
fn a_tenant_sees_its_own_entries_between_two_times() {
    let record = life();
    assert_eq!(query::tenant(&record, "tenant", 10, 41).count(), 4);
    assert_eq!(query::tenant(&record, "another", 0, 100).count(), 0);
    assert_eq!(query::tenants(&record).into_iter().collect::<Vec<_>>(), ["tenant"]);
}
